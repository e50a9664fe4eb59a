"""The settings of a pull consumer: the options of `pull_consume` and `broadcast_consume`, read; and its intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from popmq._consuming.consumer_settings import loop_settings
from popmq._given.checking import known_names
from popmq.config import PULL_MESSAGES, OnError
from popmq.errors import InvalidField
from popmq.process_queue import FlowControl
from popmq.pull import BroadcastConsumeOptions, PullConsumeOptions, Strategy
from popmq.topic import Start
from popmq_proto.v1 import popmq_pb2 as pb

#: The queue number of the group's retry topic.
RETRY = -1

#: Seconds between two rebalances; sooner when a heartbeat reports a change.
REBALANCE_S = 20.0
#: Seconds after the broker was away before a consumer takes further queues: by then all clients have sent heartbeats.
SETTLE_S = 10.0
#: Seconds before a failed or incomplete step is tried again.
AGAIN_S = 1.0
#: Seconds between two commits: after a kill, messages of this time are delivered again.
COMMIT_S = 5.0
#: Seconds that a lost queue is kept for the messages that handlers still have.
LEAVE_S = 15.0
#: Seconds between two lock renewals, and seconds after which a lock is no longer relied on. The broker keeps locks
#: twice as long, so the clocks of both need not agree.
LOCK_S = 20.0
LOCK_VALID_S = 30.0
#: Seconds before a failed pull is tried again, and between two checks of a paused consumer.
FAILED_S = 1.0
PAUSED_S = 1.0
#: Seconds before a failed message is delivered again in an orderly queue.
ORDERLY_AGAIN_S = 1.0
#: Flow control logs one in this many times that it holds a queue back.
HELD_BACK_LOG_EVERY = 1000


@dataclass(frozen=True, slots=True)
class PullSettings:
    """The options of `pull_consume` and `broadcast_consume` as they are read, with their defaults; durations in
    seconds.
    """

    topic: str
    group: str  # "": a broadcast
    filter: pb.Filter | None = None
    start: Start | None = None
    strategy: Strategy = "AVG"
    queues: Sequence[int] = ()
    orderly: bool = False
    max_messages: int = PULL_MESSAGES
    wait: float = 15.0
    flow: FlowControl = field(default_factory=FlowControl)
    on_error: OnError = "log"
    until_idle: float | None = None


def pull_settings(topic: str, group: str, options: PullConsumeOptions) -> PullSettings:
    """The options as they were given to `pull_consume`, read. Raises InvalidField, TypeError."""
    known_names(options, PullConsumeOptions.__annotations__, "pull_consume")
    if "strategy" in options:
        check_strategy(options["strategy"])
    return PullSettings(topic, group, **_read(options))


def broadcast_settings(topic: str, options: BroadcastConsumeOptions) -> PullSettings:
    """The options as they were given to `broadcast_consume`, read. Raises InvalidField, TypeError."""
    known_names(options, BroadcastConsumeOptions.__annotations__, "broadcast_consume")
    return PullSettings(topic, "", **{"start": "earliest", **_read(options)})


def _read(options: BroadcastConsumeOptions) -> dict[str, Any]:
    read = loop_settings(options)
    return {name: value for name, value in read.items() if name != "flow" or value is not None}


def check_strategy(strategy: str) -> None:
    """Raises InvalidField for an unknown name, which the broker would answer as if it knew no assignment yet."""
    if strategy not in get_args(Strategy):
        words = ", ".join(get_args(Strategy))
        raise InvalidField(f"{strategy!r} is not one of {words}", code="INVALID_FIELD", field="strategy")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to start in a queue, where its end was at that time, and when the topic was created that both are of."""

    offset: int
    max_offset: int
    topic_created_ms: int
