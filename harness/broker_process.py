"""The broker process of popmq_verify, for tests, bench and demo; and the root of the tree."""

from pathlib import Path

from popmq_verify.process.broker_process import READY_S as READY_S
from popmq_verify.process.broker_process import SERVE as SERVE
from popmq_verify.process.broker_process import BrokerError as BrokerError
from popmq_verify.process.broker_process import BrokerProcess as BrokerProcess
from popmq_verify.process.broker_process import own_port as own_port

ROOT = Path(__file__).resolve().parents[1]
