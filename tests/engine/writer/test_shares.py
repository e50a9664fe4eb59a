"""Each lane has its share of every commit batch."""

from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer.core import Core
from popmq_server.embedded.writer.writer import (
    BATCH_BYTES_MAX,
    BATCH_COMMANDS_MAX,
    BATCH_SHARE,
    Writer,
)

MIB = 1 << 20


def nobody(*_: Any) -> None:
    pass


@pytest.fixture
def writer(tmp_path: Path) -> Writer[None]:
    """One whose thread does not run: the test takes the groups."""
    clock = FakeClock()
    return Writer(Core(Store(tmp_path / "data", 1 << 26, "none"), clock), clock, nobody, nobody)


def large() -> ask.Send:
    return ask.Send("t", (), "", 0, 3 * MIB)


def counts(group: list[tuple[Any, Any]]) -> tuple[int, int, int]:
    """(acks, sends, pops)"""
    lanes = [command.lane for command, _ in group]
    return lanes.count(0), lanes.count(1), lanes.count(2)


def test_pops_have_their_places_however_many_bytes_of_sends_wait(writer: Writer[None]) -> None:
    for _ in range(200):
        writer.submit(large(), None)
    for _ in range(25_000):
        writer.submit(ask.Pop("t", "g"), None)
    for _ in range(20):
        acks, sends, pops = counts(writer._take())
        assert acks == 0
        assert 0 < sends <= BATCH_BYTES_MAX // (3 * MIB) + 1
        assert pops >= BATCH_SHARE


def test_a_flood_of_one_lane_leaves_its_share_to_each_other_lane(writer: Writer[None]) -> None:
    for _ in range(5000):
        writer.submit(ask.Ack("g", ()), None)
    for _ in range(500):
        writer.submit(ask.Send("t", (), "", 0, 10), None)
        writer.submit(ask.Pop("t", "g"), None)
    acks, sends, pops = counts(writer._take())
    assert acks + sends + pops == BATCH_COMMANDS_MAX
    assert min(sends, pops) >= BATCH_SHARE


def test_lanes_without_anybody_keep_no_places(writer: Writer[None]) -> None:
    for _ in range(2 * BATCH_COMMANDS_MAX):
        writer.submit(ask.Ack("g", ()), None)
    assert counts(writer._take()) == (BATCH_COMMANDS_MAX, 0, 0)
