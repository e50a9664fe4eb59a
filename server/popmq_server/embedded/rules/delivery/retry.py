"""The way back from a lease to the retry topic, at once or after a delay.

    go_back    one of the two:
    to_retry   the members are entries of the retry topic; FIFO: they wait in their message groups
    back_off   a CheckPoint of kind backoff holds them until its due time (revive.py), then to_retry

The caller has made dead letters of the members that have no attempt left.
"""

from collections.abc import Collection
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import fifo
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.chunk import pin, pin_records
from popmq_server.embedded.rules.topics.log import located
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.space import MOVE, entries_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    CheckPoint,
    Lease,
    Run,
    members_of,
    take_chunks,
    take_runs,
)
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE
from popmq_server.values.ids import GroupTopic

#: All members of a CheckPoint, as bits.
ALL = -1


def go_back(tx: Tx, ck: CheckPoint, bits: int, delay_ms: int, reason: str, *, uncounted: bool, snoozed: int = 0) -> int:
    """Moves members, already out of their lease, on; returns when they are visible again. FIFO: they keep the lock.

    `snoozed`: SNOOZED_ONCE if they were snoozed, else 0.
    """
    if delay_ms:
        back_off(tx, ck, bits, tx.now_ms + delay_ms, uncounted, reason, snoozed)
    else:
        to_retry(tx, ck, bits, reason, tried=0 if uncounted else ALL, snoozed=snoozed)
    return tx.now_ms + delay_ms


def back_off(tx: Tx, ck: CheckPoint, bits: int, due_ms: int, uncounted: bool, reason: str, snoozed: int = 0) -> None:
    """Moves members to a new CheckPoint of kind backoff; at its due time they go to the retry topic.

    The old handles lapse, and no client knows the nonce of the new CheckPoint, so no handle names its members.
    """
    tx.room.demand(MOVE, entries_bytes(bits.bit_count()))
    backoff = leases.new_checkpoint(
        tx,
        (ck.group_id, ck.topic_id),
        BACKOFF,
        bits.bit_count(),
        take_runs(ck, bits, uncounted, snoozed),
        take_chunks(ck, bits),
        client=ck.client,
        reason=reason,
        message_groups=tuple(ck.message_groups[member] for member in members_of(bits)) if ck.message_groups else (),
    )
    leases.begin(tx, backoff, due_ms)


def to_retry(
    tx: Tx,
    ck: CheckPoint,
    bits: int,
    reason: str,
    *,
    tried: int = ALL,
    bound: bool = False,
    stopped: int = 0,
    followers: int = 0,
    snoozed: int = 0,
) -> int:
    """Puts members, already out of their lease, into the retry topic; returns the number of the first entry.

    FIFO: they wait in their message groups instead (0); `stopped` and `followers` as in `fifo.put_back`. `tried`:
    members whose attempt counts; outside FIFO topics all, or 0. `bound`: the entries stay tied to their owner's
    CheckPoint, which may take them back. `snoozed`: added to the past of each.
    """
    if fifo.keeps_order(tx, ck):
        fifo.put_back(tx, ck, bits, reason, tried, bound=bound, stopped=stopped, followers=followers, snoozed=snoozed)
        return 0
    tx.room.demand(MOVE, entries_bytes(bits.bit_count(), reason))
    where, text = (ck.group_id, ck.topic_id), reason.encode()
    entries = list[tuple[int, bytes]]()
    for member, run, offset, position, size in located(tx.kv, ck, bits):
        tie = (ck.ck_id, member) if bound else (0, 0)
        past = (run.past or ck.popped_ms) + snoozed
        if run.attempts < 1 and not tried:
            broken("attempts_counted", checkpoint=ck.ck_id, member=member, attempts=run.attempts)
        value = RQ_VALUE.pack(position, size, run.attempts - (not tried), run.queue, offset, past, *tie)
        entries.append((position, value + text))
    first = put(tx, where, entries)
    tx.wake(*where)
    return first


# ── Entries of the retry topic: the database `rq` is written here only ───────────────────────────────────────────────


class RetryEntry(NamedTuple):
    """An entry of the retry topic: a pointer into the log."""

    key: bytes
    position: int
    size: int
    attempts: int
    queue: int
    offset: int
    past: int
    bound_ck: int
    bound_member: int

    def as_run(self, attempts: int) -> Run:
        """As a member of a CheckPoint."""
        return Run(self.queue, self.offset, 1, attempts, self.position, self.size, self.past)


def put(tx: Tx, where: GroupTopic, entries: list[tuple[int, bytes]]) -> int:
    """Adds entries, each with the position of its record, and pins the chunks; returns the number of the first."""
    pin_records(tx, [position for position, _ in entries], 1)
    first = tx.next("rseq", len(entries))
    for rseq, (_, value) in enumerate(entries, first):
        tx.kv.put("rq", RQ_KEY.pack(*where, rseq), value)
    readers.count(tx, where, retry=len(entries))
    return first


def remove(tx: Tx, where: GroupTopic, entries: Collection[tuple[bytes, int]], **counted: int) -> None:
    """Removes entries, each a key and the position of its record. `counted`: other counters that change with them."""
    for key, _ in entries:
        if not tx.kv.delete("rq", key):
            broken("retry_entry_was_there", ("rq", key))
    pin_records(tx, [position for _, position in entries], -1)
    readers.count(tx, where, retry=-len(entries), **counted)


def take(tx: Tx, where: GroupTopic, entries: Collection[RetryEntry]) -> None:
    """Removes entries that are popped; an owner to which one was tied loses the member (`torn`).

    `attempts` counts the earlier deliveries; the next CheckPoint continues from it.
    """
    remove(tx, where, [entry[:2] for entry in entries])
    end = tx.state.counters[""].rseq
    for entry in entries:
        if RQ_KEY.unpack(entry.key)[2] >= end:
            broken("retry_number_given", ("rq", entry.key), next=end)
        if entry.bound_ck:
            leases.tear(tx, entry.bound_ck, entry.bound_member)


def take_back(tx: Tx, ck: CheckPoint, part: Lease) -> None:
    """Removes the retry entries (FIFO: waiting entries) of all members that are still released."""
    if not part.released:
        return
    if ck.message_groups:
        fifo.take_back(tx, ck, part.released)
        leases.loosen(tx, ck.owner_id, -part.released.bit_count())
        return
    where = (ck.group_id, ck.topic_id)
    for rank, member in enumerate(members_of(part.released_at)):
        key = RQ_KEY.pack(*where, part.released_first + rank)
        if part.released >> member & 1 and not tx.kv.delete("rq", key):
            broken("released_is_in_the_retry_topic", ("rq", key), checkpoint=ck.ck_id, member=member)
    for chunk, count in ck.by_chunk(part.released).items():
        pin(tx, chunk, -count)
    leases.loosen(tx, ck.owner_id, -part.released.bit_count())
    readers.count(tx, where, retry=-part.released.bit_count())
