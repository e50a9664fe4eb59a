"""The revive: ends due leases and moves their members on.

In the given transaction one piece moves at most REVIVE_MEMBERS_MAX members, in the order of their due times, and writes
at most DEAD_LETTER_BYTES_MAX of dead letters. The next piece runs in the next commit batch, with the commands that wait
by then, so a large backlog of equal deadlines delays a request by one piece. A lease that exceeds these bounds goes on
in the next piece.

    an undone member of a batch     → retry topic, or the dead letter topic after its last attempt
    a member in backoff             → retry topic
    an owner's lease                → owner.lapse

Memory has the deadline of each lease as well. An entry of `due` with another deadline is damaged: it gets the one that
memory has, and this is reported. An entry of no known lease, or that cannot be read, is reported, left as it is, and
passed over for POSTPONE_MS. So the leases after it end in time.

A message whose lease expired is visible again at once: the backoff table is for releases. An attempt is a committed
pop; the end of a lease, by the revive or by its client (lease.py), decides what follows the last attempt. The revive
reads the bitmap that acks set; Apache RocketMQ instead matches its records of pops and acks afterwards.
"""

import logging
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.rules.delivery import (
    deadletter,
    fifo,
    invalidated,
    lease_history,
    owner,
    session_lease,
    sweep,
)
from popmq_server.embedded.rules.delivery.retry import to_retry
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.jobs import (
    POSTPONE_MS,
    RETRY_MS,
    Job,
    JobFailed,
    Skipped,
    Timed,
)
from popmq_server.embedded.state.owners import OWNER_KEEP_MS
from popmq_server.embedded.state.space import GROW, MOVE, entries_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    CheckPoint,
    Lease,
    exhausted,
    heads,
    members_of,
)
from popmq_server.embedded.store.checkpoint import followers as following
from popmq_server.embedded.store.keys import DUE_KEY, NEVER, SUB_OWNER
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.row_formats import RowReader
from popmq_server.errors import StartError
from popmq_server.values.records import Group

#: Bounds of one transaction: members that are moved, and leases that are read. A lease costs some 45 µs for any
#: size, so a quarter of the members keeps a piece near 10 ms; a request waits for one piece at most.
REVIVE_MEMBERS_MAX = 1000
REVIVE_LEASES_MAX = 250
EXPIRED_REASON = "lease expired"
log = logging.getLogger("popmq.lease")
#: How far ahead of the last saved time a deadline may be. A request can ask for at most 12 hours, and the time is saved
#: every second: the rest is margin. A flipped bit of a lower digit delays a lease by less than that.
AHEAD_MS_MAX = 86_400_000 + 1000


class NoSuchLease(Exception):
    """An entry of `due` belongs to no lease."""


class _Due(NamedTuple):
    """A key of `due`. `known`: memory has the lease at this key."""

    key: bytes
    due_ms: int
    lease: tuple[int, int]  # ck_id, sub
    known: bool


