"""Group commit: all commands that wait run in one transaction; they are answered after its commit.

    run:  acks, renewals …  →  revive, housekeeping  →  sends  →  chunks written  →  pops  →  flush  →  commit  →  merge

A command that raises after it wrote is taken out and answered, and the others run again in a fresh transaction: one bad
request cannot hurt its neighbours (I.28). A commit that fails while the disk is full refuses what needs room and tries
the rest once; one that fails with room on the disk is final: CommitFailed, and a restart recovers what is on disk.

What fails, and what becomes of the others:

    a command refuses before it wrote      it is answered, nothing else happens
    a command refuses or raises later      it is answered, the group runs again without it
    there is no room for it (space.py)     STORAGE_FULL; a job is postponed by RETRY_MS
    the map is full at a put               the same, for the command or the job that met it
    a piece of a job raises                the job, or the lease or topic that it was at, is postponed: jobs.py
    the commit meets a full map or disk    the reserve of the disk is given back, and the group runs apart:

        acks … │ job │ job │ … │ sends, pops      a transaction each, without what needs room; of commands whose
                                                  transaction fails as well each is tried alone, then UNAVAILABLE;
                                                  a job is postponed, and its next piece is smaller

    the store is nearly full (space.tight) each group runs apart, with what needs as much room as is left
    the commit fails with room on disk     UNAVAILABLE for all, and the process ends

No thread and no socket here: `Core.run` is a function of (store, commands, clock), which is how the tests drive it.
"""

import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from popmq_server.clock import Clock, stopwatch
from popmq_server.commands import LANE_ACK, LANE_POP, LANES, EndTransaction, Pop, Redrive, Send, SetMaxSize, needs_room
from popmq_server.delivery import revive
from popmq_server.errors import CommitFailed, Refused, invalid, storage_full, unavailable
from popmq_server.sending import check_back, release_delayed
from popmq_server.state import jobs, space
from popmq_server.state.events import Event, Reporter
from popmq_server.state.jobs import Timed
from popmq_server.state.state import State
from popmq_server.state.tx import Tx
from popmq_server.storage.folder import NoMapping
from popmq_server.storage.lmdb import DiskFault, MapFull, Store, reading
from popmq_server.storage.table import changed
from popmq_server.topics import backlog, index_merge, topic
from popmq_server.writer import answers, housekeeping, rebase, timetable
from popmq_server.writer.handlers import HANDLERS

log = logging.getLogger("popmq.core")

#: Commands of a group that could not be written one by one before the others are given up.
GIVE_UP_AFTER = 3
#: What a Pop writes besides its members: CheckPoint, lease, positions.
POP_BYTES = 16 << 10
#: The broker's time is saved at most so often.
SAVE_TIME_MS = 1000


class Committed(NamedTuple):
    """What one `run` did."""

    results: list[Any]  # an answer or an exception for each command, or answers.NEXT_GROUP: it was not run
    woken: set[tuple[str | None, str]]
    wrote: bool  # whether there was anything to commit
    seconds: float = 0.0  # the whole group, fsync included
    timed: Timed = Timed([], [], [], [])
    arrived: Collection[tuple[str | None, str]] = ()  # queues that became longer
    events: Sequence[Event] = ()  # for the metrics; they are in the log already


class _Group:
    """Commands that run together, and the answer of each."""

    def __init__(self, commands: list[Any]) -> None:
        self.commands = commands
        self.results: list[Any] = [None] * len(commands)
        #: Bytes of messages in the answers of its transactions that have ended: answers.py.
        self.answered = 0

    def lane(self, place: int) -> int:
        return LANES.get(type(self.commands[place]), LANE_ACK)


_TimesWork = Callable[[Tx], Timed]


def _nothing(_: Tx) -> Timed:
    return Timed([], [], [], [])


def _joined(results: list[Any], parts: list[Committed]) -> Committed:
    """What several transactions of one group did."""
    timed = Timed(
        *(list(itertools.chain.from_iterable(kind)) for kind in zip(*(part.timed for part in parts), strict=True))
    )
    woken = set().union(*(part.woken for part in parts))
    arrived = set().union(*(part.arrived for part in parts))
    events = [event for part in parts for event in part.events]
    wrote = any(part.wrote for part in parts)
    return Committed(results, woken, wrote, timed=timed, arrived=arrived, events=events)


