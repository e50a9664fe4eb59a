"""Live records that outlive their chunk: found at the same cost each, in bounded pieces, and never half of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from popmq_server import commands as ask
from popmq_server.retention import kept, retention
from tests.engine.rig import HOUR, MINUTE, Delivery, Rig, bodies, numbered
from tests.engine.traffic_fifo import in_order
from tests.engine.work import calls

#: Chunks are held and copied here: these tests make them by sending one by one.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")


def held(rig: Rig, count: int, how: str = "retry") -> list[Delivery]:
    """Chunks of five messages, of which one each is held, hours past their time."""
    rig.topic("t", keep_ms=HOUR)
    rig.group("g")
    for number in range(count):
        rig.send(*(f"{number}-{letter}" for letter in "abcde"))
    rows = [row for _ in range(count) for row in rig.pop(5, invisible_ms=12 * HOUR)]
    stay = [row for row in rows if row.body.endswith("-a")]
    rig.ack([row for row in rows if not row.body.endswith("-a")])
    if how == "retry":
        rig.release(stay, delay_ms=0)
    rig.advance(MINUTE)
    rig.skip(3 * HOUR)
    return stay


def pieces(rig: Rig) -> list[int]:
    """The work of each piece of periodic work."""
    found = []
    while rig.due:
        found.append(calls(lambda: rig.run()))
    return found


def behind_a_stopped_message_group(rig: Rig, count: int) -> None:
    """Chunks of five messages, of which one each waits behind the first, which has stopped its message group."""
    rig.do(ask.CreateTopic("t", 1, False, HOUR, type="FIFO"))
    rig.group("g", max_attempts=1, stop_on_failure=True)
    rig.pop()
    for number in range(count):
        rig.do(in_order(*(f"{letter}{number}" for letter in "abcde"), topic="t"))
        rows = rig.pop(5)
        rig.release([row for row in rows if row.body[0] == "a"], delay_ms=0)
        rig.ack([row for row in rows if row.body[0] != "a"])
    rig.advance(MINUTE)
    rig.skip(3 * HOUR)


def test_messages_behind_a_stopped_message_group_are_copied_at_the_same_cost_each(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "LOOKS_MAX", 100)
    small, large = make_rig("small"), make_rig("large")
    behind_a_stopped_message_group(small, 100)
    behind_a_stopped_message_group(large, 1000)
    few, many = pieces(small), pieces(large)
    assert (len(small.read("kept")), len(large.read("kept"))) == (100, 1000)
    assert sum(many) < 12 * sum(few)
    assert max(many) < 1.5 * max(few)


@pytest.mark.parametrize("how", ["retry", "leased"])
def test_ten_times_as_many_held_messages_cost_ten_times_as_much_in_pieces_that_are_no_longer(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(retention, "LOOKS_MAX", 100)
    small, large = make_rig("small"), make_rig("large")
    held(small, 100, how)
    held(large, 1000, how)
    few, many = pieces(small), pieces(large)
    assert len(small.read("kept")) == 100
    assert len(large.read("kept")) == 1000
    assert sum(many) < 12 * sum(few)
    assert max(many) < 1.5 * max(few)


def test_messages_behind_a_stopped_message_group_are_not_searched_for_what_is_all_live(rig: Rig) -> None:
    rig.do(ask.CreateTopic("f", 1, False, HOUR, type="FIFO"))
    rig.group("g", max_attempts=1, stop_on_failure=True)
    rig.pop(topic="f")
    rig.do(in_order(*numbered("a", 500)))
    rig.release(rig.pop(1, topic="f"), delay_ms=0)
    rig.pop(topic="f")
    for _ in range(4):
        rig.advance(HOUR)
    assert (len(rig.read("log")), rig.read("kept")) == (1, [])
    assert rig.numbers("g", "f").waiting == 500


@pytest.mark.parametrize("move", ["release", "extend", "pop", "ack", "pop and release"])
def test_messages_that_move_while_the_search_goes_on_stay_readable(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    """In each pause of the search some messages move: from leases to the retry topic, and back, behind it or before."""
    monkeypatch.setattr(retention, "LOOKS_MAX", 15)
    stay = held(rig, 30, "leased" if move in ("release", "extend", "ack") else "retry")
    done, turn = 0, 0
    while rig.due and turn < 400:
        rig.run()
        turn += 1
        if turn % 3:
            continue
        if move == "release" and stay:
            rig.release([stay.pop()], delay_ms=0)
        elif move == "extend":
            rig.extend([stay[turn // 3 % len(stay)]], 2 * HOUR)
        elif move == "ack" and stay:
            done += len(rig.ack([stay.pop(0)]))
        elif move.startswith("pop"):
            rows = rig.pop(1, invisible_ms=12 * HOUR)
            if "release" in move:
                rig.release(rows, delay_ms=0)
    assert rig.findings() == []
    for _ in range(14):
        rig.advance(HOUR)
        assert rig.findings() == []
    expected = {f"{number}-a" for number in range(30)}
    rows = rig.pop()
    assert len(rows) == 30 - done
    assert {*bodies(rows)} <= expected


def test_what_a_search_found_too_late_is_copied_by_the_next(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOOKS_MAX", 4)
    held(rig, 30)
    while rig.core.state.searched == set():
        rig.run()
    rows = rig.pop(1, invisible_ms=HOUR)
    rig.settle()
    assert len(rig.read("kept")) == 29
    rig.release(rows, delay_ms=0)
    rig.advance(HOUR)
    assert len(rig.read("kept")) == 30


def test_one_search_remembers_a_bounded_number_of_pointers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "POINTERS_MAX", 4)
    held(rig, 10)
    rig.settle()
    assert len(rig.read("kept")) == 4
    rig.advance(HOUR)
    assert len(rig.read("kept")) == 8
    rig.advance(HOUR)
    assert len(rig.read("kept")) == 10
