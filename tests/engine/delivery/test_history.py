"""How leases ended: one row for each run of each lease that is over, and one for each member that left alone."""

import struct
from typing import NamedTuple

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import lease_history, revive
from popmq_server.embedded.rules.delivery.lease_history import (
    ACKED,
    DEAD,
    EXPIRED,
    REJECTED,
    RELEASED,
)
from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.keys import HIST_KEY
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, numbered


class Row(NamedTuple):
    """A `hist` value, with its queue and its bits as a list."""

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


def told(rig: Rig) -> list[history_rows.HistoryRow]:
    return [row for _, row in placed(rig)]


def placed(rig: Rig) -> list[tuple[int, history_rows.HistoryRow]]:
    """(queue, row), by queue and offset."""
    found = [(HIST_KEY.unpack(key)[1], row) for key, value in rig.read("hist") for row in history_rows.read(key, value)]
    return sorted(found, key=lambda pair: (pair[0], pair[1].first, pair[1].ck_id, pair[1].sub))


def rows(rig: Rig) -> list[Row]:
    found = []
    for queue, row in placed(rig):
        done = [bool(row.done >> place & 1) for place in range(row.length)]
        times = row.popped_ms, row.due_ms, row.ended_ms
        found.append(Row(queue, row.first, row.sub, row.how, *times, done, row.client, row.reason))
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


def test_the_history_of_an_ended_lease_has_the_acks_before_its_end(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rig.ack(rig.pop()[1:2])
    rig.advance(MINUTE)
    assert [(row.how, row.done) for row in rows(rig)] == [(EXPIRED, [False, True, False])]


def test_the_history_of_a_lease_that_a_reset_ended_has_the_acks_before_it(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rig.ack(rig.pop()[1:2])
    rig.do(ask.ResetOffsets("t", "g", ("EARLIEST", 0)))
    rig.settle()
    assert [(row.how, row.done, row.reason) for row in rows(rig)] == [
        (RELEASED, [False, True, False], "the group was moved")
    ]


def test_members_that_a_reset_took_out_of_a_lease_are_not_told_as_acked(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.send("a", "b")
    rig.send("c")
    popped = rig.pop()
    rig.do(ask.ResetOffsets("t", "g", offsets={0: 0}))
    rig.settle()
    rig.ack(popped[2:])
    found = [(row.queue, row.first, row.sub, row.how) for row in rows(rig)]
    moved = [(0, 0, 1, RELEASED), (0, 1, 2, RELEASED)]
    assert set(found) == {(0, 0, 0, ACKED), *moved, (1, 0, 0, ACKED)}  # the row of a member wins


def test_a_member_that_was_released_has_a_row_of_its_own_with_the_reason(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    popped = rig.pop(client_id="c")
    rig.release(popped[1:], delay_ms=0, reason="no luck")
    rig.ack(popped[:1])
    found = [(row.first, row.sub, row.how, row.done, row.reason) for row in rows(rig)]
    assert (1, 2, RELEASED, [False], "no luck") in found
    assert (0, 0, ACKED, [True, True], "") in found  # the row of the member wins


def test_a_member_that_was_extended_alone_has_a_row_of_its_own(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    popped = rig.pop()
    rig.extend(popped[:1], HOUR)
    rig.advance(MINUTE)
    rig.ack(popped[:1])
    found = [(row.first, row.sub, row.how, row.done) for row in rows(rig)]
    assert found == [(0, 0, EXPIRED, [True, False]), (0, 1, ACKED, [True])]


def test_a_dead_letter_has_a_row_that_says_so(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rig.send("a", "b")
    rig.reject(rig.pop(1), reason="poison")
    rig.pop(1)
    rig.advance(MINUTE)
    found = {(row.first, row.how, row.reason) for row in rows(rig)}
    assert {(0, REJECTED, "poison"), (1, DEAD, "lease expired")} <= found


def test_every_lease_of_a_message_is_there(rig: Rig) -> None:
    rig.pair(max_attempts=3)
    rig.send("a")
    for _ in range(3):
        rig.pop()
        rig.advance(MINUTE)
    assert [(row.sub, row.how) for row in rows(rig)] == [(0, EXPIRED), (0, EXPIRED), (0, EXPIRED), (1, DEAD)]


@pytest.mark.slow
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


# ── What a row says beside ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_says_which_attempt_it_was(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.pop()
    rig.advance(MINUTE)
    rig.ack(rig.pop())
    assert sorted((row.how, row.attempt) for row in told(rig)) == [(ACKED, 2), (EXPIRED, 1)]


def test_renewals_are_counted_and_the_last_one_is_reported(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    popped = rig.pop()
    rig.skip(10 * SECOND)
    rig.extend(popped, HOUR)
    rig.skip(10 * SECOND)
    rig.extend(popped[:1], 2 * HOUR)
    renewed = rig.now
    rig.restart()
    rig.ack(popped)
    found = sorted((row.sub, row.renewals, row.renewed_ms, row.due_ms) for row in told(rig))
    assert found == [(0, 1, renewed - 10 * SECOND, renewed - 10 * SECOND + HOUR), (1, 2, renewed, renewed + 2 * HOUR)]


def test_a_renewal_writes_no_row(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.extend(rig.pop(), HOUR)
    assert told(rig) == []


def test_a_release_tells_until_when_the_lease_was_and_when_it_comes_back(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    start = rig.now
    popped = rig.pop()
    rig.skip(SECOND)
    rig.release(popped[:1], delay_ms=HOUR)
    rig.release(popped[1:2], delay_ms=0)
    rig.reject(popped[2:])
    found = [(row.how, row.due_ms, row.ended_ms, row.back_ms) for row in told(rig) if row.sub]
    assert found == [
        (RELEASED, start + MINUTE, rig.now, rig.now + HOUR),
        (RELEASED, start + MINUTE, rig.now, 0),
        (REJECTED, start + MINUTE, rig.now, 0),
    ]


def test_the_history_of_an_owners_message_has_no_deadline(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.attach()
    rig.seal(1)
    rig.ack_up_to(1)
    assert [(row.how, row.due_ms) for row in told(rig)] == [(ACKED, 0)]


def test_rows_of_an_older_store_are_read_as_they_are(rig: Rig) -> None:
    head = struct.pack(">IBQQQH", 7, RELEASED, 1, 2, 3, 9)
    rows = history_rows.read(HIST_KEY.pack(1, 2, 40, 5, 6), head + b"\x01\x01" + b"client\0why")
    assert rows == [history_rows.HistoryRow(7, 40, 9, 5, 6, RELEASED, 1, 2, 3, 0x101, "client", "why")]


def test_the_rows_of_a_message_are_found_from_its_place(rig: Rig) -> None:
    rig.pair()
    rig.send(*numbered("m", 4096))
    rig.ack(rig.pop(4096))
    rig.send("last")
    rig.ack(rig.pop())
    topic_id = rig.core.state.ids[("t", "t")]
    with rig.reading() as kv:
        for offset, first in ((0, 0), (4095, 0), (4096, 4096)):
            assert [row.first for row in lease_history.rows(kv, topic_id, 0, offset)] == [first]
        assert list(lease_history.rows(kv, topic_id, 0, 4097)) == []
