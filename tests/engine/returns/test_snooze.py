"""Snooze: a message is put back and no attempt counts, as often as the group's `snoozes_max` allows."""

from typing import Any

from popmq_server.contract import commands as ask
from tests.engine.lives import has, life
from tests.engine.rig import HOUR, MINUTE, SECOND, Delivery, Rig, refusals
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo


def snooze(rig: Rig, rows: list[Delivery], delay_ms: int | None = 0, reason: str = "") -> list[Any]:
    return rig.release(rows, delay_ms=delay_ms, reason=reason, snooze=True)


def popped(rig: Rig) -> tuple[Delivery, int]:
    """The one message that comes, and its attempt."""
    (row,) = rig.pop()
    return row, row.attempt


def test_a_snoozed_message_comes_after_its_delay_with_the_same_attempt(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rig.send("a")
    row, _ = popped(rig)
    assert snooze(rig, [row], 5 * MINUTE) == [(rig.now + 5 * MINUTE, False)]
    assert refusals(rig.ack([row])) == ["HANDLE_LAPSED"]
    rig.advance(5 * MINUTE - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert popped(rig)[1] == 1
    assert (rig.numbers().in_flight, rig.numbers().dead, rig.findings()) == (1, 0, [])


def test_a_message_that_was_snoozed_too_often_counts_attempts_and_says_why(rig: Rig) -> None:
    rig.pair(max_attempts=2, snoozes_max=3)
    rig.send("a")
    for _ in range(3):
        row, attempt = popped(rig)
        assert (attempt, snooze(rig, [row])) == (1, [(rig.now, False)])
    row, attempt = popped(rig)
    assert (attempt, snooze(rig, [row], reason="the bank is closed")) == (1, [(rig.now, False)])
    row, attempt = popped(rig)
    assert (attempt, snooze(rig, [row], reason="still closed")) == (2, [(rig.now, True)])
    (letter,) = rig.dead()
    assert letter.dead_letter.reason == "snoozed 3 times, as often as its group allows: still closed"
    assert (letter.dead_letter.attempts, rig.findings()) == (2, [])


def test_a_dead_letter_of_a_snoozed_message_tells_its_first_pop(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    first_ms = rig.now
    snooze(rig, rig.pop(), SECOND)
    rig.advance(SECOND)
    rig.reject(rig.pop())
    assert rig.dead()[0].dead_letter.first_pop_ms == first_ms


def test_the_count_survives_a_backoff_a_failed_attempt_an_expired_lease_and_a_crash(rig: Rig) -> None:
    rig.pair(snoozes_max=2)
    rig.send("a")
    snooze(rig, rig.pop(), SECOND)
    rig.crash()
    rig.advance(SECOND)
    rig.release(rig.pop(), delay_ms=SECOND)
    rig.advance(SECOND)
    assert popped(rig)[1] == 2
    rig.advance(MINUTE)
    rig.restart()
    snooze(rig, rig.pop())
    row, attempt = popped(rig)
    assert attempt == 3
    snooze(rig, [row])
    assert popped(rig)[1] == 4


def test_messages_of_one_request_are_snoozed_each_by_its_own_count(rig: Rig) -> None:
    rig.pair(snoozes_max=1)
    rig.send("a")
    snooze(rig, rig.pop())
    rig.send("b")
    snooze(rig, rig.pop())
    assert sorted((row.body, row.attempt) for row in rig.pop()) == [("a", 2), ("b", 1)]


def test_a_snooze_without_a_reason_is_told_as_such(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    snooze(rig, rig.pop(), HOUR)
    assert [(event.what, event.reason) for event in life(rig).events[-1:]] == [("released", "snoozed")]
    has(rig, "released with a delay", "snoozed")


def test_a_settle_snoozes_by_the_same_rule(rig: Rig) -> None:
    rig.pair(snoozes_max=1, max_attempts=1)
    rig.send("a")
    for dead in (0, 1):
        row, attempt = popped(rig)
        assert attempt == 1
        rig.do(ask.Settle("g", (), (ask.Change(row.handle, "release", 0, snooze=True),)))
        assert rig.numbers().dead == dead


def test_a_group_of_an_earlier_release_has_the_default(rig: Rig) -> None:
    assert rig.group().snoozes_max == 1_000
    assert rig.do(ask.UpdateGroup("g", {"snoozes_max": 5})).snoozes_max == 5
    assert rig.do(ask.UpdateGroup("g", {"snoozes_max": None})).snoozes_max == 1_000


# ── FIFO ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_snoozed_head_holds_its_message_group_back_and_no_other(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1)
    send_fifo(rig, "a1", "a2", "b1")
    rows = {row.body: row for row in rig.pop()}
    snooze(rig, [rows["a1"]], MINUTE)
    assert refusals(rig.ack([rows["a2"], rows["b1"]])) == ["HANDLE_LAPSED", ""]
    send_fifo(rig, "a3", "b2")
    assert [row.body for row in rig.pop()] == ["b2"]
    rig.advance(MINUTE)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 1), ("a2", 1), ("a3", 1)]
    assert rig.findings() == []


def test_only_the_head_of_a_message_group_is_counted_as_snoozed(rig: Rig) -> None:
    fifo_pair(rig, snoozes_max=1)
    send_fifo(rig, "a1", "a2")
    snooze(rig, rig.pop())
    rig.ack(rig.pop(1))
    snooze(rig, rig.pop())
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a2", 1)]


def test_a_message_group_that_is_resumed_may_be_snoozed_again(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1, snoozes_max=1, stop_on_failure=True)
    send_fifo(rig, "a1")
    for _ in range(2):
        snooze(rig, rig.pop())
    assert rig.pop() == []
    rig.do(ask.ResumeMessageGroup("t", "g", "a"))
    snooze(rig, rig.pop())
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 1)]
