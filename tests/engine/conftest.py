"""A rig for each test. After it, fsck must find nothing, and a new start must read the state that was in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.embedded.rules.sending.release_delayed import WALL_LOOK_MS
from popmq_server.embedded.rules.topics import chunk
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import table
from popmq_server.embedded.writer.timetable import Timetable
from tests.engine.rig import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    """Makes rigs by name; at the end of the test each of them is checked by fsck and against a new start."""
    rigs: list[Rig] = []

    def make(name: str = "data", **how: object) -> Rig:
        rigs.append(Rig(tmp_path / name, **how))  # type: ignore[arg-type]
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.settle()
        broken = rig.findings()
        rig.abandon()
        assert broken == []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def unjournaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit batch is a commit of LMDB, also with POPMQ_JOURNAL=on: for tests of that commit."""
    monkeypatch.setattr(Rig, "journaled", False)


@pytest.fixture
def a_chunk_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit creates a new chunk per topic, even a small one: for tests of chunks and index blocks."""
    monkeypatch.setattr(chunk, "OPEN_BYTES_MAX", 0)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig()


@pytest.fixture(autouse=True)
def _few_recent_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are read from the store, as most of a large broker are: memory keeps only the very last ones."""
    monkeypatch.setattr(table, "RECENT_MAX", 2)


@pytest.fixture(autouse=True)
def kept_times_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all tests: the timetable asks few jobs at a commit, and has no time later than if it had asked all of them.

    Delayed messages look at the wall clock, which moves without notice, every WALL_LOOK_MS.
    """
    few = Timetable.next_ms

    def checked(self: Timetable, tx: Tx) -> int | None:
        found = few(self, tx)
        asked = Timetable(self.jobs)
        few(asked, tx)
        kept = zip(self.jobs, self._times, asked._times, strict=True)
        late = {job.name: kept_ms - max(ms, tx.now_ms) for job, kept_ms, ms in kept if kept_ms > ms}
        assert late.pop("delayed messages", 0) <= WALL_LOOK_MS
        assert late == {}
        return found

    monkeypatch.setattr(Timetable, "next_ms", checked)
