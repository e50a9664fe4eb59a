"""The way back from a lease to the retry topic, at once or after a delay.

    leave      the members are in no lease any more
    go_back    one of the two:
    to_retry   the members are entries of the retry topic; FIFO: they wait in their message groups
    back_off   a CheckPoint of kind backoff holds them until its due time (revive.py), then to_retry

The caller has made dead letters of the members that are `exhausted`.
"""

from popmq_server.embedded.rules.delivery import fifo, lease_history
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.state.space import MOVE, entries_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    CheckPoint,
    members_of,
    take_chunks,
    take_runs,
)
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE


def exhausted(ck: CheckPoint, bits: int, max_attempts: int) -> int:
    """The members of `bits` that have no attempt left.

    A run has one number of attempts, since the same commits popped its members.
    """
    return sum(inside << start for run, start, inside in ck.runs_with(bits) if run.attempts >= max_attempts)


def leave(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> None:
    """Removes members from their part; the caller writes a history row for each."""
    tx.hold(ck, bits, -1)
    part = tx.state.leases[(ck.ck_id, sub)]
    left = part.undone & ~bits
    if not left and not sub and part.undone != ck.all_bits:
        lease_history.write(tx, ck, part._replace(undone=bits), sub, lease_history.ACKED)
    tx.set_lease(ck, sub, part._replace(undone=left) if left else None)


def go_back(tx: Tx, ck: CheckPoint, bits: int, delay_ms: int, reason: str, *, uncounted: bool) -> int:
    """Moves members, already out of their lease, on; returns when they are visible again. FIFO: they keep the lock."""
    if delay_ms:
        back_off(tx, ck, bits, tx.now_ms + delay_ms, uncounted, reason)
    else:
        to_retry(tx, ck, bits, reason, uncounted=uncounted)
    return tx.now_ms + delay_ms


def back_off(tx: Tx, ck: CheckPoint, bits: int, due_ms: int, uncounted: bool, reason: str) -> None:
    """Moves members to a new CheckPoint of kind backoff; at its due time they go to the retry topic.

    The old handles lapse, and no client knows the nonce of the new CheckPoint, so no handle names its members.
    """
    tx.room.demand(MOVE, entries_bytes(bits.bit_count()))
    backoff = tx.new_checkpoint(
        (ck.group_id, ck.topic_id),
        BACKOFF,
        bits.bit_count(),
        take_runs(ck, bits, uncounted),
        take_chunks(ck, bits),
        client=ck.client,
        reason=reason,
        message_groups=tuple(ck.message_groups[member] for member in members_of(bits)) if ck.message_groups else (),
    )
    tx.new_lease(backoff, due_ms)


def to_retry(tx: Tx, ck: CheckPoint, bits: int, reason: str, *, uncounted: bool = False, bound: bool = False) -> int:
    """Puts members, already out of their lease, into the retry topic; returns the number of the first entry.

    FIFO: they wait in their message groups instead (0). `bound`: the entries stay tied to their owner's CheckPoint,
    which may take them back.
    """
    if fifo.keeps_order(tx, ck):
        fifo.put_back(tx, ck, bits, reason, 0 if uncounted else bits, bound=bound)
        return 0
    tx.room.demand(MOVE, entries_bytes(bits.bit_count(), reason))
    where, text = (ck.group_id, ck.topic_id), reason.encode()
    places = located(tx, ck, bits)
    first = tx.next("rseq", len(places))
    log, chunks = Log(tx.kv), dict[int, int]()
    for _, _, position, _ in places:
        chunk = log.chunk_of(position)
        chunks[chunk] = chunks.get(chunk, 0) + 1
    for rseq, (run, offset, position, size), member in zip(
        range(first, first + len(places)), places, members_of(bits), strict=True
    ):
        tie = (ck.ck_id, member) if bound else (0, 0)
        value = RQ_VALUE.pack(
            position, size, run.attempts - uncounted, run.queue, offset, run.first_pop_ms or ck.popped_ms, *tie
        )
        tx.kv.put("rq", RQ_KEY.pack(*where, rseq), value + text)
    for chunk, count in chunks.items():
        tx.pin(chunk, count)
    tx.count(where, retry=len(places))
    tx.wake(*where)
    return first
