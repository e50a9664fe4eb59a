"""Sweeps: what a reset or a switch of the consume mode leaves to do for a group in a topic, in bounded pieces.

    voids        leases, retry entries and waiting messages that a reset took away      → removed       (invalidated.py)
    to_retry     POP → PULL: what is leased, and what waits in a message group           → retry topic
    to_lines     PULL → POP of a FIFO topic: retry entries                               → wait in their message group

The command that begins a sweep does its first piece, its caller asks for the others before it is answered, and what a
crash left over is taken up by housekeeping. Between two pieces everything holds: what is void has no effect already,
what is leased can be acked until it has moved, and pops of a FIFO topic find nothing until its order is made (`hides`).

What is removed lowers the number of messages that the group has to account for: `start` of its counters goes up.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

from popmq_server.delivery import fifo, history, invalidated
from popmq_server.delivery.fifo import Waiting
from popmq_server.delivery.lease import to_retry
from popmq_server.delivery.pick import unpin_retry
from popmq_server.model.checkpoint import BACKOFF, CheckPoint, Lease, Run, members_of
from popmq_server.model.records import Held, Sweep, Void
from popmq_server.state.checkpoints import DONE
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import FWAIT_KEY, RQ_KEY, RQ_VALUE, STAT_KEY, U32
from popmq_server.topics import quarantine
from popmq_server.topics.log import Log

T = TypeVar("T")

#: Members and entries that one piece moves or removes; whole CheckPoints, so it may be one of them more.
SWEEP_MAX = 1000
#: A lease costs as much as so many members, however few it has.
LEASE_COST = 4
#: Retry entries that one piece looks at.
LOOK_MAX = 10_000
SWITCHED = "the group pulls now"
MOVED = "the group was moved"


def void(tx: Tx, where: tuple[int, int], bounds: tuple[int, ...], stays: tuple[int, ...] = ()) -> None:
    """From now on the group has nothing of messages at or above the bounds: no lease, no retry, nothing that waits.

    Owners lose theirs at once: a sealed set never grows again, its token tells them as torn. `stays`: what no queue has
    any more is kept from these offsets on (records.Void).
    """
    state, stat = tx.state, tx.state.stat[where]
    if not (stat.retry or stat.waiting or any(state.held.get(where, Held()))):
        return
    now, sweep = state.counters[""], state.sweeps.get(where, Sweep())
    clear = sweep.clear_lines or stat.waiting > 0
    state.walked.pop(where)
    noted = (*sweep.voids, Void(now.ck_id, now.rseq, bounds, stays))
    state.sweeps[where] = sweep._replace(voids=noted, looked_at=0, clear_lines=clear)
    for key, token in state.tokens.items():
        ck = state.ck.get(token.ck_id) if key[:2] == where else None
        if ck is not None:
            bound = _disown(tx, ck, invalidated.of_checkpoint(state, ck))
            kept = _keep(tx, ck, bound)
            tx.count(where, start=(bound & ~kept).bit_count())


def _keep(tx: Tx, ck: CheckPoint, bits: int) -> int:
    """Those of void members, already out of their lease, that are kept: they go to the retry topic."""
    kept = invalidated.staying(tx, ck, bits)
    if kept:
        to_retry(tx, ck, kept, ck.reason or MOVED)
    lost = ck.runs_with(bits & ~kept)
    places = [(run.queue, run.first + place) for run, _, inside in lost if run.size for place in members_of(inside)]
    _tell_dropped(tx, (ck.group_id, ck.topic_id), places)
    return kept


def _tell_dropped(tx: Tx, where: tuple[int, int], places: list[tuple[int, int]]) -> None:
    """Redriven messages may have been among these: that the group gave them up is told nowhere else."""
    if places and tx.kv.first("bare", U32.pack(where[1])) is not None:
        history.note(tx, where, places, history.RELEASED, MOVED)


def _disown(tx: Tx, ck: CheckPoint, bits: int) -> int:
    """An owner loses members for good; those of them that were under its lease."""
    part = tx.state.leases[(ck.ck_id, 0)]
    bits &= part.undone
    bound, loose = bits & ~part.released, bits & part.released
    tx.hold(ck, bound, -1)
    tx.loosen(ck.owner_id, -loose.bit_count())
    left = part._replace(undone=part.undone & ~bits, released=part.released & ~bits, torn=part.torn | bits)
    tx.set_lease(ck, 0, left)
    return bound


def drop_members(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> int:
    """Removes void members of one part of a lease; how many."""
    part = tx.state.leases[(ck.ck_id, sub)]
    tx.hold(ck, bits, -1)
    kept = _keep(tx, ck, bits)
    if kept and ck.kind != BACKOFF:
        history.write_members(tx, ck, kept, part, history.RELEASED, MOVED)
    tx.count((ck.group_id, ck.topic_id), start=(bits & ~kept).bit_count())
    left = part.undone & ~bits
    tx.set_lease(ck, sub, part._replace(undone=left) if left else None)
    return bits.bit_count()


def step(tx: Tx, where: tuple[int, int]) -> bool:
    """One piece; whether something is left."""
    found = tx.state.sweeps.get(where)
    if found is None:
        return False
    if where[0] not in tx.state.groups or where[1] not in tx.state.topics:  # purge.py removes what is there
        tx.state.sweeps.pop(where)
        return False
    left = _Piece(tx, where, found).run()
    if left == Sweep():
        tx.state.sweeps.pop(where)
        tx.state.void_begins.pop(where, None)
        tx.state.walked.pop(where)
        tx.wake(*where)
    else:
        tx.state.sweeps[where] = left
    return left != Sweep()


class _Piece:
    """One piece. Each method does what `left` allows, and says whether nothing more of its kind is there."""

    def __init__(self, tx: Tx, where: tuple[int, int], sweep: Sweep) -> None:
        self.tx = tx
        self.where = where
        self.sweep = sweep
        self.left = SWEEP_MAX
        self.looked_at = sweep.looked_at

    def run(self) -> Sweep:
        """Void things first: nothing of them may be moved. What remains to be done."""
        sweep = self.sweep
        if sweep.clear_lines and self.clear_lines():
            sweep = sweep._replace(clear_lines=False)
        if sweep.voids and not sweep.clear_lines and self.drop_leases() and self.drop_retries():
            sweep = sweep._replace(voids=())
            self.tx.state.walked.pop(self.where)
        if sweep.to_retry and not sweep.voids and self.leased_to_retry() and self.waiting_to_retry():
            sweep = sweep._replace(to_retry=False)
        if sweep.to_lines and not sweep.voids and self.retry_to_lines():
            sweep = sweep._replace(to_lines=False)
        return sweep._replace(looked_at=self.looked_at if sweep.voids else 0)

    def _leases(self) -> Iterator[tuple[CheckPoint, int, Lease]]:
        """The parts of leases of the group in the topic: a piece of a walk over all, until `left` is used up."""
        state, where = self.tx.state, self.where
        found, after = state.ck.of(lambda *pair: pair == where, state.walked.get(where, 0))
        for ck_id in found:
            state.walked[where] = ck_id
            if self.left <= 0:
                return
            ck = state.ck[ck_id]
            yield from ((ck, sub, part) for sub, part in fifo.parts(self.tx, ck))
        state.walked[where] = after

    def _walked(self) -> bool:
        """Whether the walk over leases has come to its end; where nothing is held it needs none."""
        state = self.tx.state
        if state.walked.get(self.where, 0) == DONE:
            return True
        held = any(state.held.get(self.where, Held()))
        if not held and not any(key[:2] == self.where for key in state.tokens):
            state.walked[self.where] = DONE
        return state.walked.get(self.where, 0) == DONE

    def drop_leases(self) -> bool:
        """Void members leave their leases."""
        for ck, sub, part in () if self._walked() else self._leases():
            bits = part.undone & invalidated.of_checkpoint(self.tx.state, ck)
            if bits and not ck.owner_id:
                self.left -= max(LEASE_COST, drop_members(self.tx, ck, sub, bits))
        return self._walked()

    def drop_retries(self) -> bool:
        """Void entries leave the retry topic."""
        tx, stop = self.tx, max(void.rseq for void in self.sweep.voids)
        stale: list[tuple[bytes, int]] = []
        places: list[tuple[int, int]] = []
        done, first = True, RQ_KEY.pack(*self.where, self.looked_at)
        for seen, (key, value) in enumerate(tx.kv.scan("rq", first[:8], first)):
            rseq = RQ_KEY.unpack(key)[2]
            if rseq >= stop:
                break
            if seen == LOOK_MAX or len(stale) >= self.left:
                done = False
                break
            self.looked_at = rseq + 1
            position, _, _, queue, offset, *_ = RQ_VALUE.unpack_from(value)
            void = invalidated.has_entry(tx.state, self.where, rseq, queue, offset)
            if void and not invalidated.stays(tx, self.where, queue, offset):
                stale.append((key, position))
                places.append((queue, offset))
        _tell_dropped(tx, self.where, places)
        for key, position in stale:
            tx.kv.delete("rq", key)
            unpin_retry(tx, position)
        tx.count(self.where, retry=-len(stale), start=len(stale))
        self.left -= len(stale)
        return done

    def clear_lines(self) -> bool:
        """Void messages do not wait any more. Pops find nothing meanwhile, so none of them came later."""
        found, done = self._waiting(
            lambda entry: (
                any(noted.covers(entry.queue, entry.offset) for noted in self.sweep.voids)
                and not invalidated.stays(self.tx, self.where, entry.queue, entry.offset)
            )
        )
        _tell_dropped(self.tx, self.where, [(entry.queue, entry.offset) for entry in found])
        for entry in found:
            fifo.remove(self.tx, self.where, entry)
        self.tx.count(self.where, start=len(found))
        return done

    def leased_to_retry(self) -> bool:
        """What is leased goes to the retry topic, with the attempts it had.

        What is in backoff stays there until its time; in FIFO topics it goes too, or it would come behind those that
        wait for it.
        """
        for ck, sub, part in () if self._walked() else self._leases():
            bits = part.undone & ~part.released
            if not part.undone or (ck.kind == BACKOFF and not ck.groups):
                continue
            if ck.owner_id:
                _disown(self.tx, ck, part.undone)
            else:
                self.tx.hold(ck, bits, -1)
                if ck.kind != BACKOFF:
                    history.write(self.tx, ck, part, sub, history.RELEASED, SWITCHED)
                self.tx.set_lease(ck, sub, None)
            if bits:
                to_retry(self.tx, ck, bits, ck.reason or SWITCHED)
            self.left -= max(LEASE_COST, bits.bit_count())
        return self._walked()

    def waiting_to_retry(self) -> bool:
        """What waits for its turn in a message group goes to the retry topic, in the order of the group.

        Owners have lost theirs before, so what was tied is not any more.
        """
        if not self.tx.state.stat[self.where].waiting:
            return True
        found, done = self._waiting(lambda entry: True)
        for entry in found:
            fifo.remove(self.tx, self.where, entry)
        for reason, alike in itertools.groupby(found, key=lambda entry: entry.reason):
            members = _pointing_at(self.tx, self.where, list(alike))
            to_retry(self.tx, members, members.all_bits, reason)
        return done

    def _waiting(self, wanted: Callable[[Waiting], bool]) -> tuple[list[Waiting], bool]:
        """As many waiting entries as may be taken now, and whether these are all."""
        scan = (fifo.waiting_of(key, value) for key, value in self.tx.kv.scan("fwait", fifo.prefix_of(self.where)))
        return self._allowed(filter(wanted, scan))

    def _allowed(self, found: Iterator[T]) -> tuple[list[T], bool]:
        """As many as may be taken now, and whether these are all."""
        allowed = max(0, self.left)
        taken = list(itertools.islice(found, allowed + 1))
        self.left -= min(len(taken), allowed)
        return taken[:allowed], len(taken) <= allowed

    def retry_to_lines(self) -> bool:
        """Entries of the retry topic go to wait in their message groups: pops of FIFO topics look nowhere else."""
        scan = self.tx.kv.scan("rq", STAT_KEY.pack(*self.where))
        found, done = self._allowed((key, bytes(value)) for key, value in scan)
        for key, value in found:
            self._to_line(key, value)
        return done

    def _to_line(self, key: bytes, value: bytes) -> None:
        """One entry; what cannot be read leaves too, counted, or it would stop its message group for ever."""
        tx, log = self.tx, Log(self.tx.kv)
        position, size, attempts, queue, offset, first_pop_ms, *_ = RQ_VALUE.unpack_from(value)
        read, gone = log.fetch(self.where[1], position, size), log.chunk_of(position) < 0
        tx.kv.delete("rq", key)
        unpin_retry(tx, position)
        tx.count(self.where, retry=-1)
        if read is not None:
            place = FWAIT_KEY.pack(*self.where, fifo.message_group_hash(read[1]), offset)
            reason = value[RQ_VALUE.size :].decode()
            fifo.put(tx, self.where, Waiting(place, position, size, attempts, queue, first_pop_ms, 0, 0, 0, reason))
        elif gone:
            tx.count(self.where, expired=1)
        else:
            quarantine.set_aside(tx, *self.where, queue, offset, position, size)


def _pointing_at(tx: Tx, where: tuple[int, int], entries: list[Waiting]) -> CheckPoint:
    """Entries as the members of a CheckPoint that is never stored."""
    log = Log(tx.kv)
    runs = tuple(
        Run(entry.queue, entry.offset, 1, entry.attempts, entry.position, entry.size, entry.first_pop_ms)
        for entry in entries
    )
    chunks = tuple((place, log.chunk_of(entry.position)) for place, entry in enumerate(entries))
    return CheckPoint(0, *where, BACKOFF, 0, 0, 0, "", "", "", runs, len(runs), chunks)
