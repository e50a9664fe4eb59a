"""Void messages: a reset took them from a group, and the sweep has not removed them yet.

    ResetOffsets ──▶ positions move, a Void is recorded      one transaction, for any number of leases
                     │
                     ├─ from here on: handles of void messages lapse, no pop takes them, no ended lease returns them
                     ▼
                 sweep.py removes them in pieces and adjusts the counters

A Void covers the leases and retry entries whose numbers were allocated before it, so later ones are not part of it.
A switch from PULL to POP records one as well: the queue delivers messages that were not committed, so copies of them
that clients sent back are void.

The group reads its messages again from the queue, so the sweep drops the leases and entries that it held. A redriven
message may be in no queue any more, because retention dropped its chunk. It is void until the sweep reaches it; the
sweep then returns it to the retry topic (`staying`), unless the reset moved the group past it.

See docs/decisions/0035-resets-in-two-steps.md.
"""

from popmq_server.embedded.rules.topics.log import is_readable
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint, members_of
from popmq_server.embedded.store.keys import U32
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import SweepWork

_NONE = SweepWork()


def of_checkpoint(state: State, ck: CheckPoint) -> int:
    """The void members of a CheckPoint, as bits."""
    found = 0
    for void in state.sweeps.get((ck.group_id, ck.topic_id), _NONE).voids:
        if ck.ck_id >= void.ck_id:
            continue
        for run, start, inside in ck.runs_with(ck.all_bits):
            if void.covers(run.queue, run.first + run.span - 1):
                below = max(0, void.bounds[run.queue] - run.first)
                if run.bits:
                    below = (run.bits & (1 << below) - 1).bit_count()
                found |= (inside >> below << below) << start
    return found


def has_entry(state: State, where: GroupTopic, rseq: int, queue: int, offset: int) -> bool:
    """Whether the retry entry `rseq`, which points to the message at `offset` of `queue`, is void."""
    return any(rseq < void.rseq and void.covers(queue, offset) for void in state.sweeps.get(where, _NONE).voids)


def begin(state: State, where: GroupTopic) -> bytes:
    """The key from which a retry topic may have entries that are not void.

    A sweep takes seconds to reach the last void entry. Until then each pop starts where an earlier one stopped, so
    that it does not scan all void entries again.
    """
    noted, key = state.void_begins.get(where, (None, b""))
    return key if noted is not None and noted == state.sweeps.get(where, _NONE).voids else b""


def begin_after(state: State, where: GroupTopic, key: bytes) -> None:
    """Records that all entries up to this one are void; valid until the sweep has removed them or another reset."""
    state.void_begins[where] = state.sweeps.get(where, _NONE).voids, key + b"\0"


def end(state: State, where: GroupTopic) -> None:
    """Forgets where void entries end: the sweep has removed them."""
    state.void_begins.pop(where, None)


def stays(tx: Tx, where: GroupTopic, queue: int, offset: int) -> bool:
    """Whether a void message is kept: its queue does not have it any more, and no reset moved the group past it.

    Only chunks of redriven messages can outlive the queue entries of their messages, so other topics are not checked.
    """
    if next(tx.kv.scan_keys("bare", U32.pack(where[1])), None) is None:
        return False
    covering = [void for void in tx.state.sweeps.get(where, _NONE).voids if void.covers(queue, offset)]
    return all(void.keeps(queue, offset) for void in covering) and not is_readable(tx.kv, where[1], queue, offset)


def staying(tx: Tx, ck: CheckPoint, bits: int) -> int:
    """The void members in `bits` that are kept, as bits."""
    found, where = 0, (ck.group_id, ck.topic_id)
    for run, start, inside in ck.runs_with(bits):
        for place in members_of(inside):
            if run.size and stays(tx, where, run.queue, run.first + place):
                found |= 1 << start + place
    return found


def hides(state: State, where: GroupTopic) -> bool:
    """Whether pops of a group in a topic return nothing because a sweep is rebuilding the order of message groups."""
    return state.sweeps.get(where, _NONE).hides
