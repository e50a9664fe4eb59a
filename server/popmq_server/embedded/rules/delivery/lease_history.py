"""Lease history: one row for each run of each lease that has ended (history_rows.py stores them).

    hist   T + Q + offset + ck_id + sub → G, how, popped ms, due ms, ended ms, count,
                                          attempt, renewals, renewed ms, back ms, done bits, client, reason

`popmq why` reads the rows of a message by its queue and offset (why.py). A row with a `sub` covers a member that left
its lease alone (released, rejected, split off) and takes precedence over the row of the batch. Retention drops rows
together with their messages. The lease itself counts its renewals and keeps the time of the last one: each renewal
rewrites the lease's key anyway, so it needs no put of its own.
"""

from collections.abc import Iterable

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


def leave(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> None:
    """Members leave their part of a lease; the caller writes a row for each."""
    part = tx.state.leases[(ck.ck_id, sub)]
    if not leases.end(tx, ck, sub, part, bits) and not sub and part.undone != ck.all_bits:
        write(tx, ck, part._replace(undone=bits), sub, ACKED)


def write_ended(
    tx: Tx, ck: CheckPoint, sub: int, part: Lease, bits: int, left: int, how: int, reason: str = ""
) -> None:
    """Writes the rows of members that left their part of a lease together. `left`: those that stay, as bits.

    When others stay, each gets a row of its own: the later row of the batch cannot tell them from done members.
    """
    if ck.kind == BACKOFF:
        return
    if left:
        write_members(tx, ck, bits, part, how, reason)
    else:
        write(tx, ck, part, sub, how, reason)


def write(tx: Tx, ck: CheckPoint, lease: Lease, sub: int, how: int, reason: str = "") -> None:
    """Writes the rows of a part whose lease ended: `how` for members in `lease.undone`, done for the others."""
    if sub:
        write_members(tx, ck, 1 << sub - 1, lease, how, reason)
        return
    undone = lease.undone
    for run in ck.runs:
        _put(tx, ck, run, run.first, run.length, undone & (1 << run.length) - 1, lease, 0, how, reason)
        undone >>= run.length


def write_members(tx: Tx, ck: CheckPoint, bits: int, lease: Lease, how: int, reason: str, back_ms: int = 0) -> None:
    """Writes one row for each member that left its lease alone. `back_ms`: when it becomes visible again."""
    for run, start, inside in ck.runs_with(bits):
        for place in members_of(inside):
            first, sub = run.first + place, start + place + 1
            _put(tx, ck, run, first, 1, how != ACKED, lease, sub, how, reason, back_ms)


def _put(
    tx: Tx,
    ck: CheckPoint,
    run: Run,
    first: int,
    count: int,
    undone: int,
    lease: Lease,
    sub: int,
    how: int,
    reason: str,
    back_ms: int = 0,
) -> None:
    """Writes one row. `undone`: bits of the members that were not done.

    Writes nothing when the store is almost full: the ack itself is worth more than its history.
    """
    if not tx.room.take(MOVE, ROW_BYTES + value_bytes(len(reason))):
        return
    row = HistoryRow(
        ck.group_id,
        first,
        count,
        ck.ck_id,
        sub,
        how,
        popped_ms=ck.popped_ms if lease.due_ms else 0,
        due_ms=lease.due_ms if lease.due_ms < NEVER else 0,
        ended_ms=tx.now_ms,
        done=(1 << count) - 1 ^ undone,
        client=ck.client,
        reason=reason,
        attempt=run.attempts,
        renewals=lease.renewals,
        renewed_ms=lease.renewed_ms,
        back_ms=back_ms,
    )
    history_rows.add(tx.kv, ck.topic_id, run.queue, row)


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
