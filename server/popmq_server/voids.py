"""What a group has lost by a reset, before it is removed.

    ResetOffsets ──▶ positions move, a Void is noted         one transaction, however much the group holds
                     │
                     ├─ from here on: no handle of it is good, no pop takes it, no lease of it comes back
                     ▼
                 sweep.py removes it, in pieces; counters go with it

A Void names leases and retry entries by the numbers that were given out until then, so what comes later is not in it.
A switch from PULL to POP notes one as well: for copies that were sent back of messages that were not committed, since
the queue will deliver these.
"""

from popmq_server.checkpoint import CheckPoint
from popmq_server.records import Sweep
from popmq_server.state import State

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


def hides(state: State, where: tuple[int, int]) -> bool:
    """Whether pops of a group in a topic find nothing until its message groups stand in order."""
    return state.sweeps.get(where, _NONE).hides
