"""How leases ended: one row for each run of each lease that is over (history_rows.py: how rows are stored).

    hist   T + Q + offset + ck_id + sub → G, how, popped ms, due ms, ended ms, count,
                                          attempt, renewals, renewed ms, back ms, done bits, client, reason

`popmq why` reads them for a message from its place in its queue (why.py). A row with a `sub` speaks of members that
left on their own (released, rejected, split off) and wins over the row of the whole batch. Rows go when retention
passes them. Renewals are told by the lease's own key, which moves with each anyway: `why` knows the last one and how
many there were, and no renewal costs a put.
"""

from collections.abc import Iterable

from popmq_server.delivery import history_rows
from popmq_server.delivery.history_rows import Row
from popmq_server.model.checkpoint import CheckPoint, Lease, Run, members_of
from popmq_server.state.space import MOVE, value_bytes
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import NEVER
from popmq_server.storage.lmdb import Transaction

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

#: For members of a CheckPoint that nobody popped: sent back, or buried by an operator. Their rows tell of no pop.
NO_LEASE = Lease(0, 0)
#: A row speaks of so many offsets at most, so a message's rows begin at most so far before it.
REACH = 4096
#: What a row takes besides its reason.
ROW_BYTES = 128
#: Rows that are looked at for one message.
ROWS_MAX = 50_000


def write(tx: Tx, ck: CheckPoint, lease: Lease, sub: int, how: int, reason: str = "") -> None:
    """The lease of a part is over. Members not in `lease.undone` were done before; those in it ended by `how`."""
    if sub:
        write_members(tx, ck, 1 << sub - 1, lease, how, reason)
        return
    undone = lease.undone
    for run in ck.runs:
        _put(tx, ck, run, run.first, run.length, undone & (1 << run.length) - 1, lease, 0, how, reason)
        undone >>= run.length


def write_members(tx: Tx, ck: CheckPoint, bits: int, lease: Lease, how: int, reason: str, back_ms: int = 0) -> None:
    """Members that left their lease alone, each with a row of its own. `back_ms`: when they are visible again."""
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
    """One row. `undone`: the members of the stretch that were not done when it was written.

    In a store that is all but full no row is written: what a row tells is worth less than the ack that it tells of.
    """
    if not tx.room.take(MOVE, ROW_BYTES + value_bytes(len(reason))):
        return
    row = Row(
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
    tx: Tx, where: tuple[int, int], places: Iterable[tuple[int, int]], how: int, reason: str = "", back_ms: int = 0
) -> None:
    """Something that happened to messages at (queue, offset) under no lease: a row of its own for each."""
    group_id, topic_id = where
    for queue, offset in places:
        row = Row(group_id, offset, 1, tx.next("ck_id"), 0, how, 0, 0, tx.now_ms, 0, "", reason, back_ms=back_ms)
        history_rows.add(tx.kv, topic_id, queue, row)


def rows(kv: Transaction, topic_id: int, queue: int, offset: int) -> list[Row]:
    """The rows that speak of a message, by where they begin."""
    return history_rows.of_message(kv, topic_id, queue, offset, REACH, ROWS_MAX)
