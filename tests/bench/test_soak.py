"""What a soak looks at while its broker is killed and started again."""

import os
import signal
import sys
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess


@pytest.mark.process
def test_a_killed_broker_that_nobody_has_waited_for_has_no_memory_to_look_at(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", program=(sys.executable, "-c", "input()"))
    broker.spawn()
    assert broker.memory_bytes > 0
    os.kill(broker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its status is still to be collected
    with pytest.raises(ProcessLookupError):
        _ = broker.memory_bytes
    broker.kill()