def _refusal(tx: Tx, command: Any) -> Refused | None:
    """Whether there is room for a command; what else it writes it asks for itself."""
    if isinstance(command, Send):
        fits = tx.room.has(space.STORE, command.bytes + space.MESSAGE_BYTES * len(command.entries))
    elif isinstance(command, Pop):
        fits = tx.room.has(space.POP, POP_BYTES + space.ENTRY_BYTES * command.max_messages)
    elif needs_room(command):
        fits = tx.room.has(space.GROW if isinstance(command, EndTransaction | Redrive) else space.POP)
    else:
        return None
    return None if fits else tx.room.refusal()


class _Poisoned(Exception):
    """A command wrote and then raised: the transaction cannot be used."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class Core:
    """The engine without threads: owns the state, runs commands in groups."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Scans what must be known (never history); the clock is anchored to the saved time."""
        self.store = store
        self.clock = clock
        self.state = State()
        self.next_due_ms: int | None = None
        self.space = space.Space(store)
        self.stuck = 0
        self._reporter = Reporter()
        try:
            self._load()
        except BaseException:
            store.close()
            raise
        tidying = (*housekeeping.jobs(clock.now_ms()), index_merge.Widening(clock.now_ms()))
        self.timetable = timetable.Timetable(
            (*tidying, release_delayed.Firing(), check_back.Checking(), revive.Reviving())
        )
        self._look_ahead()

    def _load(self) -> None:
        """Reads the state. A store that cannot be read keeps its format, for the release that wrote it."""
        saved_ms = self._read()
        if ahead_ms := self.clock.ahead_ms(saved_ms):
            rebase.rebase(self.store, saved_ms - ahead_ms, ahead_ms)
            self.state = State()
            saved_ms = self._read()
        self.clock.anchor(saved_ms)
        self.store.adopt()

    def _read(self) -> int:
        """Loads the state; the time that was saved last."""
        tx = self.store.begin(write=False, views=False)
        try:
            self.state.load(tx)
            return self.state.counters[""].saved_ms
        finally:
            tx.abort()

    def _begin(self) -> Tx:
        return Tx(self.state, self.store, self.clock.now_ms(), self.clock.wall_ms())

    def _look_ahead(self) -> None:
        """At start: what became due while nobody was there is due now."""
        tx = self._begin()
        try:
            self.next_due_ms = self.timetable.next_ms(tx)
        finally:
            tx.abort()

    def run(self, commands: list[Any]) -> Committed:
        """Runs a group; every command gets an answer or an exception. Raises CommitFailed: end the process.

        `order` is stable within a lane, so requests of one client keep their order.
        """
        group = _Group(commands)
        order = sorted(range(len(commands)), key=group.lane)
        if SetMaxSize in map(type, commands):
            order = self._between(group, order)
        began = stopwatch()
        shut = False
        if not self.space.tight:
            try:
                return self._attempt(group, order, self._timed)._replace(seconds=stopwatch() - began)
            except (MapFull, DiskFault) as fault:
                self._after_fault(fault)
                shut = isinstance(fault, DiskFault)
        return self._apart(group, order, shut)._replace(seconds=stopwatch() - began)

    def _between(self, group: "_Group", order: list[int]) -> list[int]:
        """Runs what moves the map, which no transaction may be open for; the places of the other commands."""
        others = []
        for place in order:
            command = group.commands[place]
            if isinstance(command, SetMaxSize):
                group.results[place] = self._set_max_size(command.size)
            else:
                others.append(place)
        return others

    def _set_max_size(self, size: int) -> Refused | None:
        """What the store holds has to fit. A failure leaves everything as it was. Raises CommitFailed."""
        before, reached = self.store.map_bytes, self.store.pages_reached * self.store.page_bytes
        with reading(self.store) as kv:
            used = kv.used_pages() * self.store.page_bytes
        if size < used:
            return invalid(
                f"the store has {used:,} bytes in use, {size:,} are less",
                field="map_bytes",
                action="name a larger size, or delete or purge something first",
            )
        try:
            self.store.set_max_size(size)
        except NoMapping as error:
            return invalid(str(error), field="map_bytes", action="name a smaller size, or raise what the system allows")
        except MapFull:
            return storage_full(f"{size:,} bytes leave no page for the new limit itself")
        except DiskFault as fault:
            self._after_fault(fault)
            return storage_full("the disk is full: the new limit could not be stored")
        self.space.look_again()
        log.warning("the limit of the data file is %d bytes now, it was %d; the file has %d", size, before, reached)
        return None

    def _attempt(self, group: "_Group", order: list[int], time: "_TimesWork", *, shut: bool = False) -> Committed:
        """One transaction of commands and of what time asks for. Raises MapFull or DiskFault when its commit does.

        The loop ends because each round takes a command out of `order`, or postpones a job or a lease.
        """
        while True:
            tx = self._begin_with_room(shut)
            tx.answered = group.answered
            try:
                committed = self._commit(tx, group.results, self._run(tx, group, order, time))
                group.answered = tx.answered
                return committed
            except _Poisoned as poisoned:
                tx.abort()
                order.remove(poisoned.place)
            except jobs.JobFailed as failure:
                tx.abort()
                self._report(failure)
                failure.job.failed(failure, tx.now_ms)
            except BaseException:
                tx.abort()
                raise

    def _begin_with_room(self, shut: bool) -> Tx:
        """A transaction that knows its room. Where pages that were given back are missed they are waited for."""
        tx = self._begin()
        tx.room = self.space.room(tx.kv, self._holder, shut=shut)
        if self.space.recovers:
            try:
                counters = self.state.counters[""]
                self.state.counters[""] = counters._replace(saved_ms=max(counters.saved_ms, tx.now_ms))
                tx.flush()
                tx.kv.commit()
                tx.merge()
            except (MapFull, DiskFault):
                tx.abort()
            tx = self._begin()
            tx.room = self.space.room(tx.kv, self._holder, shut=shut)
        return tx

    def _holder(self) -> str:
        return backlog.greatest_backlog(self.state)

    def _run(self, tx: Tx, group: "_Group", order: list[int], time: "_TimesWork") -> Timed:
        """Runs the commands lane by lane; time has its turn between acks and sends, so that an ack beats the
        revive.
        """
        timed: Timed | None = None
        for place in order:
            command, lane = group.commands[place], group.lane(place)
            if timed is None and lane > LANE_ACK:
                timed = time(tx)
            if lane == LANE_POP and tx.staged:
                topic.flush(tx)
            if lane == LANE_POP and answers.must_wait(command, tx.answered):
                group.results[place] = answers.NEXT_GROUP
                continue
            refusal = None if tx.room.plenty else _refusal(tx, command)
            result = group.results[place] = refusal or self._handle(tx, command, place, group.results)
            if lane == LANE_POP:
                tx.answered += answers.bytes_of(result)
        if timed is None:
            timed = time(tx)
        topic.flush(tx)
        return timed

    # ── When the store is nearly full ────────────────────────────────────────────────────────────────────────────

    def _apart(self, group: "_Group", order: list[int], shut: bool) -> Committed:
        """Acks, each job that is due, and the other commands, in transactions of their own, in the usual order.

        So whoever meets a lack of pages at its commit is known, and is tried again alone or smaller.
        """
        acks = [place for place in order if group.lane(place) == LANE_ACK]
        parts = [self._alone(group, acks, shut)]
        if self.next_due_ms is not None and self.next_due_ms <= self.clock.now_ms():
            parts += [self._job_alone(job, shut) for job in self._due_jobs()]
            self._look_ahead()
        others = [place for place in order if group.lane(place) != LANE_ACK]
        parts.append(self._alone(group, others, shut))
        return _joined(group.results, parts)

    def _due_jobs(self) -> list[jobs.Job]:
        tx = self._begin()
        try:
            return self.timetable.due(tx)
        finally:
            tx.abort()

    def _job_alone(self, job: jobs.Job, shut: bool) -> Committed:
        """One piece of one job. One that cannot be committed is postponed, and smaller the next time."""

        def piece(tx: Tx) -> Timed:
            did = Timed([], [], [], [])
            if not job.waits(tx):
                timetable.step(job, tx, did)
            return did

        try:
            return self._attempt(_Group([]), [], piece, shut=shut)
        except (MapFull, DiskFault) as fault:
            self._after_fault(fault)
            job.failed(jobs.JobFailed(job, None, full=True), self.clock.now_ms())
            return Committed([], set(), False)

    def _alone(self, group: "_Group", order: list[int], shut: bool) -> Committed:
        """Commands without time's work: together, then without what needs room, then one by one."""
        for closed in (False, True)[shut:] if order else ():
            try:
                return self._attempt(group, order, _nothing, shut=closed)
            except (MapFull, DiskFault) as fault:
                self._after_fault(fault)
        if len(order) > 1:
            return self._one_by_one(group, order)
        for place in order:
            group.results[place] = unavailable("the store is full: not even this could be written")
        return Committed(group.results, set(), False)

    def _one_by_one(self, group: "_Group", order: list[int]) -> Committed:
        """After GIVE_UP_AFTER that failed in a row the others are not tried: each try is a write to a sick disk."""
        parts: list[Committed] = []
        failed = 0
        for place in order:
            if failed < GIVE_UP_AFTER:
                parts.append(self._alone(group, [place], True))
                result = group.results[place]
                failed = failed + 1 if isinstance(result, Refused) and result.code == "UNAVAILABLE" else 0
            else:
                group.results[place] = unavailable("the store is full: others before this could not be written")
        return _joined(group.results, parts)

    # ── Commands and time ────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, tx: Tx, command: Any, place: int, results: list[Any]) -> Any:
        """One command. It may raise before it wrote (a plain refusal) or after (the group must run again without
        it).
        """
        before = tx.dirty
        try:
            return HANDLERS[type(command)](tx, command)
        except MapFull:
            results[place] = storage_full("the map is full (--max-size)")
            raise _Poisoned(place) from None
        except Refused as refused:
            results[place] = refused
        except Exception:
            log.exception("a %s command raised; it is answered INTERNAL, its neighbours go on", type(command).__name__)
            results[place] = Refused(
                "INTERNAL",
                f"the broker failed on this {type(command).__name__}",
                action="report it with the broker's log",
            )
        if tx.dirty != before:
            raise _Poisoned(place)
        return results[place]

    def _report(self, failure: jobs.JobFailed) -> None:
        """A full map is no fault of the broker, and is told where commands are refused for it."""
        if not failure.full:
            self.stuck += 1
            log.exception("%s failed; it is tried again in %d s", failure, jobs.POSTPONE_MS // 1000)

    def _timed(self, tx: Tx) -> Timed:
        """What time asks for, in bounded pieces."""
        did = Timed([], [], [], [])
        if self.next_due_ms is not None and self.next_due_ms <= tx.now_ms:
            self.timetable.run(tx, did)
        return did

    def _after_fault(self, fault: Exception) -> None:
        """A commit failed: the disk's reserve is given to the next. Raises CommitFailed when the disk has room."""
        full = isinstance(fault, MapFull) or self.store.disk_free() < space.DISK_FREE_STORE
        log.error("a commit failed: %s; %s", fault, "trying apart what frees room" if full else "ending")
        if not full:
            raise CommitFailed(f"a commit failed although the disk has room: {fault}") from fault
        self.store.reserve.give()
        self.store.end_copies("a commit found no room")

    def _commit(self, tx: Tx, results: list[Any], timed: Timed) -> Committed:
        """Puts what the tables changed, syncs, and only then lets memory know. A group that wrote nothing syncs
        nothing.
        """
        state = tx.state
        wrote = tx.kv.writes > 0 or bool(changed(state.transactional))
        if wrote:
            if tx.now_ms - state.counters[""].saved_ms >= SAVE_TIME_MS:
                state.counters[""] = state.counters[""]._replace(saved_ms=tx.now_ms)
            tx.flush()
            next_due_ms = self.timetable.next_ms(tx)
            tx.kv.commit()
            tx.merge()
            self.next_due_ms = next_due_ms
            self.timetable.committed()
            for sentence in timed.given_up:
                log.warning("%s", sentence)
        else:
            self.next_due_ms = self.timetable.next_ms(tx)
            tx.merge()  # a sign of life of a watch has nothing to commit, and is true all the same
            tx.abort()
        self._reporter.report(tx.events, tx.now_ms)
        return Committed(results, tx.woken, wrote, timed=timed, arrived=tx.arrived, events=tx.events)

    def close(self) -> None:
        """Gives the data folder free; what was answered is on disk."""
        self.store.close()
