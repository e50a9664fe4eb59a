"""FIFO topics: order within each message group, also across retries; a blocked message group blocks no other.

    fwait   G + T + message group [8] + offset [8] → position of the message, attempts, tie to a CheckPoint, stopped

                     Pop                                   Ack: the last one releases the lock
    unread (cq) ───────────────▶ leased, its message group locked ─────────────────▶ done
        │                          │
        │ locked, or others of     │ lease over: back at its own offset; members after
        │ its group wait already   │ it in the lease go back as well, uncounted
        ▼                          ▼
      waiting (fwait) ◀────────────┘          a head in backoff keeps the lock
        │
        └──▶ the next Pop takes it when its message group is ready, from the front of the group

A message group is locked while any of its messages is under a lease or in backoff, so at most one batch of it is leased
at a time. A batch may hold several of its messages, in order. A pop puts messages that it cannot deliver yet among the
waiting ones, so the position moves past them and the pop finds other message groups after them. `state.ready_groups`
keeps the ready message groups, those with waiting messages and no lock or stop, in the order in which they became
ready.

fifo_pick.py chooses the messages to take and to let wait. The broker identifies a message group by 8 bytes of its
hash, which also gives the queue. Two message groups with one hash share a lock and a place among the ready ones: they
keep their order, but are less parallel.

For tokens the lock belongs to (owner, part): later chunks of the part may take more of the message group. When the
owner's lease ends, its members wait at their own offsets, tied to their CheckPoint. A pop that then takes a message of
the group tears all tied members after it: if the owner took them back, it would get them out of order.

See docs/decisions/0026-fifo-by-message-group.md.
"""

import functools
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.chunk import pin_records
from popmq_server.embedded.rules.topics.log import located
from popmq_server.embedded.state import leases, ready_groups
from popmq_server.embedded.state.space import MOVE, entries_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint, Run
from popmq_server.embedded.store.keys import FWAIT_KEY, FWAIT_VALUE, STAT_KEY
from popmq_server.values import fields
from popmq_server.values.ids import GroupTopic
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import Subscription

_PLAIN = Subscription()
#: The reason of a message that waits again although no client has processed it.
FOLLOWER = "the message before it in its message group failed"


class Waiting(NamedTuple):
    """A waiting message: a pointer into the log."""

    key: bytes
    position: int
    size: int
    attempts: int
    queue: int
    past: int
    bound_ck: int
    bound_member: int
    stopped: int
    reason: str

    @property
    def offset(self) -> int:
        """The offset in the queue, which also gives the order in the message group."""
        return int(FWAIT_KEY.unpack(self.key)[3])

    def as_run(self, attempts: int) -> Run:
        """As a member of a CheckPoint."""
        return Run(self.queue, self.offset, 1, attempts, self.position, self.size, self.past)

    @property
    def message_group(self) -> bytes:
        return bytes(FWAIT_KEY.unpack(self.key)[2])


def waiting_of(key: bytes, value: bytes | memoryview) -> Waiting:
    """Decodes an entry of `fwait`."""
    raw = bytes(value)
    position, size, attempts, queue, past, *tie, stopped = FWAIT_VALUE.unpack_from(raw)
    reason = raw[FWAIT_VALUE.size :].decode()
    return Waiting(key, position, size, attempts, queue, past, tie[0], tie[1], stopped, reason)


def prefix_of(where: GroupTopic, message_group: bytes = b"") -> bytes:
    """The key prefix of a group in a topic, or of one message group."""
    return STAT_KEY.pack(*where) + message_group


def message_group_hash(data: bytes) -> bytes:
    """The message group of a stored message, as 8 bytes of its hash; a lite topic is one message group."""
    return _hashed(fields.raw(data, fields.MESSAGE_GROUP) or fields.raw(data, fields.LITE_TOPIC))


@functools.lru_cache(maxsize=65536)
def _hashed(message_group: bytes) -> bytes:
    """The hash from a cache: message groups repeat, and a hit costs a fifth of a hash."""
    return hash8(message_group.decode())


def keeps_order(tx: Tx, ck: CheckPoint) -> bool:
    """Whether returned members wait in their message groups: in FIFO topics, unless the group pulls."""
    if not ck.message_groups:
        return False
    return not tx.state.subscriptions.get((ck.group_id, ck.topic_id), _PLAIN).pulls


def put(tx: Tx, where: GroupTopic, entry: Waiting) -> None:
    """Adds a waiting entry. A group that pulled may have sent a message back twice: the message then waits once."""
    if tx.kv.get("fwait", entry.key) is not None:
        if not tx.state.subscriptions.get(where, _PLAIN).pulled:
            broken("message_waits_once", ("fwait", entry.key))
        readers.count(tx, where, start=1)
        return
    value = FWAIT_VALUE.pack(*entry[1:9]) + entry.reason.encode()
    tx.kv.put("fwait", entry.key, value)
    pin_records(tx, (entry.position,), 1)
    _moved(tx, where, entry, 1)


