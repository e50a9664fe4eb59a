"""A message group that stops at a failed message, and goes on when somebody resumes it."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import MessageGroupNumbers
from popmq_server.embedded import operations
from tests.engine.rig import HOUR, MINUTE, Delivery, Rig, bodies, refusal
from tests.engine.traffic.traffic_fifo import dead_texts, fifo_pair, send_fifo


def stopped(rig: Rig) -> tuple[Delivery, ...]:
    fifo_pair(rig, max_attempts=1, stop_on_failure=True)
    send_fifo(rig, "a1", "a2", "b1")
    rows = {row.body: row for row in rig.pop()}
    rig.ack([rows["b1"]])
    rig.release([rows["a1"]], reason="no such account")
    return tuple(rows.values())


def listed(rig: Rig) -> list[MessageGroupNumbers]:
    return rig.look(queries.MessageGroups("t", "g", rows_max=10))


def test_a_group_that_stops_on_failure_holds_the_message_group_and_says_so(rig: Rig) -> None:
    stopped(rig)
    send_fifo(rig, "a3", "b2")
    rows = rig.pop()
    assert bodies(rows) == ["b2"]
    rig.ack(rows)
    rig.advance(HOUR)
    assert listed(rig)[0] == ("a", 3, 0, True, "no such account")
    assert rig.numbers().stopped == 1
    assert dead_texts(rig) == []


def test_a_timeout_stops_too(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1, stop_on_failure=True)
    send_fifo(rig, "a1", "a2")
    rig.pop()
    rig.advance(MINUTE)
    assert rig.pop() == []
    assert listed(rig) == [("a", 2, 0, True, "lease expired")]


def test_a_stopped_message_group_stays_so_after_a_restart(rig: Rig) -> None:
    stopped(rig)
    rig.crash()
    assert listed(rig) == [("a", 2, 0, True, "no such account")]
    assert rig.pop() == []


def test_a_resumed_message_group_tries_its_head_again(rig: Rig) -> None:
    stopped(rig)
    rig.do(ask.ResumeMessageGroup("t", "g", "a"))
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 1), ("a2", 1)]


def test_a_message_group_resumed_without_its_head_goes_on_after_it(rig: Rig) -> None:
    stopped(rig)
    rig.do(ask.ResumeMessageGroup("t", "g", "a", True))
    assert dead_texts(rig) == ["a1"]
    assert bodies(rig.pop()) == ["a2"]


def stopped_twice(rig: Rig) -> None:
    """The second of a batch fails first; the first one, still leased, runs out of its lease."""
    fifo_pair(rig, max_attempts=1, stop_on_failure=True)
    send_fifo(rig, "a1", "a2", "a3")
    rig.release(rig.pop()[1:2], reason="no")
    rig.advance(MINUTE)
    assert listed(rig) == [("a", 3, 0, True, "lease expired")]
    assert rig.numbers().stopped == 1


@pytest.mark.slow
def test_a_message_group_that_was_stopped_twice_goes_on_at_once(rig: Rig) -> None:
    stopped_twice(rig)
    rig.crash()
    rig.do(ask.ResumeMessageGroup("t", "g", "a"))
    rig.crash()
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 1), ("a2", 1), ("a3", 1)]


def test_a_message_group_that_was_stopped_twice_leaves_two_dead_letters(rig: Rig) -> None:
    stopped_twice(rig)
    rig.do(ask.ResumeMessageGroup("t", "g", "a", True))
    assert dead_texts(rig) == ["a1", "a2"]
    assert bodies(rig.pop()) == ["a3"]


def test_a_message_group_is_resumed_also_when_a_dead_letter_has_come_back_in_front(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1)
    send_fifo(rig, "a1", "a2")
    rig.reject(rig.pop(1))
    rig.do(ask.UpdateGroup("g", {"stop_on_failure": True}))
    rig.release(rig.pop(1), reason="no")
    rig.do(operations.RedrivePiece("g"))
    assert rig.pop() == []
    rig.do(ask.ResumeMessageGroup("t", "g", "a"))
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 1), ("a2", 1)]


def test_a_message_group_that_is_not_stopped_cannot_be_resumed(rig: Rig) -> None:
    stopped(rig)
    for name in ("b", "never seen"):
        assert refusal(rig.run(ask.ResumeMessageGroup("t", "g", name))[0]) == "MESSAGE_NOT_FOUND"


def test_locked_message_groups_are_listed_by_name(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "b1", "b2")
    rig.pop(1)
    rig.pop()
    assert sorted(listed(rig)) == [("a", 0, 1, False, ""), ("b", 0, 2, False, "")]
