"""Each lane has its share of every group of commands, and the answers of one group are bounded in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from popmq_server import commands as ask
from popmq_server import popping
from popmq_server.clock import FakeClock
from popmq_server.core import Core
from popmq_server.storage.lmdb import Store
from popmq_server.writer import GROUP_BYTES_MAX, GROUP_COMMANDS_MAX, GROUP_SHARE, Writer
from tests.engine.rig import Rig, message

MIB = 1 << 20


def nobody(*_: Any) -> None:
    pass


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    """One whose thread does not run: the test takes the groups."""
    clock = FakeClock()
    return Writer(Core(Store(tmp_path / "data", 1 << 26, "none"), clock), clock, nobody, nobody)


def large() -> ask.Send:
    return ask.Send("t", (), "", 0, 3 * MIB)


def counts(group: list[tuple[Any, Any]]) -> tuple[int, int, int]:
    """(acks, sends, pops)"""
    lanes = [ask.LANES.get(type(command), ask.LANE_ACK) for command, _ in group]
    return lanes.count(0), lanes.count(1), lanes.count(2)


def test_pops_have_their_places_however_many_bytes_of_sends_wait(writer: Writer) -> None:
    for _ in range(200):
        writer.submit(large(), None)
    for _ in range(25_000):
        writer.submit(ask.Pop("t", "g"), None)
    for _ in range(20):
        acks, sends, pops = counts(writer._take())
        assert acks == 0
        assert 0 < sends <= GROUP_BYTES_MAX // (3 * MIB) + 1
        assert pops >= GROUP_SHARE


def test_a_flood_of_one_lane_leaves_its_share_to_each_other_lane(writer: Writer) -> None:
    for _ in range(5000):
        writer.submit(ask.Ack("g", ()), None)
    for _ in range(500):
        writer.submit(ask.Send("t", (), "", 0, 10), None)
        writer.submit(ask.Pop("t", "g"), None)
    acks, sends, pops = counts(writer._take())
    assert acks + sends + pops == GROUP_COMMANDS_MAX
    assert min(sends, pops) >= GROUP_SHARE


def test_lanes_without_anybody_keep_no_places(writer: Writer) -> None:
    for _ in range(2 * GROUP_COMMANDS_MAX):
        writer.submit(ask.Ack("g", ()), None)
    assert counts(writer._take()) == (GROUP_COMMANDS_MAX, 0, 0)


def filled(rig: Rig, messages: int) -> None:
    rig.pair()
    for number in range(messages):
        entry = message("x" * MIB, str(number))
        rig.do(ask.Send("t", (entry,), "", 0, len(entry.data)))


def test_the_answers_of_one_group_are_bounded_in_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pops behind the bound lease nothing and ask again, so nothing is leased that was not answered."""
    monkeypatch.setattr(popping, "ANSWER_BYTES_MAX", 4 * MIB)
    filled(rig, 20)
    taken = 0
    for _ in range(5):
        answers = rig.run(*(ask.Pop("t", "g", max_messages=1) for _ in range(20)))
        rows = sum(len(answer.rows) for answer in answers)
        assert 4 <= rows <= 5
        assert all(answer.again for answer in answers if not answer.rows)
        taken += rows
        assert rig.numbers().in_flight == taken
        if taken == 20:
            break
    assert taken == 20


def test_one_answer_is_always_given_whatever_its_size(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(popping, "ANSWER_BYTES_MAX", 1)
    filled(rig, 2)
    first, second = rig.run(ask.Pop("t", "g", max_messages=1), ask.Pop("t", "g", max_messages=1))
    assert (len(first.rows), len(second.rows), second.again) == (1, 0, True)