def remove(tx: Tx, where: GroupTopic, entry: Waiting) -> None:
    """Removes a waiting entry."""
    if not tx.kv.delete("fwait", entry.key):
        broken("waiting_entry_was_there", ("fwait", entry.key))
    pin_records(tx, (entry.position,), -1)
    _moved(tx, where, entry, -1)


def _moved(tx: Tx, where: GroupTopic, entry: Waiting, count: int) -> None:
    """Updates the counters of the message group; wakes a Pop when the entry makes the group ready."""
    key = (*where, entry.message_group)
    stop = (entry.offset, entry.reason) if entry.stopped else None
    ready_groups.count_waiting(tx.state, key, count, tied=bool(entry.bound_ck), stop=stop)
    readers.count(tx, where, waiting=count)
    if tx.state.ready_groups.judge(key) and count > 0:
        tx.wake(*where)


def tear(tx: Tx, where: GroupTopic, taken: Waiting) -> None:
    """Tears a taken entry from its owner's CheckPoint, and all tied entries of the message group after it."""
    if taken.bound_ck:
        leases.tear(tx, taken.bound_ck, taken.bound_member)
    if not tx.state.tied.get((*where, taken.message_group)):
        return
    prefix = prefix_of(where, taken.message_group)
    bound = [
        entry
        for key, value in tx.kv.scan("fwait", prefix, taken.key)
        if (entry := waiting_of(key, value)).bound_ck and key != taken.key
    ]
    for entry in bound:
        leases.tear(tx, entry.bound_ck, entry.bound_member)
        loose = entry._replace(bound_ck=0, bound_member=0)
        tx.kv.put("fwait", entry.key, FWAIT_VALUE.pack(*loose[1:9]) + entry.reason.encode())
        ready_groups.untie(tx.state, (*where, taken.message_group))


def put_back(
    tx: Tx,
    ck: CheckPoint,
    bits: int,
    reason: str,
    tried: int,
    *,
    bound: bool = False,
    stopped: int = 0,
    followers: int = 0,
    snoozed: int = 0,
) -> None:
    """Puts members, already out of their lease, back to wait at their own offsets.

    `tried`: members whose attempt counts; the others get it back, unless they stay `bound` to their owner's CheckPoint.
    `stopped`: members that stop their message group. `followers`: members whose reason is FOLLOWER. `snoozed`: as in
    `retry.to_retry`.
    """
    tx.room.demand(MOVE, entries_bytes(bits.bit_count(), max(reason, FOLLOWER if followers else "", key=len)))
    where = (ck.group_id, ck.topic_id)
    for member, run, offset, position, size in located(tx.kv, ck, bits):
        key = FWAIT_KEY.pack(*where, ck.message_groups[member], offset)
        attempts = run.attempts - (not bound and not tried >> member & 1)
        if attempts < 0:
            broken("attempts_counted", checkpoint=ck.ck_id, member=member, attempts=attempts)
        tie = (ck.ck_id, member) if bound else (0, 0)
        halt = stopped >> member & 1
        past = (run.past or ck.popped_ms) + (0 if followers >> member & 1 else snoozed)
        why = FOLLOWER if followers >> member & 1 else reason
        put(tx, where, Waiting(key, position, size, attempts, run.queue, past, *tie, halt, why))


def take_back(tx: Tx, ck: CheckPoint, bits: int) -> None:
    """Removes the waiting entries of members of `ck`: they return to its lease, or are done."""
    where = (ck.group_id, ck.topic_id)
    for member, _, offset, _, _ in located(tx.kv, ck, bits):
        key = FWAIT_KEY.pack(*where, ck.message_groups[member], offset)
        value = tx.kv.get("fwait", key)
        if value is None:
            broken("released_waits_in_its_message_group", ("fwait", key), checkpoint=ck.ck_id, member=member)
        remove(tx, where, waiting_of(key, value))


def stopped(tx: Tx, where: GroupTopic, message_group: bytes) -> list[Waiting]:
    """The entries that stop a message group, by offset; other entries of it may wait before them."""
    keys = (
        FWAIT_KEY.pack(*where, message_group, offset) for offset, _ in tx.state.stopped.get((*where, message_group), ())
    )
    return [waiting_of(key, value) for key in keys if (value := tx.kv.get("fwait", key)) is not None]


def front(tx: Tx, where: GroupTopic, message_group: bytes) -> Waiting | None:
    """The first waiting entry of a message group."""
    found = tx.kv.first("fwait", prefix_of(where, message_group))
    return None if found is None else waiting_of(*found)
