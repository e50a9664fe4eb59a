"""What a group has lost by a reset, before it is removed.

    ResetOffsets ──▶ positions move, a Void is noted         one transaction, however much the group holds
                     │
                     ├─ from here on: no handle of it is good, no pop takes it, no lease of it comes back
                     ▼
                 sweep.py removes it, in pieces; counters go with it

A Void names leases and retry entries by the numbers that were given out until then, so what comes later is not in it.
A switch from PULL to POP notes one as well: for copies that were sent back of messages that were not committed, since
the queue will deliver these.

What a group is to read again comes from its queue, so what it held of it is dropped. A redriven message may be in no
queue any more: its chunk had gone before. It is void like the rest until the sweep comes to it, which puts it back into
the retry topic instead of dropping it (`staying`), unless the group was moved past its place.
"""

from popmq_server.model.checkpoint import CheckPoint, members_of
from popmq_server.model.records import Sweep
from popmq_server.state.state import State
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import U32
from popmq_server.topics.log import is_readable

_NONE = Sweep()


def of_checkpoint(state: State, ck: CheckPoint) -> int:
    """The members of a CheckPoint that are void, as bits."""
    found = 0
    for void in state.sweeps.get((ck.group_id, ck.topic_id), _NONE).voids:
        if ck.ck_id >= void.ck_id:
            continue
        for run, start, inside in ck.runs_with(ck.all_bits):
            if void.covers(run.queue, run.first + run.length - 1):
                below = max(0, void.bounds[run.queue] - run.first)
                found |= (inside >> below << below) << start
    return found


def has_entry(state: State, where: tuple[int, int], rseq: int, queue: int, offset: int) -> bool:
    """Whether an entry of a retry topic, of the message at `offset` of `queue`, is void."""
    return any(rseq < void.rseq and void.covers(queue, offset) for void in state.sweeps.get(where, _NONE).voids)


def begin(state: State, where: tuple[int, int]) -> bytes:
    """From which key on a retry topic may have entries that are not void.

    A sweep takes seconds to come to the last void entry. Until then pops go on where one of them has come to, or each
    would step over all of them.
    """
    noted, key = state.void_begins.get(where, (None, b""))
    return key if noted is not None and noted == state.sweeps.get(where, _NONE).voids else b""


def begin_behind(state: State, where: tuple[int, int], key: bytes) -> None:
    """All entries up to this one are void; that stays so until the sweep has removed them, or another reset came."""
    state.void_begins[where] = state.sweeps.get(where, _NONE).voids, key + b"\0"


def stays(tx: Tx, where: tuple[int, int], queue: int, offset: int) -> bool:
    """Whether a void message is kept: redriven, in no queue any more, and not passed by where the group was moved.

    Only chunks of redriven messages may outlive the place of a message: topics without one need no look.
    """
    if tx.kv.first("bare", U32.pack(where[1])) is None:
        return False
    covering = [void for void in tx.state.sweeps.get(where, _NONE).voids if void.covers(queue, offset)]
    return all(void.keeps(queue, offset) for void in covering) and not is_readable(tx.kv, where[1], queue, offset)


def staying(tx: Tx, ck: CheckPoint, bits: int) -> int:
    """Those of void members that are kept, as bits."""
    found, where = 0, (ck.group_id, ck.topic_id)
    for run, start, inside in ck.runs_with(bits):
        for place in members_of(inside):
            if run.size and stays(tx, where, run.queue, run.first + place):
                found |= 1 << start + place
    return found


def hides(state: State, where: tuple[int, int]) -> bool:
    """Whether pops of a group in a topic find nothing until its message groups stand in order."""
    return state.sweeps.get(where, _NONE).hides
