"""Delayed messages that go before their time, recalled or with their topic (I.22, F.02)."""

import itertools
import logging

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place
from popmq_server.embedded.rules.operate.purge import PURGE_KEYS_MAX
from popmq_server.values.handles import read_recall, recall_text
from tests.engine.faults import killed_before_answer, killed_before_commit
from tests.engine.rig import DAY, HOUR, SECOND, Rig, bodies, refusal
from tests.engine.traffic.traffic_timing import (
    delayed,
    fill,
    handle_of,
    later,
    make_topic,
    recall,
    send,
    texts,
    timed_pair,
    waiting,
)

FOREVER = (1 << 63) - 1


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq.core")


# ── Recall ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def refused(rig: Rig, place: Place, topic: str = "t") -> str:
    return refusal(rig.run(ask.Recall(topic, handle_of(place)))[0])


def test_a_recalled_message_is_never_delivered(rig: Rig) -> None:
    timed_pair(rig)
    first, second = send(rig, later("a", delay_ms=SECOND), later("b", due_ms=rig.now + SECOND))
    assert recall(rig, first) == "a"
    assert waiting(rig) == (1, 0)
    assert refused(rig, first) == "MESSAGE_NOT_FOUND"
    rig.restart()
    assert recall(rig, second) == "b"
    rig.advance(DAY)
    assert rig.pop() == []
    assert rig.browse("t").next_offset == 0


def test_a_message_that_has_fired_cannot_be_recalled(rig: Rig) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=SECOND))
    rig.advance(SECOND)
    assert refused(rig, place) == "MESSAGE_NOT_FOUND"
    assert bodies(rig.pop()) == ["a"]


def test_a_recall_in_the_commit_in_which_the_message_is_due_wins(rig: Rig) -> None:
    """The race of I.12: one writer, so there is no moment in which both could be true."""
    timed_pair(rig)
    first, second = send(rig, later("a", delay_ms=SECOND), later("b", delay_ms=SECOND))
    rig.skip(SECOND)
    recalled, popped = rig.run(ask.Recall("t", handle_of(first)), ask.Pop("t", "g"))
    assert recalled == "a"
    assert [row[0] for row in popped.rows] == [later("b", delay_ms=SECOND).data]
    assert refused(rig, second) == "MESSAGE_NOT_FOUND"


def test_two_recalls_of_one_message_have_one_winner(rig: Rig) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=SECOND))
    first, second = rig.run(*[ask.Recall("t", handle_of(place))] * 2)
    assert (first, refusal(second)) == ("a", "MESSAGE_NOT_FOUND")


@pytest.mark.slow
def test_a_recall_killed_before_its_commit_changed_nothing_and_after_it_is_final(rig: Rig) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=SECOND))
    killed_before_commit(rig, ask.Recall("t", handle_of(place)))
    assert delayed(rig) == ["a"]
    killed_before_answer(rig, ask.Recall("t", handle_of(place)))
    rig.advance(SECOND)
    assert rig.pop() == []


@pytest.mark.parametrize("part", ["clock", "due_ms", "number", "nonce"])
def test_a_forged_handle_takes_nothing_back(rig: Rig, part: str) -> None:
    timed_pair(rig)
    (place,) = send(rig, later("a", delay_ms=SECOND))
    handle = read_recall(handle_of(place))
    assert handle is not None
    forged = recall_text(handle._replace(**{part: getattr(handle, part) ^ 1}))
    assert refusal(rig.run(ask.Recall("t", forged))[0]) == "MESSAGE_NOT_FOUND"
    assert delayed(rig) == ["a"]


def test_a_handle_is_good_in_its_own_topic_only(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "u")
    (place,) = send(rig, later("a", delay_ms=SECOND))
    (result,) = rig.run(ask.Recall("u", handle_of(place)))
    assert (refusal(result), result.field) == ("INVALID_FIELD", "recall_handle")
    assert refused(rig, place, "nobody") == "TOPIC_NOT_FOUND"
    assert delayed(rig) == ["a"]


# ── Deleted topics ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_created_again_gets_no_delayed_messages_of_the_old_one(rig: Rig) -> None:
    timed_pair(rig)
    places = send(rig, later("old", delay_ms=SECOND), later("older", due_ms=rig.now + SECOND))
    rig.run(ask.DeleteTopic("t"), ask.CreateTopic("t", 1, False, HOUR, "DELAY"))
    assert (waiting(rig), delayed(rig), delayed(rig, "t")) == ((0, 0), [], [])
    assert refused(rig, places[0]) == "MESSAGE_NOT_FOUND"
    send(rig, later("new", delay_ms=SECOND))
    rig.advance(SECOND)
    assert texts(rig) == ["new"]
    assert rig.read("sched") == rig.read("tsched") == []


def test_due_messages_of_a_deleted_topic_are_dropped_and_do_not_delay_others(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "u")
    fill(rig, 3000, rig.now + SECOND)
    send(rig, later("other", due_ms=rig.now + SECOND), topic="u")
    rig.skip(SECOND)
    rig.run(ask.DeleteTopic("t"), ask.CreateTopic("t", 1, False, HOUR, "DELAY"))
    rig.settle()
    assert texts(rig) == []
    assert texts(rig, "u") == ["other"], "and holds up nobody"
    assert rig.read("sched") == rig.read("tsched") == []


def test_the_delayed_messages_of_a_deleted_topic_go_in_bounded_pieces(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "u")
    fill(rig, 2500, FOREVER)
    send(rig, later("stays", due_ms=FOREVER), topic="u")
    rig.do(ask.DeleteTopic("t"))
    left = [len(rig.read("sched"))]
    while rig.due:
        rig.run()
        left.append(len(rig.read("sched")))
        rig.crash()
    assert all(before - after <= PURGE_KEYS_MAX for before, after in itertools.pairwise(left))
    assert left[-1] == 1
    assert delayed(rig) == ["stays"]
