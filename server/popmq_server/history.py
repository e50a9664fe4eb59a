"""How leases ended: one `hist` value for each run of each lease that is over.

    hist   T + Q + first offset + ck_id + sub → G, how, popped ms, due ms, ended ms, count, done bits, client, reason

`popmq why` reads them for a message from its place in its queue. A row with a `sub` speaks of members that left on
their own (released, rejected, split off) and wins over the row of the whole batch. Rows go when retention passes them.
"""

import struct

from popmq_server.checkpoint import CheckPoint, Lease, members_of
from popmq_server.storage.keys import HIST_KEY
from popmq_server.tx import Tx

ACKED, EXPIRED, RELEASED, REJECTED, DEAD, SENT_BACK = 1, 2, 3, 4, 5, 6
HOW_NAMES = {
    ACKED: "acked",
    EXPIRED: "expired",
    RELEASED: "released",
    REJECTED: "rejected",
    DEAD: "dead",
    SENT_BACK: "sent back",
}

#: G, how, popped ms, due ms, ended ms, count; then done bits, then client, NUL, reason.
HEAD = struct.Struct(">IBQQQH")


def write(tx: Tx, ck: CheckPoint, lease: Lease, sub: int, how: int, reason: str = "") -> None:
    """The lease of a part is over. Members not in `lease.undone` were done before; those in it ended by `how`."""
    if sub:
        write_members(tx, ck, 1 << sub - 1, lease.due_ms, how, reason)
        return
    undone = lease.undone
    for run in ck.runs:
        _put(tx, ck, run.queue, run.first, run.length, undone & (1 << run.length) - 1, lease.due_ms, 0, how, reason)
        undone >>= run.length


def write_members(tx: Tx, ck: CheckPoint, bits: int, due_ms: int, how: int, reason: str) -> None:
    """Members that left their lease alone, each with a row of its own."""
    for run, start, inside in ck.runs_with(bits):
        for place in members_of(inside):
            _put(tx, ck, run.queue, run.first + place, 1, how != ACKED, due_ms, start + place + 1, how, reason)


def _put(
    tx: Tx,
    ck: CheckPoint,
    queue: int,
    first: int,
    count: int,
    undone: int,
    due_ms: int,
    sub: int,
    how: int,
    reason: str,
) -> None:
    """One row. `undone`: the members of the stretch that were not done when it was written."""
    done = ((1 << count) - 1 ^ undone).to_bytes((count + 7) // 8, "little")
    head = HEAD.pack(ck.group_id, how, ck.popped_ms, due_ms, tx.now_ms, count)
    tx.kv.put(
        "hist",
        HIST_KEY.pack(ck.topic_id, queue, first, ck.ck_id, sub),
        b"".join((head, done, f"{ck.client}\0{reason}".encode())),
    )
