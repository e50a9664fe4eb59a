"""A broker in this process, on a real port and a clock that moves when told to; each test ends with a checked store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.embedded import EmbeddedBroker
from popmq_server.storage.check import check_folder
from popmq_server.waiters import Waiters
from tests.wire.stubs import CALL_S, Stubs


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(folder: Path, clock: FakeClock) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker:
        yield broker
    assert check_folder(folder) == []


@pytest.fixture
def stubs(broker: EmbeddedBroker) -> Iterator[Stubs]:
    with Stubs(broker.endpoint) as stubs:
        yield stubs


@pytest.fixture
def shop(stubs: Stubs) -> Stubs:
    """The stubs of a broker that has one topic of one queue, and one group."""
    stubs.create_topic(queues=1)
    stubs.create_group()
    return stubs


class Parked:
    """How many waits have begun since the test did. Needed because a parked call is silent on the wire."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Returns once `count` calls have parked; each of them is in its lot before the broker does anything else."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, CALL_S), f"{self._count} of {count} parked"


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> Parked:
    counter, park = Parked(), Waiters.park

    async def counted(self: Waiters, key: tuple[str, str], seen: tuple[int, int], deadline_ms: int) -> bool:
        counter.add()
        return await park(self, key, seen, deadline_ms)

    monkeypatch.setattr(Waiters, "park", counted)
    return counter
