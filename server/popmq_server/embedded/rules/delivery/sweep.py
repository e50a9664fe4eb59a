"""Sweeps: finish a reset or a switch of the consume mode for a group in a topic, in bounded pieces.

    voids        leases, retry entries and waiting messages that a reset voided          → removed      (invalidated.py)
    to_retry     POP → PULL: leased messages, and those waiting in a message group       → retry topic
    to_lines     PULL → POP of a FIFO topic: retry entries                               → wait in their message group

The command that begins a sweep does its first piece. Its caller requests the other pieces before it answers, and
housekeeping continues a sweep after a crash. The state is consistent between two pieces: void messages have no effect,
a leased message can be acked until it has moved, and pops of a FIFO topic return nothing until its order is rebuilt
(`hides`).

Removed messages no longer count for the group: the counter `start` grows by their number.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

from popmq_server.embedded.rules.delivery import fifo, invalidated, lease_history, retry
from popmq_server.embedded.rules.delivery.fifo import Waiting
from popmq_server.embedded.rules.delivery.retry import to_retry
from popmq_server.embedded.rules.topics import quarantine, readers
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.checkpoints import DONE
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    CheckPoint,
    Lease,
    Run,
    members_of,
)
from popmq_server.embedded.store.keys import (
    FWAIT_KEY,
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
    U32,
)
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import HeldNumbers, SweepWork, Void

T = TypeVar("T")

#: Members and entries that one piece moves or removes; it takes whole parts of leases, so the last one may exceed it.
SWEEP_MAX = 1000
#: The least that a lease counts towards SWEEP_MAX, in members.
LEASE_COST = 4
#: Retry entries that one piece reads.
LOOK_MAX = 10_000
SWITCHED = "the group pulls now"
MOVED = "the group was moved"


def void(tx: Tx, where: GroupTopic, bounds: tuple[int, ...], stays: tuple[int, ...] = ()) -> None:
    """Voids the group's leases, retry entries and waiting entries of messages at or above the bounds.

    Owners lose such members at once: a sealed set never grows again, and its token reports them as torn. `stays`: from
    these offsets on, messages that no queue has any more are kept (records.Void).
    """
    state, stat = tx.state, tx.state.stat[where]
    if not (stat.retry or stat.waiting or any(state.held.get(where, HeldNumbers()))):
        return
    now, sweep = state.counters[""], state.sweeps.get(where, SweepWork())
    clear = sweep.clear_lines or stat.waiting > 0
    state.walked.pop(where)
    noted = (*sweep.voids, Void(now.ck_id, now.rseq, bounds, stays))
    state.sweeps[where] = sweep._replace(voids=noted, looked_at=0, clear_lines=clear)
    for key, token in state.tokens.items():
        ck = state.ck.get(token.ck_id) if key[:2] == where else None
        if ck is not None:
            bound = _disown(tx, ck, invalidated.of_checkpoint(state, ck))
            kept = _keep(tx, ck, bound)
            readers.count(tx, where, start=(bound & ~kept).bit_count())


def to_pull(tx: Tx, where: GroupTopic) -> None:
    """Moves leased and waiting messages to the retry topic.

    Retry entries that a switch to POP has not yet moved to their message groups stay there.
    """
    left = tx.state.sweeps.get(where, SweepWork())
    tx.state.sweeps[where] = left._replace(to_retry=True, to_lines=False)
    tx.state.walked.pop(where)


def to_pop(tx: Tx, where: GroupTopic, queues: int, in_order: bool) -> None:
    """Voids entries of messages that are not committed: the queue delivers those anyway."""
    left = tx.state.sweeps.get(where, SweepWork())
    if left.to_retry:
        tx.state.sweeps[where] = left._replace(to_retry=False)
    retries, held = tx.state.stat[where].retry, tx.state.held.get(where, HeldNumbers())
    if retries or held.backoff:
        void(tx, where, tuple(tx.state.poff.get((*where, queue), 0) for queue in range(queues)))
    if retries and in_order:
        tx.state.sweeps[where] = tx.state.sweeps[where]._replace(to_lines=True)


def _keep(tx: Tx, ck: CheckPoint, bits: int) -> int:
    """Puts the void members that are kept, already out of their lease, into the retry topic; returns their bits."""
    kept = invalidated.staying(tx, ck, bits)
    if kept:
        to_retry(tx, ck, kept, ck.reason or MOVED)
    lost = ck.runs_with(bits & ~kept)
    places = [(run.queue, run.first + place) for run, _, inside in lost if run.size for place in members_of(inside)]
    _tell_dropped(tx, (ck.group_id, ck.topic_id), places)
    return kept


def _tell_dropped(tx: Tx, where: GroupTopic, places: list[tuple[int, int]]) -> None:
    """Writes history rows in topics with redriven messages: nothing else records that the group lost those."""
    if places and next(tx.kv.scan_keys("bare", U32.pack(where[1])), None) is not None:
        lease_history.note(tx, where, places, lease_history.RELEASED, MOVED)


def _disown(tx: Tx, ck: CheckPoint, bits: int) -> int:
    """Removes members from an owner for good; returns the bits of those that were under its lease."""
    part = tx.state.leases[(ck.ck_id, 0)]
    bits &= part.undone
    bound, loose = bits & ~part.released, bits & part.released
    leases.hold(tx, ck, bound, -1)
    leases.loosen(tx, ck.owner_id, -loose.bit_count())
    left = part._replace(undone=part.undone & ~bits, released=part.released & ~bits, torn=part.torn | bits)
    leases.set_part(tx, ck, 0, left)
    return bound


def drop_members(tx: Tx, ck: CheckPoint, sub: int, bits: int) -> int:
    """Removes void members from one part of a lease; returns their number.

    History tells that they were moved: the message of a member that was acked before may be in no queue any more.
    """
    part = tx.state.leases[(ck.ck_id, sub)]
    lease_history.leave_together(tx, ck, sub, part, bits, lease_history.RELEASED, MOVED)
    kept = _keep(tx, ck, bits)
    readers.count(tx, (ck.group_id, ck.topic_id), start=(bits & ~kept).bit_count())
    return bits.bit_count()


def step(tx: Tx, where: GroupTopic) -> bool:
    """Does one piece; returns whether more is left."""
    sweep = tx.state.sweeps.get(where)
    if sweep is None:
        return False
    if where[0] not in tx.state.groups or where[1] not in tx.state.topics:  # purge.py removes the rest
        tx.state.sweeps.pop(where)
        return False
    left = _Piece(tx, where, sweep).run()
    if left == SweepWork():
        tx.state.sweeps.pop(where)
        invalidated.end(tx.state, where)
        tx.state.walked.pop(where)
        tx.wake(*where)
    else:
        tx.state.sweeps[where] = left
    return left != SweepWork()


class _Piece:
    """One piece. Each method does as much as `left` allows, and returns whether its kind of work is finished."""

    def __init__(self, tx: Tx, where: GroupTopic, sweep: SweepWork) -> None:
        self.tx = tx
        self.where = where
        self.sweep = sweep
        self.left = SWEEP_MAX
        self.looked_at = sweep.looked_at

    def run(self) -> SweepWork:
        """Does the piece, void messages first, since they must not be moved; returns the remaining work."""
        sweep = self.sweep
        if sweep.clear_lines and self.clear_waiting():
            sweep = sweep._replace(clear_lines=False)
        if sweep.voids and not sweep.clear_lines and self.drop_leases() and self.drop_retries():
            sweep = sweep._replace(voids=())
            self.tx.state.walked.pop(self.where)
        if sweep.to_retry and not sweep.voids and self.leased_to_retry() and self.waiting_to_retry():
            sweep = sweep._replace(to_retry=False)
        if sweep.to_lines and not sweep.voids and self.retry_to_waiting():
            sweep = sweep._replace(to_lines=False)
        return sweep._replace(looked_at=self.looked_at if sweep.voids else 0)

    def _leases(self) -> Iterator[tuple[CheckPoint, int, Lease]]:
        """The lease parts of the group in the topic: continues a walk over all CheckPoints until `left` is used up."""
        state, where = self.tx.state, self.where
        found, after = state.ck.of(lambda *pair: pair == where, state.walked.get(where, 0))
        for ck_id in found:
            state.walked[where] = ck_id
            if self.left <= 0:
                return
            ck = state.ck[ck_id]
            yield from ((ck, sub, part) for sub, part in leases.parts(self.tx, ck))
        state.walked[where] = after

    def _walked(self) -> bool:
        """Whether the walk over leases is finished; a group that holds nothing needs none."""
        state = self.tx.state
        if state.walked.get(self.where, 0) == DONE:
            return True
        held = any(state.held.get(self.where, HeldNumbers()))
        if not held and not any(key[:2] == self.where for key in state.tokens):
            state.walked[self.where] = DONE
        return state.walked.get(self.where, 0) == DONE

    def drop_leases(self) -> bool:
        """Removes void members from their leases."""
        for ck, sub, part in () if self._walked() else self._leases():
            bits = part.undone & invalidated.of_checkpoint(self.tx.state, ck)
            if bits and not ck.owner_id:
                self.left -= max(LEASE_COST, drop_members(self.tx, ck, sub, bits))
        return self._walked()

    def drop_retries(self) -> bool:
        """Removes void entries from the retry topic."""
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
        retry.remove(tx, self.where, stale, start=len(stale))
        self.left -= len(stale)
        return done

    def clear_waiting(self) -> bool:
        """Removes void waiting entries. Pops return nothing meanwhile, so they add none during the sweep."""
        found, done = self._waiting(
            lambda entry: (
                any(noted.covers(entry.queue, entry.offset) for noted in self.sweep.voids)
                and not invalidated.stays(self.tx, self.where, entry.queue, entry.offset)
            )
        )
        _tell_dropped(self.tx, self.where, [(entry.queue, entry.offset) for entry in found])
        for entry in found:
            fifo.remove(self.tx, self.where, entry)
        readers.count(self.tx, self.where, start=len(found))
        return done

    def leased_to_retry(self) -> bool:
        """Moves leased messages to the retry topic with their attempts.

        Messages in backoff stay there until their delay ends. In FIFO topics they move too, since they would otherwise
        come after the messages that wait for them.
        """
        for ck, sub, part in () if self._walked() else self._leases():
            bits = part.undone & ~part.released
            if not part.undone or (ck.kind == BACKOFF and not ck.message_groups):
                continue
            if ck.owner_id:
                _disown(self.tx, ck, part.undone)
            else:
                lease_history.leave_together(self.tx, ck, sub, part, bits, lease_history.RELEASED, SWITCHED)
            if bits:
                to_retry(self.tx, ck, bits, ck.reason or SWITCHED)
            self.left -= max(LEASE_COST, bits.bit_count())
        return self._walked()

    def waiting_to_retry(self) -> bool:
        """Moves waiting messages to the retry topic, in the order of their message groups.

        Owners have lost their members before, so no entry is tied any more.
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
        """Returns waiting entries, as many as `left` allows, and whether these are all."""
        scan = (fifo.waiting_of(key, value) for key, value in self.tx.kv.scan("fwait", fifo.prefix_of(self.where)))
        return self._allowed(filter(wanted, scan))

    def _allowed(self, found: Iterator[T]) -> tuple[list[T], bool]:
        """Takes as many items as `left` allows; returns them, and whether these are all."""
        allowed = max(0, self.left)
        taken = list(itertools.islice(found, allowed + 1))
        self.left -= min(len(taken), allowed)
        return taken[:allowed], len(taken) <= allowed

    def retry_to_waiting(self) -> bool:
        """Moves retry entries to wait in their message groups: pops of FIFO topics do not read the retry topic."""
        scan = self.tx.kv.scan("rq", STAT_KEY.pack(*self.where))
        found, done = self._allowed((key, bytes(value)) for key, value in scan)
        for key, value in found:
            self._to_waiting(key, value)
        return done

    def _to_waiting(self, key: bytes, value: bytes) -> None:
        """Moves one entry. Removes and counts an unreadable one, whose message group is unknown."""
        tx, log = self.tx, Log(self.tx.kv)
        position, size, attempts, queue, offset, past, *_ = RQ_VALUE.unpack_from(value)
        read, gone = log.fetch(self.where[1], position, size), log.chunk_of(position) < 0
        retry.remove(tx, self.where, [(key, position)])
        if read is not None:
            place = FWAIT_KEY.pack(*self.where, fifo.message_group_hash(read[1]), offset)
            reason = value[RQ_VALUE.size :].decode()
            fifo.put(tx, self.where, Waiting(place, position, size, attempts, queue, past, 0, 0, 0, reason))
        elif gone:
            readers.count(tx, self.where, dropped=1)
        else:
            quarantine.set_aside(tx, *self.where, queue, offset, position, size)


def _pointing_at(tx: Tx, where: GroupTopic, entries: list[Waiting]) -> CheckPoint:
    """Wraps entries as the members of a CheckPoint that is never stored."""
    log = Log(tx.kv)
    runs = tuple(
        Run(entry.queue, entry.offset, 1, entry.attempts, entry.position, entry.size, entry.past) for entry in entries
    )
    chunks = tuple((index, log.chunk_of(entry.position)) for index, entry in enumerate(entries))
    return CheckPoint(
        ck_id=0,
        group_id=where[0],
        topic_id=where[1],
        kind=BACKOFF,
        nonce=0,
        popped_ms=0,
        runs=runs,
        members=len(runs),
        chunks=chunks,
    )
