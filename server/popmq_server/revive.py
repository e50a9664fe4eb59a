"""The revive: what is due leaves its lease.

One call moves at most REVIVE_MEMBERS_MAX members in the transaction it is given, in the order of their due times; the
writer calls again after the clients' commands, so that a mountain of equal deadlines never holds up a request.

    an undone member of a batch     → retry topic, or the dead-letter topic after its last attempt
    a member in backoff             → retry topic
    an owner's lease                → owner.lapse

A timeout waits no longer than the lease itself did: the backoff table is for releases. Attempts are committed pops, so
what happens after the last one is decided here and in a release, nowhere else. The reference pairs records of pops and
acks after the fact; here the bitmap that an ack sets is the one that the revive reads.
"""

from collections.abc import Hashable

from popmq_server import deadletter, fifo, history, owner, sweep, voids
from popmq_server.checkpoint import BACKOFF, CheckPoint, Lease, members_of
from popmq_server.jobs import POSTPONE_MS, Job, Timed
from popmq_server.lease import exhausted, to_retry
from popmq_server.storage.keys import DUE_KEY, NEVER, SUB_OWNER
from popmq_server.tx import Tx

#: Bounds of one transaction: members that are moved, and leases that they belonged to. A lease costs some 45 µs
#: whatever its size, so a quarter of the members keeps a piece near 10 ms; requests that come meanwhile wait for one.
REVIVE_MEMBERS_MAX = 1000
REVIVE_LEASES_MAX = 250
EXPIRED_REASON = "lease expired"


class Reviving(Job):
    """Moves what is due, up to the bounds. A lease that fails is postponed, and the others do not wait for it."""

    name = "lease"

    def __init__(self) -> None:
        super().__init__()
        self._failed: set[tuple[int, int]] = set()

    def next_ms(self, tx: Tx) -> int | None:
        return next_due_ms(tx)

    def postpone(self, until_ms: int, item: Hashable = None) -> None:
        if isinstance(item, tuple):
            self._failed.add(item)
        else:
            super().postpone(until_ms, item)

    def committed(self) -> None:
        super().committed()
        self._failed.clear()

    def step(self, tx: Tx, did: Timed) -> None:
        for key in self._failed:
            put_off(tx, key, tx.now_ms + POSTPONE_MS)
        left = self.at_most(REVIVE_MEMBERS_MAX)
        for ck_id, sub in _due(tx, self.at_most(REVIVE_LEASES_MAX)):
            part = tx.state.leases.get((ck_id, sub))
            if part is None or part.due_ms > tx.now_ms:
                continue
            did.late_ms.append(tx.now_ms - part.due_ms)
            with self.apart((ck_id, sub)):
                left -= revive(tx, ck_id, sub, part, left)
            if left <= 0:
                break


def put_off(tx: Tx, key: tuple[int, int], due_ms: int) -> None:
    """Looks at a lease that failed again later. It stays leased, and does not block other leases."""
    part = tx.state.leases.get(key)
    if part is not None:
        tx.state.leases[key] = part._replace(due_ms=due_ms)


def next_due_ms(tx: Tx) -> int | None:
    """When the next lease ends, as committed or flushed."""
    first = tx.kv.first("due")
    if first is None:
        return None
    due_ms: int = DUE_KEY.unpack(first[0])[0]
    return due_ms if due_ms < NEVER else None


def revive(tx: Tx, ck_id: int, sub: int, part: Lease, members_max: int) -> int:
    """One lease that is due: an owner's, or a part of a CheckPoint's. How many members moved."""
    if sub == SUB_OWNER:
        return owner.lapse(tx, ck_id, members_max)
    return expire(tx, tx.state.ck[ck_id], sub, part, members_max)


def _due(tx: Tx, leases_max: int) -> list[tuple[int, int]]:
    """Keys of the revive topic whose time has come, soonest first, as committed."""
    found: list[tuple[int, int]] = []
    for key, _ in tx.kv.scan("due"):
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        if due_ms > tx.now_ms or len(found) == leases_max:
            break
        found.append((ck_id, sub))
    return found


def expire(tx: Tx, ck: CheckPoint, sub: int, part: Lease, members_max: int) -> int:
    """The lease of a part ran out: at most `members_max` of its undone members move on; how many did."""
    group = tx.state.groups.get(ck.group_id)
    if group is None or not tx.state.alive(ck.topic_id):
        tx.hold(ck, part.undone, -1)
        tx.set_lease(ck, sub, None)
        return part.undone.bit_count()
    if lost := part.undone & voids.of_checkpoint(tx.state, ck):
        return sweep.drop_members(tx, ck, sub, lost)
    bits = part.undone
    if bits.bit_count() > members_max and not ck.groups:
        bits = sum(1 << member for member in members_of(bits)[:members_max])
    left = part.undone & ~bits
    tx.hold(ck, bits, -1)
    if left and ck.kind != BACKOFF:  # a piece of it: the row of the whole will not tell these from finished ones
        history.write_members(tx, ck, bits, part, history.EXPIRED, "")
    elif ck.kind != BACKOFF:
        history.write(tx, ck, part, sub, history.EXPIRED)
    tx.set_lease(ck, sub, part._replace(undone=left) if left else None)
    if fifo.keeps_order(tx, ck):
        _expire_in_order(tx, ck, bits)
        return bits.bit_count()
    dead = 0 if ck.kind == BACKOFF else exhausted(ck, bits, group.max_attempts)
    if dead:
        deadletter.bury(tx, ck, dead, EXPIRED_REASON)
    if bits & ~dead:
        to_retry(tx, ck, bits & ~dead, ck.reason or EXPIRED_REASON)
    return bits.bit_count()


def _expire_in_order(tx: Tx, ck: CheckPoint, bits: int) -> None:
    """FIFO: members, already out of their lease, wait again at their own offsets.

    The first of each message group in the lease was tried, those behind it get their attempt back. A CheckPoint is
    never expired in pieces here: the second piece would not know who was first.
    """
    reason = ck.reason or EXPIRED_REASON
    if ck.kind == BACKOFF:
        fifo.put_back(tx, ck, bits, reason, bits)
        return
    group = tx.state.groups[ck.group_id]
    tried = fifo.heads(ck, bits | fifo.undone(tx, ck)) & bits
    dead = exhausted(ck, tried, group.max_attempts)
    stopped = dead if group.stop_on_failure else 0
    dead &= ~stopped
    if dead:
        deadletter.bury(tx, ck, dead, reason)
    fifo.put_back(tx, ck, bits & ~dead, reason, tried, stopped=stopped)
