"""A soak: what it looks at while its broker is killed and started again, and how it judges the data file."""

import os
import signal
import sys
from pathlib import Path

import pytest

from bench import soak
from harness.broker_process import BrokerProcess


@pytest.mark.process
def test_a_killed_broker_has_no_memory_to_look_at(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", program=(sys.executable, "-c", "input()"))
    broker.spawn()
    assert broker.memory_bytes > 0
    os.kill(broker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its status is still to be collected
    with pytest.raises(ProcessLookupError):
        _ = broker.memory_bytes
    broker.kill()


@pytest.mark.parametrize(("minutes", "grows_mib", "flat"), [(20, 1.0, True), (20, 4.0, False), (480, 1.0, False)])
def test_the_data_file_may_grow_only_in_the_first_hour(minutes: int, grows_mib: float, flat: bool) -> None:
    same = {"acked/s": 1000.0, "sent/s": 20.0, "memory MiB": 80.0}
    rows = [{"s": 60.0 * at, "store MiB": 2.0 + grows_mib * (at > minutes / 2), **same} for at in range(1, minutes + 1)]
    said = {name: holds for name, holds, _ in soak.verdict({"rows": rows, "findings": {}})}
    assert said.pop("store MiB flat") is flat
    assert all(said.values())
