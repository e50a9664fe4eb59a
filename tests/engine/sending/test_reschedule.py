"""Delayed messages that are moved to another time: delivered once, at the new one."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place, Rescheduled, queries
from popmq_server.contract.commands.numbers import DelayedMessage
from popmq_server.values.outgoing import Outgoing, hash8
from tests.engine.faults import killed_before_answer, killed_before_commit
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies, refusal
from tests.engine.traffic.traffic_timing import (
    delayed,
    every_page,
    handle_of,
    later,
    make_topic,
    recall,
    send,
    timed_pair,
    waiting,
)


def move(rig: Rig, place: Place | Rescheduled, **to: Any) -> Rescheduled:
    handle = place.handle if isinstance(place, Rescheduled) else handle_of(place)
    moved: Rescheduled = rig.do(ask.Reschedule("t", handle, **to))
    return moved


def rows(rig: Rig, **asked: Any) -> list[DelayedMessage]:
    return every_page(rig, queries.Delayed("t", 0, 4096, **asked))[0]


@pytest.mark.parametrize("sent", ["delay_ms", "due_ms"])
@pytest.mark.parametrize("moved", ["delay_ms", "due_ms"])
@pytest.mark.parametrize("ms", [SECOND, 2 * HOUR])
def test_a_moved_message_is_delivered_once_at_the_new_time(rig: Rig, sent: str, moved: str, ms: int) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", **{sent: HOUR + (rig.now if sent == "due_ms" else 0)}))
    answer = move(rig, place, **{moved: ms + (rig.now if moved == "due_ms" else 0)})
    assert (answer.message_id, answer.due_ms, waiting(rig)) == ("a", rig.now + ms, (1, 0))
    rig.advance(ms - 1)
    assert rig.pop() == []
    rig.advance(1)
    (row,) = rig.pop()
    assert (row.body, rig.ack([row])) == ("a", [None])
    rig.advance(3 * HOUR)
    assert (rig.pop(), waiting(rig), rig.findings()) == ([], (0, 0), [])


def test_only_the_handle_of_the_answer_names_a_moved_message(rig: Rig) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=HOUR))
    answer = move(rig, place, delay_ms=HOUR)
    assert answer.handle != place.recall_handle
    for command in (ask.Recall("t", handle_of(place)), ask.Reschedule("t", handle_of(place), 0, 1)):
        assert refusal(rig.run(command)[0]) == "MESSAGE_NOT_FOUND"
    again = move(rig, answer, delay_ms=MINUTE)
    assert [row.recall_handle for row in rows(rig)] == [again.handle]
    assert rig.do(ask.Recall("t", again.handle)) == "a"
    rig.advance(2 * HOUR)
    assert rig.pop() == []


def test_a_message_moved_into_the_past_is_due_at_once(rig: Rig) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=HOUR))
    move(rig, place, due_ms=1)
    rig.settle()
    assert bodies(rig.pop()) == ["a"]


def test_a_message_that_is_visible_or_recalled_is_not_moved(rig: Rig) -> None:
    timed_pair(rig)
    first, second = send(rig, later("a", delay_ms=SECOND), later("b", delay_ms=HOUR))
    recall(rig, second)
    rig.advance(SECOND)
    for place in (first, second):
        assert refusal(rig.run(ask.Reschedule("t", handle_of(place), 0, HOUR))[0]) == "MESSAGE_NOT_FOUND"
    assert (bodies(rig.pop()), delayed(rig)) == (["a"], [])


def test_a_moved_message_keeps_what_it_was_sent_with_and_when_it_was_stored(rig: Rig) -> None:
    timed_pair(rig)
    stored_ms = rig.now
    (place,) = send(rig, later("a", delay_ms=HOUR))
    before = rows(rig, bytes_max=1 << 20)[0].data
    rig.advance(MINUTE)
    move(rig, place, delay_ms=HOUR)
    (row,) = rows(rig, bytes_max=1 << 20)
    assert (row.data, row.stored_ms) == (before, stored_ms)


@pytest.mark.parametrize("killed", [killed_before_commit, killed_before_answer])
def test_a_crash_leaves_a_message_at_one_of_the_two_times(rig: Rig, killed: Any) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=HOUR))
    killed(rig, ask.Reschedule("t", handle_of(place), 0, MINUTE))
    rig.advance(2 * HOUR)
    assert (bodies(rig.pop()), rig.pop(), rig.findings()) == (["a"], [], [])


def test_a_known_id_is_answered_with_the_handle_of_the_move(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, "DELAY", unique_ids_ms=HOUR))
    (place,) = send(rig, later("a", delay_ms=HOUR))
    answer = move(rig, place, delay_ms=HOUR)
    (known,) = send(rig, later("a", delay_ms=HOUR))
    assert (known.duplicate, known.recall_handle) == (True, answer.handle)


def test_delayed_messages_are_found_by_id_and_by_key(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "other")
    for number in range(300):
        made = later(f"m{number}", delay_ms=HOUR + number)
        keys = ("even",) if number % 2 == 0 else ("odd", "m7")
        send(rig, Outgoing(made.data, made.tag_hash, (*made.hashes, *map(hash8, keys)), made.message_id, made.extra))
    assert [row.message_id for row in rows(rig, message_id="m250")] == ["m250"]
    assert len(rows(rig, key="even")) == 150
    assert [row.message_id for row in rows(rig, key="odd", message_id="m7")] == ["m7"]
    assert rows(rig, key="nobody") == []
    assert every_page(rig, queries.Delayed("other", 0, 10, key="even"))[0] == []
