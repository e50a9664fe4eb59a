"""How leases ended: one `hist` value for each run of each lease that is over.

    hist   T + Q + first offset + ck_id + sub → G, how, popped ms, due ms, ended ms, count,
                                                attempt, renewals, renewed ms, back ms, done bits, client, reason

`popmq why` reads them for a message from its place in its queue (why.py). A row with a `sub` speaks of members that
left on their own (released, rejected, split off) and wins over the row of the whole batch. Rows go when retention
passes them. Renewals are told by the lease's own key, which moves with each anyway: `why` knows the last one and how
many there were, and no renewal costs a put.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from popmq_server.checkpoint import CheckPoint, Lease, Run, members_of
from popmq_server.storage.keys import HIST_KEY, NEVER, QUEUE_KEY
from popmq_server.storage.lmdb import Transaction
from popmq_server.tx import Tx

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

#: G, how, popped ms, due ms, ended ms, count; then done bits, then client, NUL, reason.
HEAD = struct.Struct(">IBQQQH")
#: Rows whose `how` has this bit have more behind the head: attempt, renewals, renewed ms, back ms.
MORE = struct.Struct(">HHQQ")
_HAS_MORE = 0x80
#: For members of a CheckPoint that nobody popped: sent back, or buried by an operator. Their rows tell of no pop.
NO_LEASE = Lease(0, 0)
#: A row speaks of so many offsets at most, so a message's rows begin at most so far before it.
REACH = 4096
#: Rows that are looked at for one message.
ROWS_MAX = 50_000


class Row(NamedTuple):
    """One row. `done`: a bit for each of `length` offsets from `first` on; the others ended by `how`.

    `popped_ms` 0: it was under no lease. `due_ms`: the lease's last deadline, 0 when it was its owner's. `attempt` 0: a
    row of an older store. `renewed_ms`: the last of `renewals`. `back_ms`: released with a delay until then.
    """

    group_id: int
    first: int
    length: int
    ck_id: int
    sub: int
    how: int
    popped_ms: int
    due_ms: int
    ended_ms: int
    done: int
    client: str
    reason: str
    attempt: int = 0
    renewals: int = 0
    renewed_ms: int = 0
    back_ms: int = 0


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
    """One row. `undone`: the members of the stretch that were not done when it was written."""
    done = ((1 << count) - 1 ^ undone).to_bytes((count + 7) // 8, "little")
    due_ms = lease.due_ms if lease.due_ms < NEVER else 0
    popped_ms = ck.popped_ms if lease.due_ms else 0
    head = HEAD.pack(ck.group_id, how | _HAS_MORE, popped_ms, due_ms, tx.now_ms, count)
    more = MORE.pack(run.attempts, lease.renewals, lease.renewed_ms, back_ms)
    tx.kv.put(
        "hist",
        HIST_KEY.pack(ck.topic_id, run.queue, first, ck.ck_id, sub),
        b"".join((head, more, done, f"{ck.client}\0{reason}".encode())),
    )


def note(
    tx: Tx, where: tuple[int, int], places: Iterable[tuple[int, int]], how: int, reason: str = "", back_ms: int = 0
) -> None:
    """Something that happened to messages at (queue, offset) under no lease: a row of its own for each."""
    group_id, topic_id = where
    more = HEAD.pack(group_id, how | _HAS_MORE, 0, 0, tx.now_ms, 1) + MORE.pack(0, 0, 0, back_ms)
    for queue, offset in places:
        key = HIST_KEY.pack(topic_id, queue, offset, tx.next("ck_id"), 0)
        tx.kv.put("hist", key, more + b"\0\0" + reason.encode())


def read(key: bytes, raw: memoryview | bytes) -> Row:
    """One row, as it was put."""
    _, _, first, ck_id, sub = HIST_KEY.unpack(key)
    group_id, how, popped_ms, due_ms, ended_ms, count = HEAD.unpack_from(raw)
    more, start = (0, 0, 0, 0), HEAD.size
    if how & _HAS_MORE:
        more, start = MORE.unpack_from(raw, start), start + MORE.size
    stop = start + (count + 7) // 8
    done = int.from_bytes(raw[start:stop], "little")
    client, _, reason = bytes(raw[stop:]).decode().partition("\0")
    told = group_id, first, count, ck_id, sub, how & ~_HAS_MORE, popped_ms, due_ms, ended_ms, done
    return Row(*told, client, reason, *more)


def rows(kv: Transaction, topic_id: int, queue: int, offset: int) -> Iterator[Row]:
    """The rows that speak of a message, by where they begin: a walk over at most one batch back."""
    start = HIST_KEY.pack(topic_id, queue, max(0, offset - REACH + 1), 0, 0)
    stop = HIST_KEY.pack(topic_id, queue, offset + 1, 0, 0)
    for seen, (key, value) in enumerate(kv.scan("hist", QUEUE_KEY.pack(topic_id, queue), start)):
        if key >= stop or seen == ROWS_MAX:
            return
        if HIST_KEY.unpack(key)[2] + HEAD.unpack_from(value)[5] > offset:
            yield read(key, value)
