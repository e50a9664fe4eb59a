"""A soak: what it looks at while its broker is killed and started again, and how it judges the data file."""

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench import soak, soak_chart
from bench.soak_history import History
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


def test_the_notes_of_a_part_are_those_with_which_the_next_part_begins(tmp_path: Path) -> None:
    first = History(seconds=61.5, rows=[{"s": 5.0, "acked/s": 1000.0}])
    first.sent["fifo"] = 9
    for number in (0, 1, 3):
        first.groups["fifo"]["fifo-7"].ack(number)
    first.groups["fifo"]["fifo-7"].last["g0"] = 3
    first.findings["out of order in its message group"] += 2
    first.save(tmp_path / "load.json")
    second = History.load(tmp_path / "load.json")
    assert (second.seconds, second.parts, second.rows, second.sent) == (61.5, 2, first.rows, first.sent)
    assert (second.groups, second.findings) == (first.groups, first.findings)
    assert (second.missing(), second.groups["fifo"]["fifo-7"].has(2)) == (6, False)


def test_a_curve_of_many_hours_keeps_its_lowest_and_its_highest_value(tmp_path: Path) -> None:
    rows = [{"s": 5.0 * at, "acked/s": 1000.0} for at in range(1, 5_761)]
    rows[3_000]["acked/s"], rows[3_001]["acked/s"] = 0.0, 2000.0
    soak_chart.draw(tmp_path / "soak.svg", rows, ("acked/s",))
    points = (tmp_path / "soak.svg").read_text().partition('points="')[2].partition('"')[0].split()
    heights = Counter(point.partition(",")[2] for point in points)
    assert len(points) <= 2 * (soak_chart.PLACES + 1)
    bottom, top = soak_chart.GAP + soak_chart.HEIGHT, soak_chart.GAP
    assert (heights[f"{bottom:.1f}"], heights[f"{top:.1f}"]) == (1, 1)
