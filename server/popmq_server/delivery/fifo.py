"""FIFO topics: order by message group, not by queue, kept across retries, and one stuck message group stops no other.

    fwait   G + T + message group [8] + offset [8] → where the message lies, attempts, whom it is tied to, stopped

                     Pop                                   Ack: the last one opens the lock
    unread (cq) ───────────────▶ leased, its message group locked ─────────────────▶ done
        │                          │
        │ locked, or others of     │ released or timed out: back at its own offset; what was
        │ its group wait already   │ behind it in the lease goes back as well, uncounted
        ▼                          ▼
      waiting (fwait) ◀────────────┘          a head in backoff keeps the lock
        │
        └──▶ the next Pop takes it when it is its turn: from the front of its message group

A message group is locked while any of its messages is under a lease or in backoff: at most one batch of it is out. A
batch may hold several of them, in order. Reading goes past what cannot be delivered and parks it, so the position moves
on and other message groups are found behind it. `state.lines` remembers which message groups have something waiting and
no lock, in the order in which they became so.

What a pop takes and parks is chosen in fifo_pick.py. Message groups are known by 8 bytes of their hash, which also
gives the queue. Two groups with one hash would share a lock and a line: still in order, only less parallel.

For tokens the lock belongs to (owner, part): later chunks of the part may take more of the group. When the owner's
lease ends its members wait at their own offsets, tied to their CheckPoint. Whoever then takes one of the group tears
all that are tied behind it: the owner could not take them back without overtaking.
"""

import functools
from typing import NamedTuple

from popmq_server.model import fields
from popmq_server.model.checkpoint import CheckPoint, Lease, members_of
from popmq_server.model.records import Subscription
from popmq_server.state.space import MOVE, entries_bytes
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import FWAIT_KEY, FWAIT_VALUE, STAT_KEY, hash8
from popmq_server.storage.table import Table
from popmq_server.topics.log import Log, located

_PLAIN = Subscription()
#: Why a message that nobody has tried comes back.
BEHIND = "the message before it in its message group failed"


class Waiting(NamedTuple):
    """A message that waits for its turn: a pointer into the log."""

    key: bytes
    position: int
    size: int
    attempts: int
    queue: int
    first_pop_ms: int
    bound_ck: int
    bound_member: int
    stopped: int
    reason: str

    @property
    def offset(self) -> int:
        """Its place in its queue, which is its place in its message group too."""
        return int(FWAIT_KEY.unpack(self.key)[3])

    @property
    def message_group(self) -> bytes:
        return bytes(FWAIT_KEY.unpack(self.key)[2])


def waiting_of(key: bytes, value: bytes | memoryview) -> Waiting:
    """An entry of `fwait`."""
    raw = bytes(value)
    position, size, attempts, queue, first_pop_ms, *tie, stopped = FWAIT_VALUE.unpack_from(raw)
    reason = raw[FWAIT_VALUE.size :].decode()
    return Waiting(key, position, size, attempts, queue, first_pop_ms, tie[0], tie[1], stopped, reason)


def prefix_of(where: tuple[int, int], message_group: bytes = b"") -> bytes:
    """What the keys of a group in a topic, or of one message group, begin with."""
    return STAT_KEY.pack(*where) + message_group


def message_group_hash(data: bytes) -> bytes:
    """The message group of stored message bytes, as 8 bytes; a lite topic is one."""
    return _hashed(fields.raw(data, fields.MESSAGE_GROUP) or fields.raw(data, fields.LITE_TOPIC))


@functools.lru_cache(maxsize=65536)
def _hashed(message_group: bytes) -> bytes:
    """Message groups come again and again; a look costs a fifth of the hash."""
    return hash8(message_group.decode())


def keeps_order(tx: Tx, ck: CheckPoint) -> bool:
    """Whether members that come back wait in their message groups: in FIFO topics, unless the group pulls."""
    if not ck.groups:
        return False
    return not tx.state.subscriptions.get((ck.group_id, ck.topic_id), _PLAIN).pulls


def put(tx: Tx, where: tuple[int, int], entry: Waiting) -> None:
    """An entry comes to wait. A group that pulled may have sent a message back twice: then it waits once."""
    if tx.state.subscriptions.get(where, _PLAIN).pulled and tx.kv.get("fwait", entry.key) is not None:
        tx.count(where, start=1)
        return
    value = FWAIT_VALUE.pack(*entry[1:9]) + entry.reason.encode()
    tx.kv.put("fwait", entry.key, value)
    _pin(tx, entry.position, 1)
    _moved(tx, where, entry, 1)


def remove(tx: Tx, where: tuple[int, int], entry: Waiting) -> None:
    """An entry does not wait any more."""
    tx.kv.delete("fwait", entry.key)
    _pin(tx, entry.position, -1)
    _moved(tx, where, entry, -1)


def _pin(tx: Tx, position: int, count: int) -> None:
    """What waits holds its chunk, as a retry entry does."""
    chunk = Log(tx.kv).chunk_of(position)
    if chunk >= 0:
        tx.pin(chunk, count)


def _moved(tx: Tx, where: tuple[int, int], entry: Waiting, count: int) -> None:
    """Counts, and looks whether it is the message group's turn."""
    key = (*where, entry.message_group)
    _add(tx.state.waiting, key, count)
    if entry.bound_ck:
        _add(tx.state.tied, key, count)
    if entry.stopped:
        _note_stop(tx, key, entry, count)
    tx.count(where, waiting=count)
    if tx.state.lines.judge(key) and count > 0:
        tx.wake(*where)


