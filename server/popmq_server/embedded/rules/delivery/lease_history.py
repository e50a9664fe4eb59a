"""Lease history: one row for each run of each lease that has ended (history_rows.py stores them).

    hist   T + Q + offset + ck_id + sub → G, how, popped ms, due ms, ended ms, count,
                                          attempt, renewals, renewed ms, back ms, done bits, client, reason

`popmq why` reads the rows of a message by its queue and offset (why.py). A row with a `sub` covers a member that left
its lease alone (released, rejected, split off) and takes precedence over the row of the batch. Retention drops rows
together with their messages. The lease itself counts its renewals and keeps the time of the last one: each renewal
rewrites the lease's key anyway, so it needs no put of its own.
"""

from collections.abc import Iterable
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.space import MOVE, value_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    CheckPoint,
    Lease,
    Run,
    members_of,
)
from popmq_server.embedded.store.history_rows import HistoryRow
from popmq_server.embedded.store.keys import NEVER
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.ids import GroupTopic

ACKED, EXPIRED, RELEASED, REJECTED, DEAD, SENT_BACK, REDRIVEN = 1, 2, 3, 4, 5, 6, 7
HOW_NAMES = {
    ACKED: "acked",
    EXPIRED: "expired",
    RELEASED: "released",
    REJECTED: "rejected",
    DEAD: "dead",
    SENT_BACK: "sent back",
    REDRIVEN: "redriven",
}

#: The reason in the row of a discard, which is DEAD and of no lease: releases that know no discard show it as it is.
DISCARDED_REASON = "discarded: it is not delivered again"

#: The lease of members that no Pop leased: messages sent back, or made dead letters by an operator.
NO_LEASE = Lease(0, 0)
#: A row covers at most this many offsets, so a message's rows begin at most this far before it.
REACH = 4096
#: Size of a row, without its reason.
ROW_BYTES = 128
#: Rows and blocks that one lookup reads at most.
ROWS_MAX = 50_000


class Span(NamedTuple):
    """The place of one row: `length` offsets of a queue from `first` on; if `covers` is not 0, those of its bits.

    `undone`: bits of those not done.
    """

    run: Run
    first: int
    length: int
    sub: int
    undone: int
    covers: int = 0


def leave(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> None:
    """Members leave their part of a lease; the caller writes a row for each."""
    part = tx.state.leases[(ck.ck_id, sub)]
    if not leases.end(tx, ck, sub, part, bits) and not sub and part.undone != ck.all_bits:
        write(tx, ck, part._replace(undone=bits), sub, ACKED)


def leave_together(tx: Tx, ck: CheckPoint, sub: int, part: Lease, bits: int, how: int, reason: str = "") -> None:
    """Members leave their part of a lease for one reason, with their rows.

    When others stay, each gets a row of its own: the later row of the batch cannot tell them from done members. The end
    of a backoff has no row: no client had these members.
    """
    left = leases.end(tx, ck, sub, part, bits)
    if ck.kind == BACKOFF:
        return
    spans = _one_by_one(ck, bits, how) if left or sub else _by_run(ck, part.undone)
    _put(tx, ck, spans, part, how, reason)


def write(tx: Tx, ck: CheckPoint, lease: Lease, sub: int, how: int, reason: str = "") -> None:
    """Writes the rows of a part whose lease ended: `how` for members in `lease.undone`, done for the others."""
    spans = _one_by_one(ck, 1 << sub - 1, how) if sub else _by_run(ck, lease.undone)
    _put(tx, ck, spans, lease, how, reason)


def write_members(tx: Tx, ck: CheckPoint, bits: int, lease: Lease, how: int, reason: str, back_ms: int = 0) -> None:
    """Writes one row for each member that left its lease alone. `back_ms`: when it becomes visible again."""
    _put(tx, ck, _one_by_one(ck, bits, how), lease, how, reason, back_ms)


def _by_run(ck: CheckPoint, undone: int) -> list[Span]:
    """One row for each run of a CheckPoint."""
    found = []
    for run in ck.runs:
        inside = undone & (1 << run.length) - 1
        found.append(Span(run, run.first, run.span, 0, run.places(inside), run.bits))
        undone >>= run.length
    return found


def _one_by_one(ck: CheckPoint, bits: int, how: int) -> list[Span]:
    """One row for each member of `bits`."""
    return [
        Span(run, run.offset(place), 1, start + place + 1, how != ACKED)
        for run, start, inside in ck.runs_with(bits)
        for place in members_of(inside)
    ]


def _put(tx: Tx, ck: CheckPoint, spans: Iterable[Span], lease: Lease, how: int, reason: str, back_ms: int = 0) -> None:
    """Writes rows; none when the store is almost full: the ack itself is worth more than its history."""
    alike, before = list[HistoryRow](), (-1, 0)
    popped_ms, due_ms = ck.popped_ms if lease.due_ms else 0, lease.due_ms if lease.due_ms < NEVER else 0
    times, texts, renewed = (popped_ms, due_ms, tx.now_ms), (ck.client, reason), (lease.renewals, lease.renewed_ms)
    for run, first, length, sub, undone, covers in spans:
        if not tx.room.take(MOVE, ROW_BYTES + value_bytes(len(reason))):
            continue
        if alike and not (before[0] == run.queue and before[1] <= first):
            _add(tx, ck.topic_id, before[0], alike)
            alike = []
        before = run.queue, first
        if undone >> length or length < 1:
            broken("history_row_of_its_members", checkpoint=ck.ck_id, first=first, length=length, undone=undone)
        place, done = (ck.group_id, first, length, ck.ck_id, sub), (covers or (1 << length) - 1) ^ undone
        alike.append(HistoryRow(*place, how, *times, done, *texts, run.attempts, *renewed, back_ms, covers))
    if alike:
        _add(tx, ck.topic_id, before[0], alike)


def _add(tx: Tx, topic_id: int, queue: int, rows: list[HistoryRow]) -> None:
    """Adds rows of one queue, whose offsets ascend: neighbours share a block, and so a put."""
    if len(rows) == 1:
        history_rows.add(tx.kv, topic_id, queue, rows[0])
    else:
        history_rows.add_all(tx.kv, topic_id, queue, rows)


def note(
    tx: Tx, where: GroupTopic, places: Iterable[tuple[int, int]], how: int, reason: str = "", back_ms: int = 0
) -> None:
    """Writes one row for each message at (queue, offset) to which something happened outside a lease."""
    group_id, topic_id = where
    for queue, offset in places:
        row = HistoryRow(group_id, offset, 1, tx.next("ck_id"), 0, how, 0, 0, tx.now_ms, 0, "", reason, back_ms=back_ms)
        history_rows.add(tx.kv, topic_id, queue, row)


def is_discard(row: HistoryRow) -> bool:
    """Whether a row tells that a dead letter was discarded. The row of a new dead letter has a `sub`."""
    return row.how == DEAD and not row.sub


def rows(kv: Transaction, topic_id: int, queue: int, offset: int) -> list[HistoryRow]:
    """The rows that cover a message, in the order of their first offsets."""
    return history_rows.of_message(kv, topic_id, queue, offset, REACH, ROWS_MAX)
