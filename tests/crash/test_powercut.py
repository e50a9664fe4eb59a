"""A broker whose machine loses its power keeps what it answered, whatever the disk made of what was not synced."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_verify import powercut
from popmq_verify.process.disk import SECTOR, Disk, Event, events
from tests.crash.conftest import Scale


def table(seed: int, verdicts: list[dict[str, Any]]) -> str:
    """What was cut and what was found, for people."""
    findings = [(verdict["cut"], *finding) for verdict in verdicts for finding in verdict["findings"]]
    broken = Counter(claim for _, claim, _ in findings)
    lines = [f"power-cut campaign, seed {seed}"]
    lines.append(f"  {'cuts':<62}{len(verdicts):>10,}")
    lines.append(f"  {'answers that had to hold, over all cuts':<62}{sum(v['answered'] for v in verdicts):>10,}")
    lines.append(f"  {'cuts with a finding':<62}{sum(bool(v['findings']) for v in verdicts):>10,}")
    lines += [f"  ✗ {claim}: {count}" for claim, count in broken.items()]
    return "\n".join(lines + [f"    cut {cut}, {claim}: {sentence}" for cut, claim, sentence in findings[:20]])


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, scale: Scale) -> Path:
    """What a broker under load did to its files: cut at many points, on honest disks and on bad ones."""
    if why := powercut.no_shim():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("watched") / "recording-0"
    powercut.record(folder, scale.seed)
    return folder


@pytest.mark.chaos
def test_answered_requests_survive_a_power_cut(
    recording: Path, tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    count = scale.pick(short=10, whole=50)
    verdicts: list[dict[str, Any]] = list(powercut.verdicts(recording, count, scale.seed))
    for number in range(1, scale.pick(short=1, whole=4)):
        folder = tmp_path / f"recording-{number}"
        powercut.record(folder, scale.seed + number)
        verdicts += powercut.verdicts(folder, count, scale.seed + number)
    show(table(scale.seed, verdicts))
    assert len(verdicts) == scale.pick(short=10, whole=200)
    assert not any(verdict["findings"] for verdict in verdicts), table(scale.seed, verdicts)
    assert sum(verdict["answered"] for verdict in verdicts) > 10 * len(verdicts), "cuts before any answer prove nothing"


@pytest.mark.chaos
def test_a_disk_that_ignores_syncs_is_found_out(recording: Path, scale: Scale) -> None:
    verdicts = powercut.verdicts(recording, 5, scale.seed, broken=True)
    assert any(verdict["findings"] for verdict in verdicts), "the model cannot fail"


@pytest.mark.slow
@pytest.mark.usefixtures("shim")
def test_the_folder_is_synced_before_the_port_opens(tmp_path: Path) -> None:
    # Else the data file itself may be gone after a cut: its name is in the folder, and no sync of the file covers that.
    with powercut.watched(tmp_path) as broker:
        ready_ns = time.monotonic_ns()
        assert broker.exit_code is None
    log = list(events(tmp_path / "cut.log", tmp_path / "data"))
    made = next(event.end_ns for event in log if event.kind == "N" and event.file.endswith(".mdb"))
    assert any(event.kind == "S" and event.file == "." and made < event.start_ns < ready_ns for event in log)


# ── The model itself ─────────────────────────────────────────────────────────────────────────────────────────────────


def written(data: bytes, offset: int = 0, durable: bool = False) -> Event:
    return Event(0, 1, "W", "data.mdb", durable, offset, len(data), data)


def after_cut(folder: Path, *events: Event, running: Event | None = None, seed: int = 0) -> bytes:
    disk = Disk()
    for event in (Event(0, 1, "N", "data.mdb", False, 0, 0, b""), *events):
        disk.play(event)
    disk.cut(folder, random.Random(seed), running)
    return (folder / "data.mdb").read_bytes()


SYNC = Event(0, 1, "S", "data.mdb", False, 0, 0, b"")


@pytest.mark.parametrize("seed", range(20))
def test_a_synced_write_and_a_durable_one_are_always_there(tmp_path: Path, seed: int) -> None:
    old, new = b"a" * 4096, b"b" * 120
    left = after_cut(tmp_path, written(old), SYNC, written(new, 32, durable=True), seed=seed)
    assert left == old[:32] + new + old[152:]


def test_an_unsynced_write_may_be_there_gone_or_torn_by_sectors(tmp_path: Path) -> None:
    old, new = b"a" * 4096, b"b" * 4096
    seen = set()
    for seed in range(60):
        left = after_cut(tmp_path, written(old), SYNC, written(new), seed=seed)
        sectors = [left[start : start + SECTOR] for start in range(0, 4096, SECTOR)]
        assert all(len(set(sector)) == 1 for sector in sectors), "a sector is never half written"
        seen.add("old" if left == old else "new" if left == new else "torn")
    assert seen == {"old", "new", "torn"}


@pytest.mark.slow
def test_a_durable_write_wins_over_an_older_unsynced_one(tmp_path: Path) -> None:
    for seed in range(20):
        left = after_cut(tmp_path, written(b"a" * 512), written(b"b" * 512, durable=True), seed=seed)
        assert left == b"b" * 512


def test_the_write_that_was_running_may_be_there_in_part(tmp_path: Path) -> None:
    lengths = {len(after_cut(tmp_path, running=written(b"c" * 2048), seed=seed)) for seed in range(60)}
    assert {0, 2048} < lengths