def _note_stop(tx: Tx, key: tuple[int, int, bytes], entry: Waiting, count: int) -> None:
    """A message group may be stopped by more than one of its messages: those of one lease fail apart."""
    left = tuple(one for one in tx.state.stopped.get(key, ()) if one[0] != entry.offset)
    if count > 0:
        left = tuple(sorted((*left, (entry.offset, entry.reason))))
    if left:
        tx.state.stopped[key] = left
    else:
        tx.state.stopped.pop(key)


def _add(table: Table[tuple[int, int, bytes], int], key: tuple[int, int, bytes], count: int) -> None:
    """Moves a count; zero is no entry."""
    left = table.get(key, 0) + count
    if left:
        table[key] = left
    else:
        table.pop(key)


def tear(tx: Tx, where: tuple[int, int], taken: Waiting) -> None:
    """An entry was taken: if it was tied to its owner it is torn, and so are all that are tied behind it."""
    if taken.bound_ck:
        _tear_bit(tx, taken)
    if not tx.state.tied.get((*where, taken.message_group)):
        return
    prefix = prefix_of(where, taken.message_group)
    bound = [
        entry
        for key, value in tx.kv.scan("fwait", prefix, taken.key)
        if (entry := waiting_of(key, value)).bound_ck and key != taken.key
    ]
    for entry in bound:
        _tear_bit(tx, entry)
        loose = entry._replace(bound_ck=0, bound_member=0)
        tx.kv.put("fwait", entry.key, FWAIT_VALUE.pack(*loose[1:9]) + entry.reason.encode())
        _add(tx.state.tied, (*where, taken.message_group), -1)


def _tear_bit(tx: Tx, entry: Waiting) -> None:
    """The CheckPoint that an entry was tied to loses the member."""
    lease = tx.state.leases.get((entry.bound_ck, 0))
    bit = 1 << entry.bound_member
    if lease is None or not lease.released & bit:
        return
    tx.loosen(tx.state.ck[entry.bound_ck].owner_id, -1)
    tx.state.leases[(entry.bound_ck, 0)] = lease._replace(
        undone=lease.undone & ~bit, released=lease.released & ~bit, torn=lease.torn | bit
    )


def put_back(
    tx: Tx, ck: CheckPoint, bits: int, reason: str, tried: int, *, bound: bool = False, stopped: int = 0
) -> None:
    """Members, already out of their lease, wait again at their own offsets.

    `tried`: those whose attempt counts; the others get it back, unless they stay `bound` to their owner's CheckPoint.
    `stopped`: members that stop their message group.
    """
    tx.room.demand(MOVE, entries_bytes(bits.bit_count(), reason))
    where = (ck.group_id, ck.topic_id)
    for (run, offset, position, size), member in zip(located(tx, ck, bits), members_of(bits), strict=True):
        key = FWAIT_KEY.pack(*where, ck.groups[member], offset)
        attempts = run.attempts - (not bound and not tried >> member & 1)
        tie = (ck.ck_id, member) if bound else (0, 0)
        halt = stopped >> member & 1
        first_pop_ms = run.first_pop_ms or ck.popped_ms
        put(tx, where, Waiting(key, position, size, attempts, run.queue, first_pop_ms, *tie, halt, reason))


def take_back(tx: Tx, ck: CheckPoint, bits: int) -> None:
    """Entries of members that are tied to `ck` leave; it has them again, or they are done."""
    where = (ck.group_id, ck.topic_id)
    for (_, offset, _, _), member in zip(located(tx, ck, bits), members_of(bits), strict=True):
        key = FWAIT_KEY.pack(*where, ck.groups[member], offset)
        value = tx.kv.get("fwait", key)
        if value is not None:
            remove(tx, where, waiting_of(key, value))


def parts(tx: Tx, ck: CheckPoint) -> list[tuple[int, Lease]]:
    """(sub, part) of each part of a CheckPoint's lease; mostly there is one."""
    if ck.ck_id not in tx.state.subs and (whole := tx.state.leases.get((ck.ck_id, 0))):
        return [(0, whole)]
    found = ((sub, tx.state.leases.get((ck.ck_id, sub))) for sub in range(ck.members + 1))
    return [(sub, part) for sub, part in found if part is not None]


def undone(tx: Tx, ck: CheckPoint) -> int:
    """All members of a CheckPoint that are not done, in whatever part of its lease."""
    return sum(part.undone for _, part in parts(tx, ck))


def heads(ck: CheckPoint, among: int) -> int:
    """The first member of each message group in `among`: the one that was tried."""
    found, seen = 0, set()
    for member in members_of(among):
        if ck.groups[member] not in seen:
            seen.add(ck.groups[member])
            found |= 1 << member
    return found


def followers(ck: CheckPoint, among: int, failed: int) -> int:
    """Those of `among` that come behind a member of `failed` in its message group."""
    first: dict[bytes, int] = {}
    for member in members_of(failed):
        first.setdefault(ck.groups[member], member)
    return sum(1 << member for member in members_of(among) if first.get(ck.groups[member], member) < member)


def stopped(tx: Tx, where: tuple[int, int], message_group: bytes) -> list[Waiting]:
    """The entries that stop a message group, the first of them first; others of it may wait in front of them."""
    keys = (
        FWAIT_KEY.pack(*where, message_group, offset) for offset, _ in tx.state.stopped.get((*where, message_group), ())
    )
    return [waiting_of(key, value) for key in keys if (value := tx.kv.get("fwait", key)) is not None]


def front(tx: Tx, where: tuple[int, int], message_group: bytes) -> Waiting | None:
    """The first waiting entry of a message group."""
    found = tx.kv.first("fwait", prefix_of(where, message_group))
    return None if found is None else waiting_of(*found)
