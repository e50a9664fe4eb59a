"""The revive: everything that is due, never early, in pieces that let requests through."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery.revive import REVIVE_MEMBERS_MAX
from tests.engine.rig import MINUTE, SECOND, Rig, numbered, sending


def retries(rig: Rig) -> int:
    return rig.numbers().retry


@pytest.mark.mechanism("S1.53", "D.01", "I.04")
def test_a_lease_comes_back_in_the_millisecond_of_its_deadline(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.pop(invisible_ms=10 * SECOND)
    rig.advance(10 * SECOND - 1)
    assert (retries(rig), rig.numbers().in_flight) == (0, 1)
    rig.advance(1)
    assert (retries(rig), rig.numbers().in_flight) == (1, 0)


def test_the_writer_learns_when_to_wake_up(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.pop(1, invisible_ms=30 * SECOND)
    assert rig.core.next_due_ms == rig.now + 30 * SECOND
    rows = rig.pop(1, invisible_ms=10 * SECOND)
    assert rig.core.next_due_ms == rig.now + 10 * SECOND
    rig.ack(rows)
    assert rig.core.next_due_ms == rig.now + 30 * SECOND
    rig.restart()
    assert rig.core.next_due_ms == rig.now + 30 * SECOND


def test_the_delay_of_each_revived_lease_is_reported(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.pop(1, invisible_ms=10 * SECOND)
    rig.pop(1, invisible_ms=20 * SECOND)
    rig.skip(25 * SECOND)
    assert rig.commit().timed.late_ms == [15 * SECOND, 5 * SECOND]


@pytest.mark.mechanism("S1.37")
def test_leases_are_revived_in_the_order_of_their_deadlines(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    for seconds in (30, 10, 20):
        rig.pop(1, invisible_ms=seconds * SECOND)
    rig.skip(MINUTE)
    rig.settle()
    assert [row.body for row in rig.pop()] == ["b", "c", "a"]


@pytest.mark.mechanism("D.35", "D.38", "I.24")
@pytest.mark.slow
def test_many_equal_deadlines_are_revived_in_pieces_with_requests_between(rig: Rig) -> None:
    messages, queues = 20_000, 10
    rig.topic(queues=queues)
    rig.group()
    rig.topic("other")
    rig.group("h")
    for _ in range(queues):
        rig.send(*numbered("m", messages // queues))
    taken = 0
    while taken < messages:
        taken += len(rig.popped(max_messages=4096, max_bytes=16 << 20).rows)
    rig.skip(MINUTE)
    done = pieces = 0
    while rig.due:
        sent, popped = rig.run(sending("x", topic="other"), ask.Pop("other", "h"))
        assert (sent.first, len(popped.rows)) == (pieces, 1)
        assert 0 < retries(rig) - done <= REVIVE_MEMBERS_MAX
        done, pieces = retries(rig), pieces + 1
    assert (done, rig.numbers().in_flight) == (messages, 0)
    assert pieces >= 20, "a piece is some 10 ms of work"
