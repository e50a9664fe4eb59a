"""Delayed messages: never early, once, in order, and taken back for certain (I.12, D.72, D.73, F.01, F.02)."""

import logging
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place, queries
from popmq_server.contract.commands.numbers import MessagePreview
from popmq_server.embedded.rules.sending import placing
from popmq_server.embedded.rules.sending.release_delayed import WALL_LOOK_MS
from popmq_server.errors import Refused
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, message, refusal
from tests.engine.traffic.traffic_timing import (
    delayed,
    later,
    make_topic,
    recall,
    send,
    step_wall,
    texts,
    timed_pair,
    waiting,
)

YEAR = 365 * DAY
FOREVER = (1 << 63) - 1


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq.core")


# ── When ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("D.73")
@pytest.mark.parametrize("asked", ["due_ms", "delay_ms"])
@pytest.mark.parametrize("wait_ms", [1, 999, SECOND, 3 * DAY + 1, 50 * YEAR])
def test_a_message_is_visible_at_its_time_and_not_a_millisecond_before(rig: Rig, asked: str, wait_ms: int) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", **{asked: wait_ms + (rig.now if asked == "due_ms" else 0)}))
    assert place.recall_handle
    rig.advance(wait_ms - 1)
    assert rig.pop() == []
    assert delayed(rig) == ["a"]
    rig.advance(1)
    assert bodies(rig.pop()) == ["a"]
    assert delayed(rig) == []


@pytest.mark.parametrize("ago_ms", [0, 1, YEAR, "the beginning"])
def test_a_delayed_message_due_in_the_past_is_visible_at_once(rig: Rig, ago_ms: Any) -> None:
    timed_pair(rig)
    due_ms = 1 if ago_ms == "the beginning" else rig.now - ago_ms
    places = send(rig, later("a", due_ms=due_ms), message("b"))
    assert places == [Place(0, 0), Place(0, 1)]
    assert bodies(rig.pop()) == ["a", "b"]


@pytest.mark.mechanism("D.72")
def test_any_time_of_64_bits_is_stored_and_returned(rig: Rig) -> None:
    timed_pair(rig)
    times = [FOREVER, FOREVER - 1, 1 << 62, 1 << 53, rig.now + 1]
    send(rig, *(later(str(due_ms), due_ms=due_ms) for due_ms in times))
    rig.restart()
    rows, total = rig.look(queries.Delayed("t", 0, 100))
    assert [row.due_ms for row in rows] == sorted(times)
    assert total == 5
    rig.advance(1)
    assert waiting(rig) == (4, 0)


def test_an_idle_broker_sleeps_until_the_first_delayed_message(rig: Rig) -> None:
    timed_pair(rig)
    rig.settle()
    idle = rig.core.next_due_ms
    assert idle is not None
    first, _ = send(rig, later("a", delay_ms=20 * SECOND), later("b", due_ms=rig.now + 30 * SECOND))
    assert rig.core.next_due_ms == rig.now + 20 * SECOND < idle
    recall(rig, first)
    assert rig.core.next_due_ms == rig.now + 30 * SECOND
    rig.restart()
    assert rig.core.next_due_ms == rig.now + 30 * SECOND, "and a restart knows"
    rig.advance(30 * SECOND)
    assert rig.core.next_due_ms > rig.now + 10 * SECOND


def test_delayed_messages_fire_in_the_order_of_their_times_and_then_of_sending(rig: Rig) -> None:
    timed_pair(rig)
    now = rig.now
    send(rig, later("e", delay_ms=5), later("c", due_ms=now + 3), later("d", delay_ms=3), later("a", due_ms=now + 1))
    send(rig, later("b", delay_ms=1), later("f", due_ms=now + 5))
    assert delayed(rig) == delayed(rig, "t") == ["a", "b", "c", "d", "e", "f"]
    rig.advance(10)
    assert texts(rig) == ["a", "b", "c", "d", "e", "f"]


