"""How leases ended: one row for each run of each lease that is over, and one for each member that left alone."""

from __future__ import annotations

from typing import NamedTuple

from popmq_server import revive
from popmq_server.history import ACKED, DEAD, EXPIRED, HEAD, RELEASED
from popmq_server.storage.keys import HIST_KEY
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, numbered


class Row(NamedTuple):
    """A decoded `hist` value."""

    queue: int
    first: int
    sub: int
    how: int
    popped_ms: int
    due_ms: int
    ended_ms: int
    done: list[bool]
    client: str
    reason: str


def rows(rig: Rig) -> list[Row]:
    found = []
    for key, value in rig.read("hist"):
        _, queue, first, _, sub = HIST_KEY.unpack(key)
        _, how, popped_ms, due_ms, ended_ms, count = HEAD.unpack_from(value)
        stop = HEAD.size + (count + 7) // 8
        bits = int.from_bytes(value[HEAD.size : stop], "little")
        client, _, reason = value[stop:].decode().partition("\0")
        done = [bool(bits >> place & 1) for place in range(count)]
        found.append(Row(queue, first, sub, how, popped_ms, due_ms, ended_ms, done, client, reason))
    return found


def test_a_batch_that_was_acked_is_one_row(rig: Rig) -> None:
    rig.pair()
    rig.send(*numbered("m", 20))
    popped = rig.pop(client_id="c")
    start = rig.now
    rig.skip(SECOND)
    rig.ack(popped[:7])
    rig.ack(popped[7:])
    assert rows(rig) == [Row(0, 0, 0, ACKED, start, start + MINUTE, rig.now, [True] * 20, "c", "")]


def test_a_batch_from_two_queues_is_a_row_for_each(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.send("a", "b")
    rig.send("c")
    rig.ack(rig.pop())
    assert [(row.queue, row.first, row.done) for row in rows(rig)] == [(0, 0, [True] * 2), (1, 0, [True])]


def test_a_lease_that_ran_out_tells_what_was_done_before(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rig.ack(rig.pop()[1:2])
    rig.advance(MINUTE)
    assert [(row.how, row.done) for row in rows(rig)] == [(EXPIRED, [False, True, False])]


def test_a_member_that_was_released_has_a_row_of_its_own_with_the_reason(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    popped = rig.pop(client_id="c")
    rig.release(popped[1:], delay_ms=0, reason="no luck")
    rig.ack(popped[:1])
    told = [(row.first, row.sub, row.how, row.done, row.reason) for row in rows(rig)]
    assert (1, 2, RELEASED, [False], "no luck") in told
    assert (0, 0, ACKED, [True, True], "") in told  # the row of the member wins


def test_a_member_that_was_extended_alone_has_a_row_of_its_own(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    popped = rig.pop()
    rig.extend(popped[:1], HOUR)
    rig.advance(MINUTE)
    rig.ack(popped[:1])
    told = [(row.first, row.sub, row.how, row.done) for row in rows(rig)]
    assert told == [(0, 0, EXPIRED, [True, False]), (0, 1, ACKED, [True])]


def test_a_dead_letter_has_a_row_that_says_so(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rig.send("a", "b")
    rig.reject(rig.pop(1), reason="poison")
    rig.pop(1)
    rig.advance(MINUTE)
    told = {(row.first, row.how, row.reason) for row in rows(rig)}
    assert {(0, DEAD, "poison"), (1, DEAD, "lease expired")} <= told


def test_every_lease_of_a_message_is_there(rig: Rig) -> None:
    rig.pair(max_attempts=3)
    rig.send("a")
    for _ in range(3):
        rig.pop()
        rig.advance(MINUTE)
    assert [(row.sub, row.how) for row in rows(rig)] == [(0, EXPIRED), (0, EXPIRED), (0, EXPIRED), (1, DEAD)]


def test_a_large_batch_that_is_revived_in_pieces_is_not_told_as_acked(rig: Rig) -> None:
    rig.pair()
    count = revive.REVIVE_MEMBERS_MAX * 2 + 500
    rig.send(*numbered("m", count))
    rig.ack(rig.pop(count)[:1])
    rig.advance(MINUTE)
    expired: set[int] = set()
    for row in rows(rig):
        assert row.how == EXPIRED
        if row.sub:
            expired.add(row.first)
        else:
            expired |= {row.first + place for place, done in enumerate(row.done) if not done}
    assert expired == set(range(1, count))