class Reviving(Job):
    """Revives due leases, up to the bounds. A lease that fails is postponed and does not block other leases. The
    postponement of a lease that cannot be read is in memory only.

    A lease whose dead letters find no room stays as it is and is skipped, so that thousands of them cost nothing
    (jobs.py). So is a lease whose dead letters lack adjacent pages, once it has failed alone.
    """

    name = "lease"
    moved_by = frozenset({"due"})

    def __init__(self) -> None:
        super().__init__()
        self._failed: set[tuple[int, int]] = set()
        self._skipped = Skipped()
        #: The leases of the current piece.
        self._tried: list[_Due] = []
        #: Leases whose dead letters lacked adjacent pages, and how many of them the current piece counts as blocked.
        self._lacking: list[tuple[int, int]] = []
        self._noted = 0

    def next_ms(self, tx: Tx) -> int | None:
        """When the next lease ends. Each commit asks, so one key is read, unless something is postponed."""
        if self._lacking:
            return tx.now_ms
        if self._skipped.next_ms() is not None or self.postponed:
            return self._next_of_all_ms(tx)
        first = next(tx.kv.scan_keys("due"), None)
        if first is None:
            return None
        due_ms, ck_id, sub = DUE_KEY.unpack(first)
        if not tx.state.leases.is_at(due_ms, (ck_id, sub)):
            return tx.now_ms
        return due_ms if due_ms < NEVER else None

    def _next_of_all_ms(self, tx: Tx) -> int | None:
        first = next(self._keys(tx), None)
        times = [until_ms for item, until_ms in self.postponed.items() if item is not None]
        if first is not None and (first.due_ms < NEVER or not first.known):
            times.append(first.due_ms if first.known else tx.now_ms)
        if (again_ms := self._skipped.next_ms()) is not None:
            times.append(again_ms)
        return min(times, default=None)

    def _keys(self, tx: Tx) -> Iterator[_Due]:
        """The keys of `due` that are not postponed, as committed or flushed, in the order of the store."""
        keys, postponed = tx.state.leases, self.postponed
        for key in tx.kv.scan_keys("due", b"", self._skipped.start):
            due_ms, ck_id, sub = DUE_KEY.unpack(key)
            if not postponed or (key not in postponed and (ck_id, sub) not in postponed):
                yield _Due(key, due_ms, (ck_id, sub), keys.is_at(due_ms, (ck_id, sub)))

    def _due(self, tx: Tx, leases_max: int) -> list[_Due]:
        """The damaged keys before the first lease that is not due, and the leases that are, soonest first."""
        found: list[_Due] = []
        for each in self._keys(tx):
            if len(found) == leases_max or (each.known and each.due_ms > tx.now_ms):
                break
            found.append(each)
        return found

    def postpone(self, until_ms: int, item: Hashable = None) -> None:
        if isinstance(item, tuple):
            self._failed.add(item)
        else:
            super().postpone(until_ms, item)

    def failed(self, failure: JobFailed, now_ms: int) -> None:
        """Skips a lease that found no pages, if it was the only one of its piece; the others go on at once.

        An owner's lease writes no dead letters, so it lacks no adjacent pages.
        """
        alone = self._tried[0] if len(self._tried) == 1 and self.at_most(REVIVE_MEMBERS_MAX) == 1 else None
        if not failure.no_pages or alone is None or alone.lease[1] == SUB_OWNER or alone.due_ms >= now_ms:
            super().failed(failure, now_ms)
            return
        self.stepped = False
        self._lacking.append(alone.lease)
        self._skipped.lacks_pages(DUE_KEY.pack(alone.due_ms, *alone.lease), now_ms)

    def committed(self) -> None:
        """The limits stay low while leases lack adjacent pages, so that each of these leases fails alone."""
        self._failed.clear()
        del self._lacking[: self._noted]
        if self._skipped.any_lacks_pages:
            self.stepped = False
        super().committed()

    def step(self, tx: Tx, work: Timed) -> None:
        self._put_off(tx)
        self._tried, self._noted = [], self._note_lacking(tx)
        if self._noted:
            return
        if self._skipped.is_time(tx.now_ms) and tx.room.has(GROW):
            self._skipped.go_back()
        left, budget, held_up = (
            self.at_most(REVIVE_MEMBERS_MAX),
            deadletter.DeadLetterBudget(tx, self.at_most(deadletter.DEAD_LETTER_BYTES_MAX)),
            False,
        )
        for each in self._due(tx, self.at_most(REVIVE_LEASES_MAX)):
            part = self._read(tx, each)
            if part is None or part.due_ms > tx.now_ms:
                continue
            if not tx.room.has(MOVE, entries_bytes(min(left, max(1, part.undone.bit_count())))):
                self.postpone(tx.now_ms + RETRY_MS)
                return
            self._tried.append(each)
            with self.apart(each.lease):
                moved = revive(tx, *each.lease, part, left, budget)
            if moved:
                work.late_ms.append(tx.now_ms - part.due_ms)
            left -= moved
            if left <= 0 or budget.full:
                return
            if budget.no_room and (part := tx.state.leases.get(each.lease)) is not None:
                budget.no_room = False
                held_up |= not self._steps_over(tx, each.lease, part.due_ms)
        if held_up and not work.late_ms:
            self.postpone(tx.now_ms + 1)

    def _note_lacking(self, tx: Tx) -> int:
        """Counts dead letters that lack adjacent pages as blocked; returns the number of their leases."""
        found = self._lacking[:REVIVE_LEASES_MAX]
        for ck_id, sub in found:
            part = tx.state.leases.get((ck_id, sub))
            group = tx.state.groups.get(tx.state.ck[ck_id].group_id) if part is not None else None
            if part is not None and group is not None:
                ck = tx.state.ck[ck_id]
                in_order = fifo.keeps_order(tx, ck)
                others = leases.undone(tx, ck) & ~part.undone if in_order else 0
                leases.note_dead_blocked(tx, ck, sub, _attempts(ck, part.undone, others, group, in_order)[1])
        return len(found)

    def _put_off(self, tx: Tx) -> None:
        """Postpones the leases that failed, and forgets postponements that have ended."""
        for item, until_ms in list(self.postponed.items()):
            if until_ms <= tx.now_ms:
                del self.postponed[item]
        for lease in tuple(self._failed):
            if not put_off(tx, lease, tx.now_ms + POSTPONE_MS):
                self._failed.discard(lease)
                super().postpone(tx.now_ms + POSTPONE_MS, lease)

    def _read(self, tx: Tx, each: _Due) -> Lease | None:
        """The lease of a key; None if this commit batch has ended it. Raises JobFailed for damage."""
        with self.apart(each.lease if each.known else each.key):
            if not each.known:
                _mend(tx, each)
            return tx.state.leases.get(each.lease)

    def _steps_over(self, tx: Tx, lease: tuple[int, int], due_ms: int) -> bool:
        """Makes the next piece begin after a lease that waits for room; returns whether it does.

        Skips only a lease that was due before now: keys that are put into `due` from now on sort after it.
        """
        if due_ms >= tx.now_ms:
            return False
        self._skipped.lacks_room(DUE_KEY.pack(due_ms, *lease), tx.now_ms)
        return True