# ── Two clocks ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("D.73")
def test_a_wall_clock_that_was_set_back_makes_nothing_early(rig: Rig) -> None:
    timed_pair(rig)
    due_ms = rig.now + MINUTE
    send(rig, later("a", due_ms=due_ms), later("soon after", due_ms=due_ms + 10))
    step_wall(rig, -HOUR)
    rig.advance(MINUTE + HOUR - 1)
    assert rig.pop() == [], "the wall clock shows a millisecond before"
    rig.advance(1)
    assert bodies(rig.pop()) == ["a"], "what is due releases nothing but itself"
    rig.advance(9)
    assert rig.pop() == []
    rig.advance(1)
    assert bodies(rig.pop()) == ["soon after"]


def test_a_wall_clock_that_was_set_forward_makes_nothing_early(rig: Rig) -> None:
    timed_pair(rig)
    send(rig, later("a", due_ms=rig.now + MINUTE))
    step_wall(rig, HOUR)
    rig.advance(MINUTE - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert bodies(rig.pop()) == ["a"]


@pytest.mark.parametrize("step_ms", [-HOUR, -1, 1, HOUR])
def test_a_delay_is_a_length_of_time_that_no_step_changes(rig: Rig, step_ms: int) -> None:
    timed_pair(rig)
    send(rig, later("blocks", due_ms=rig.now + 1), later("a", delay_ms=MINUTE))
    step_wall(rig, step_ms)
    rig.advance(MINUTE - 1)
    assert "a" not in texts(rig)
    rig.advance(1)
    assert texts(rig)[-1] == "a"


def test_a_time_that_one_clock_has_not_reached_is_kept_when_it_is_sent(rig: Rig) -> None:
    timed_pair(rig)
    step_wall(rig, -SECOND)
    assert send(rig, later("a", due_ms=rig.now))[0].recall_handle
    step_wall(rig, 2 * SECOND)
    assert send(rig, later("b", due_ms=rig.now + SECOND))[0].recall_handle
    assert not send(rig, later("c", due_ms=rig.now))[0].recall_handle


def test_a_wall_clock_that_lags_is_looked_at_again_soon_but_not_without_end(rig: Rig) -> None:
    timed_pair(rig)
    send(rig, later("a", due_ms=rig.now + SECOND))
    step_wall(rig, -HOUR)
    rig.skip(SECOND)
    for _ in range(3):
        assert rig.due
        rig.run()
        assert not rig.due, "one look, and then a pause"
        assert rig.core.next_due_ms == rig.now + WALL_LOOK_MS
        rig.skip(WALL_LOOK_MS)
    step_wall(rig, HOUR)
    rig.settle()
    assert bodies(rig.pop()) == ["a"], "whoever sets the clock right tells nobody"


def test_the_pause_ends_when_the_wall_clock_gets_there(rig: Rig) -> None:
    timed_pair(rig)
    send(rig, later("a", due_ms=rig.now + SECOND))
    step_wall(rig, -7)
    rig.advance(SECOND)
    assert rig.core.next_due_ms == rig.now + 7
    rig.advance(7)
    assert bodies(rig.pop()) == ["a"]


def test_steady_traffic_does_not_put_off_the_look_at_a_wall_clock_that_lags(rig: Rig) -> None:
    timed_pair(rig)
    rig.topic("u")
    send(rig, later("a", due_ms=rig.now + SECOND))
    step_wall(rig, -HOUR)
    rig.advance(SECOND)
    for _ in range(5):
        rig.skip(WALL_LOOK_MS // 2)
        rig.send("x", topic="u")
    step_wall(rig, HOUR)
    for _ in range(2):
        rig.skip(WALL_LOOK_MS // 4)
        rig.send("x", topic="u")
    assert bodies(rig.pop()) == ["a"]


# ── Where it goes ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fired_messages_keep_the_order_and_the_queue_of_their_message_group(rig: Rig) -> None:
    timed_pair(rig, "FIFO", queues=4)
    plain = later("x0", message_group="x")
    wait = [later(f"{group}{number}", message_group=group, delay_ms=number) for number in (3, 1, 2) for group in "xyz"]
    send(rig, *wait, plain)
    rig.advance(10)
    found: dict[str, list[tuple[int, str]]] = {}
    for row in rig.pop():
        found.setdefault(row.body[0], []).append((row.queue, row.body[1]))
    assert {group: [number for _, number in rows] for group, rows in found.items()} == {
        "x": ["0", "1", "2", "3"],
        "y": ["1", "2", "3"],
        "z": ["1", "2", "3"],
    }
    assert all(len({queue for queue, _ in rows}) == 1 for rows in found.values())
    assert {placing.queue_of(group, 4) for group in "x"} == {found["x"][0][0]}


def test_fired_messages_keep_their_priority(rig: Rig) -> None:
    timed_pair(rig, "PRIORITY", queues=3)
    send(rig, *(later(f"{priority}", priority=priority, delay_ms=SECOND) for priority in (0, 1, 2, 9)))
    rig.advance(SECOND)
    assert {row.body: row.queue for row in rig.pop()} == {"0": 0, "1": 1, "2": 2, "9": 2}


def test_a_delayed_message_that_fires_wakes_only_pops_of_its_topic(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "u")
    send(rig, later("a", delay_ms=SECOND))
    rig.settle()
    assert rig.commit().woken == set()
    rig.skip(SECOND)
    assert rig.commit().woken == {(None, "t")}


def test_retention_counts_from_the_time_a_message_becomes_visible(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, True, HOUR, "DELAY"))
    rig.group()
    rig.pop()
    send(rig, later("a", delay_ms=30 * DAY))
    rig.advance(30 * DAY)
    rig.advance(HOUR - 2 * MINUTE)
    assert texts(rig) == ["a"]
    rig.advance(4 * MINUTE)
    assert texts(rig) == []


def test_a_repeated_request_gets_the_same_handles_and_stores_nothing(rig: Rig) -> None:
    timed_pair(rig)
    messages = later("a", delay_ms=SECOND), message("b"), later("c", transaction=True), later("d", message_group="x")
    first = rig.do(ask.Send("t", messages, "p", 1))
    assert [bool(place.recall_handle) for place in first.places[:3]] == [True, False, False]
    assert refusal(first.places[3]) == "INVALID_FIELD"
    for wait_ms in (0, SECOND, 9 * MINUTE):
        rig.advance(wait_ms)
        again = rig.do(ask.Send("t", messages, "p", 1))
        assert again.duplicate
        assert again.places[:3] == first.places[:3], "also when it has fired"
        assert (again.places[3].code, again.places[3].field) == (first.places[3].code, first.places[3].field)
    assert texts(rig) == ["b", "a"]


# ── Numbers, lists ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_lists_are_soonest_first_bounded_and_say_how_many_there_are(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "u")
    now = rig.now
    send(rig, *(later(f"t{wait}", delay_ms=wait) for wait in (30, 10, 20)))
    places = send(rig, *(later(f"u{wait}", due_ms=now + wait) for wait in (15, 25)), topic="u")
    assert delayed(rig) == ["t10", "u15", "t20", "u25", "t30"]
    assert delayed(rig, "t") == ["t10", "t20", "t30"]
    assert delayed(rig, "", now + 20) == ["t10", "u15"], "due before that time"
    assert [row.message_id for row in rig.look(queries.Delayed("t", 0, 2))[0]] == ["t10", "t20"]
    rows, total = rig.look(queries.Delayed("u", 0, 1))
    assert total == 2
    assert rows[0]._asdict() == {
        "topic": "u",
        "message_id": "u15",
        "due_ms": now + 15,
        "recall_handle": places[0].recall_handle,
        "stored_ms": now,
        "preview": MessagePreview((), "", b"u15", 3),
        "data": b"",
    }
    assert rig.look(queries.Delayed("", 0, 1))[1] == 5
    with pytest.raises(Refused):
        rig.look(queries.Delayed("nobody", 0, 1))


def test_the_count_of_a_topic_is_exact_and_each_of_its_groups_is_reported(rig: Rig) -> None:
    timed_pair(rig)
    rig.group("h")
    rig.pop(group="h")
    places = send(rig, *(later(text, delay_ms=SECOND) for text in "abc"))
    recall(rig, places[0])
    assert [rig.numbers(group).delayed for group in "gh"] == [2, 2]
    assert rig.numbers().ready == 0
    rig.advance(SECOND)
    assert (rig.numbers().delayed, rig.numbers().ready) == (0, 2)