def _mend(tx: Tx, entry: _Due) -> None:
    """Gives a damaged entry the deadline of its lease, and reports it. Raises NoSuchLease if there is no such lease."""
    damage = f"the entry {entry.key.hex()} of 'due' has a deadline that no lease has: the data file is damaged"
    due_ms = tx.state.leases.due_ms(entry.lease)
    if due_ms is None:
        raise NoSuchLease(f"{damage}; stop the broker and run `popmq check`")
    tx.kv.move("due", entry.key, DUE_KEY.pack(due_ms, *entry.lease))
    group_id, topic_id = tx.state.ck.pair(entry.lease[0])
    group, topic = tx.state.groups.get(group_id), tx.state.topics.get(topic_id)
    named = group.name if group else "", topic.name if topic else ""
    tx.tell(Event("deadline_mended", *named, 1, f"{damage}; it was mended; test the disk, and run `popmq check`"))


def too_late(kv: Transaction, saved_ms: int) -> Iterator[tuple[int, int, int]]:
    """(due ms, ck_id, sub) of the leases whose deadline is too far away for any lease: `due` is damaged."""
    for key in kv.scan_keys("due", b"", DUE_KEY.pack(saved_ms + AHEAD_MS_MAX + 1, 0, 0)):
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        if due_ms >= NEVER:
            return
        if sub != SUB_OWNER or due_ms > saved_ms + AHEAD_MS_MAX + OWNER_KEEP_MS:  # its removal, after it lapsed
            yield due_ms, ck_id, sub


def warn_of_too_late(kv: Transaction, saved_ms: int) -> None:
    """One line in the log at a start. Reads one key, unless there is such a lease."""
    if late := next(too_late(kv, saved_ms), None):
        log.warning(
            "lease %d ends in more than a day, which no lease does: the data file is damaged; stop the broker, run "
            "`popmq check`, and end early what it finds",
            late[1],
        )


def put_off(tx: Tx, key: tuple[int, int], due_ms: int) -> bool:
    """Postpones a lease that failed: it stays leased. Returns False if it cannot be read, and changes nothing."""
    try:
        part = tx.state.leases.get(key)
    except (*RowReader.ERRORS, BrokenInvariant, StartError):
        return False
    if part is not None:
        leases.put_off(tx, key, part, due_ms)
    return True


def revive(tx: Tx, ck_id: int, sub: int, part: Lease, members_max: int, budget: deadletter.DeadLetterBudget) -> int:
    """Ends one due lease, an owner's or a part of a CheckPoint's; returns the number of moved members."""
    if sub == SUB_OWNER:
        return owner.lapse(tx, ck_id, members_max)
    ck = tx.state.ck[ck_id]
    if due_ms := session_lease.after_start(tx, ck, sub, part):
        leases.set_part(tx, ck, sub, part._replace(due_ms=due_ms))
        return 0
    group = tx.state.groups.get(ck.group_id)
    if group is None or not tx.state.alive(ck.topic_id):
        leases.end(tx, ck, sub, part, part.undone)
        return part.undone.bit_count()
    if void := part.undone & invalidated.of_checkpoint(tx.state, ck):
        return sweep.drop_members(tx, ck, sub, void)
    return expire(tx, ck, sub, part, decide(tx, ck, part, group, members_max, budget))


class Outcome(NamedTuple):
    """What becomes of the members of a part whose lease ended, as bits. Members in no field stay under the lease."""

    retry: int  # they become visible again
    tried: int  # of `retry`: their attempt counts; the others get it back
    stopped: int  # FIFO, of `retry`: they stop their message group
    followers: int  # FIFO: members of other parts, which wait again after one of this part
    dead: int = 0  # they become dead letters
    blocked: int | None = None  # their dead letters wait for room; None: as before


def decide(
    tx: Tx, ck: CheckPoint, part: Lease, group: Group, members_max: int, budget: deadletter.DeadLetterBudget
) -> Outcome:
    """What becomes of the members of a part, of at most `members_max`. Changes nothing but `budget`.

    Members whose dead letters exceed `budget` stay under the lease until the next piece, or until there is room.
    """
    in_order = fifo.keeps_order(tx, ck)
    others = leases.undone(tx, ck) & ~part.undone if in_order else 0
    tried, dead, stopped = _attempts(ck, part.undone, others, group, in_order)
    returns = part.undone & ~dead
    # Followers were extended alone, so their lease goes on: they wait again, uncounted, as after a release. A failed
    # head leaves after them.
    followers = _some(following(ck, others, returns), members_max, last=True) if others else 0
    members_max -= followers.bit_count()
    retry = _some(returns, members_max, last=in_order) if members_max else 0
    if retry != returns or not members_max:  # dead letters come last: the others need no such room
        return Outcome(retry, tried, stopped, followers)
    ahead = entries_bytes(followers.bit_count(), fifo.FOLLOWER)
    fitting = budget.fitting(ck, _some(dead, members_max - retry.bit_count()), ahead)
    return Outcome(retry, tried, stopped, followers, fitting, dead & ~fitting if budget.no_room else 0)


def _attempts(ck: CheckPoint, bits: int, others: int, group: Group, in_order: bool) -> tuple[int, int, int]:
    """The members of `bits` whose attempt counts; of these the dead letters, and those that stop their message group.

    In FIFO topics only the first undone member of each message group counts as tried; elsewhere every member.
    """
    if ck.kind == BACKOFF:
        return bits, 0, 0
    tried = heads(ck, bits | others) & bits if in_order else bits
    last = exhausted(ck, tried, group.max_attempts)
    return (tried, 0, last) if in_order and group.stop_on_failure else (tried, last, 0)


def _some(bits: int, count: int, *, last: bool = False) -> int:
    """`count` members of `bits`, the first or the last ones.

    FIFO leases are emptied from the end. The head of a message group leaves last: as long as it is there the later
    members count as not tried, and its message group stays locked.
    """
    if bits.bit_count() <= count:
        return bits
    members = members_of(bits)
    return sum(1 << member for member in (members[-count:] if last else members[:count]))


def expire(tx: Tx, ck: CheckPoint, sub: int, part: Lease, outcome: Outcome) -> int:
    """Ends the lease of a part, or of some of its members, as decided; returns the number of moved members."""
    if outcome.blocked is not None:
        leases.note_dead_blocked(tx, ck, sub, outcome.blocked)
    back = outcome.retry | outcome.followers
    moved = back | outcome.dead
    for each, held in leases.parts(tx, ck) if outcome.followers else [(sub, part)]:
        if bits := held.undone & moved:
            how, why = (lease_history.EXPIRED, "") if each == sub else (lease_history.RELEASED, fifo.FOLLOWER)
            lease_history.leave_together(tx, ck, each, held, bits, how, why)
    if outcome.dead:
        deadletter.dead_letter(tx, ck, outcome.dead, EXPIRED_REASON)
    if back:
        reason = ck.reason or EXPIRED_REASON
        to_retry(tx, ck, back, reason, tried=outcome.tried, stopped=outcome.stopped, followers=outcome.followers)
    return moved.bit_count()
