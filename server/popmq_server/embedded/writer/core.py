"""Group commit: runs a batch of commands in one transaction; the answers are sent after its commit.

    run:  acks, renewals …  →  revive, housekeeping  →  sends  →  write chunks  →  pops  →  flush  →  commit  →  merge

If a command raises after it wrote, `Core` answers it and runs the other commands again in a new transaction, so one bad
request does not affect the rest of its batch. If a commit fails because the map or the disk is full, `Core` retries the
batch in parts, then without commands that need room. If the disk has room the failure is final: CommitFailed.

Failures, and what happens to the rest of the batch:

    a command refuses before it wrote      it is answered, nothing else happens
    a command refuses or raises later      it is answered, the batch runs again without it; from a few on in parts
    no room for a command (space.py)       STORAGE_FULL; a job is postponed by RETRY_MS
    the map is full at a put               the same, for the command or job that made the put
    a piece of a job raises                the job, or its lease or topic that failed, is postponed: jobs.py
    the commit meets a full map or disk    the disk reserve is released, and the batch runs in parts: nearly_full.py
    the store is nearly full (space.tight) each batch runs in parts, within the room that is left
    the commit fails with room on disk     UNAVAILABLE for all, and the process ends

handlers.py names the function of each command. This module uses no thread and no socket: tests call `Core.run` with a
store, commands and a clock.
"""

import logging
from collections.abc import Sequence

from popmq_server.clock import Clock, stopwatch
from popmq_server.contract import commands as ask
from popmq_server.contract.operations import LANE_ACK, LANE_POP, Handled, Operation
from popmq_server.embedded import operations as own
from popmq_server.embedded.rules.delivery import revive
from popmq_server.embedded.rules.schedules import occurrences
from popmq_server.embedded.rules.sending import check_back, publishing, release_delayed
from popmq_server.embedded.rules.topics import backlog, lite_chunks, topic
from popmq_server.embedded.rules.topics.index import MergingBlocks
from popmq_server.embedded.state import jobs, loading, space
from popmq_server.embedded.state.events import Reporter
from popmq_server.embedded.state.jobs import Timed
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.folder import NoMapping
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.store.store import Store, reading
from popmq_server.embedded.store.table import changed
from popmq_server.embedded.writer import coalescing, housekeeping, rebase, timetable
from popmq_server.embedded.writer.batch import (
    NEXT_BATCH,
    Batch,
    Committed,
    Poisoned,
    TimesWork,
    TooManyPoisoned,
    answer_bytes,
    must_wait,
    refusal_of,
)
from popmq_server.embedded.writer.folds import Folds
from popmq_server.embedded.writer.handlers import BY_WRITER, HANDLERS
from popmq_server.embedded.writer.nearly_full import InParts
from popmq_server.errors import (
    FREE_DISK,
    CommitFailed,
    NoRoom,
    Refused,
    invalid,
)

log = logging.getLogger("popmq.core")

#: Commands of one transaction that may fail after they wrote; with more, the others run in parts: each costs a run.
POISONED_MAX = 4
#: Minimum interval between two saves of the broker's time.
SAVE_TIME_MS = 1000


# ── The engine ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Core:
    """The engine without threads: owns the state, runs commands in commit batches."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Loads the state (never history) and anchors the clock to the saved time."""
        self.store = store
        self.clock = clock
        self.state = State()
        self.next_due_ms: int | None = None
        self.space = space.Space(store)
        self.folds = Folds(store, clock, self.after_fault)
        self._reporter = Reporter()
        try:
            self._load()
        except BaseException:
            store.close()
            raise
        now_ms = self.state.started_ms = clock.now_ms()
        tidying = (*housekeeping.jobs(now_ms), MergingBlocks(now_ms), *lite_chunks.jobs(store))
        storing = release_delayed.ReleasingDelayed(), publishing.Publishing(), occurrences.Occurring()
        self.timetable = timetable.Timetable((*tidying, *storing, check_back.CheckingBack(), revive.Reviving()))
        self.look_ahead()

    def _load(self) -> None:
        """Loads the state. If this fails the store keeps its format, for the release that wrote it."""
        saved_ms = self._read()
        if ahead_ms := self.clock.ahead_ms(saved_ms):
            rebase.rebase(self.store, saved_ms - ahead_ms, ahead_ms)
            self.state = State()
            saved_ms = self._read()
        self.clock.anchor(saved_ms)
        self.store.adopt()

    def _read(self) -> int:
        """Loads the state; returns the last saved time."""
        with reading(self.store, views=False) as kv:
            loading.load(self.state, kv)
            revive.warn_of_too_late(kv, self.state.counters[""].saved_ms)
            return self.state.counters[""].saved_ms

    def _begin(self) -> Tx:
        return Tx(self.state, self.store, self.clock.now_ms(), self.clock.wall_ms())

    def look_ahead(self) -> None:
        """Computes `next_due_ms` from the timetable: at start, and after jobs that ran in transactions of their own."""
        tx = self._begin()
        try:
            self.next_due_ms = self.timetable.next_ms(tx)
        finally:
            tx.abort()

    def due_jobs(self) -> list[jobs.Job]:
        """The jobs that have a due piece, for transactions of their own."""
        tx = self._begin()
        try:
            return self.timetable.due(tx)
        finally:
            tx.abort()

    def run(self, commands: Sequence[Operation[object]]) -> Committed:
        """Runs a batch; every command gets an answer or an exception. On CommitFailed the process must end.

        The sort is stable, so commands of one lane keep their order.
        """
        batch = Batch(commands)
        order = sorted(range(len(commands)), key=batch.lane)
        if self.store.folding is not None:
            self.folds.if_due()
        if not _BETWEEN.isdisjoint(map(type, commands)):
            order = self._between(batch, order)
        began = stopwatch()
        shut = False
        if not self.space.tight:
            try:
                return self.attempt(batch, order, self._timed)._replace(seconds=stopwatch() - began)
            except (MapFull, DiskFault) as fault:
                self.after_fault(fault)
                shut = isinstance(fault, DiskFault)
            except TooManyPoisoned:
                pass
        return InParts(self, batch).run(order, shut)._replace(seconds=stopwatch() - began)

    def _between(self, batch: Batch, order: list[int]) -> list[int]:
        """Runs the commands for which no transaction may be open; returns the indexes of the others."""
        for index in order:
            command = batch.commands[index]
            try:
                if isinstance(command, ask.SetMaxSize):
                    self._set_max_size(command)
                elif isinstance(command, own.Fold):
                    self.folds.demanded(command)
            except Refused as refused:
                batch.results[index] = refused.with_traceback(None)
        return [index for index in order if type(batch.commands[index]) not in _BETWEEN]

    def _set_max_size(self, command: ask.SetMaxSize) -> None:
        """Sets the map size. A failure changes nothing. Raises Refused, CommitFailed."""
        try:
            _set_map_size(self.store, command.size)
        except (MapFull, DiskFault) as fault:
            self.after_fault(fault)
            raise NoRoom("the disk is full: the new limit could not be stored", FREE_DISK) from None
        self.space.look_again()

    def attempt(self, batch: Batch, order: list[int], time: TimesWork, *, shut: bool = False) -> Committed:
        """One transaction of commands and due jobs. Raises TooManyPoisoned, and MapFull or DiskFault of its commit.

        The loop ends because each round removes a command from `order`, or postpones a job or an item of it.
        """
        failures, poisoned_count = list[str](), 0
        while True:
            tx = self._begin_with_room(shut)
            batch.answering = batch.answered
            try:
                committed = self._commit(tx, batch.results, self._run(tx, batch, order, time))
                batch.answered = batch.answering
                return committed._replace(failures=failures)
            except Poisoned as poisoned:
                tx.abort()
                if poisoned.full and self.folds.make_room():
                    continue
                batch.leave_out(poisoned, order)
                poisoned_count += 1
                if poisoned_count > POISONED_MAX:
                    raise TooManyPoisoned from None
            except jobs.JobFailed as failure:
                tx.abort()
                if failure.full and self.folds.make_room():
                    continue
                failures += timetable.report(failure)
                failure.job.failed(failure, tx.now_ms)
            except BaseException as error:
                tx.abort()
                if not isinstance(error, MapFull) or not self.folds.make_room():
                    raise

    def _begin_with_room(self, shut: bool) -> Tx:
        """Begins a transaction with its Room. If freed pages are needed, makes a commit first that releases them."""
        tx = self._with_room(shut)
        if not self.space.recovers:
            return tx
        try:
            tx.save_time()
            tx.flush()
            tx.kv.commit()
            tx.merge()
        except (MapFull, DiskFault) as fault:
            tx.abort()
            if isinstance(fault, DiskFault):
                self.after_fault(fault)
        return self._with_room(shut)

    def _with_room(self, shut: bool) -> Tx:
        tx = self._begin()
        try:
            tx.room = self.space.room(tx.kv, lambda: backlog.greatest_backlog(self.state), shut=shut)
        except BaseException:
            tx.abort()  # a store with an open transaction cannot be closed
            raise
        if self.store.folding is None or self.folds.allow(0 if shut else self.space.unfolded_bytes()) or shut:
            return tx
        tx.abort()
        self.store.fold()
        return self._with_room(shut)

    def _run(self, tx: Tx, batch: Batch, order: list[int], time: TimesWork) -> Timed:
        """Runs the commands lane by lane. Due jobs run between acks and sends, so an ack in this batch takes effect
        before the revive.
        """
        timed: Timed | None = None
        alike = coalescing.Alike(batch, order) if batch.as_one else None
        for index in order:
            command, lane = batch.commands[index], batch.lane(index)
            if timed is None and lane > LANE_ACK:
                timed = time(tx)
            if lane == LANE_POP and tx.state.staged.changed:
                topic.flush(tx)
            if alike and alike.has_run(tx, index):
                continue
            if lane == LANE_POP and must_wait(command, batch.answering):
                batch.results[index] = NEXT_BATCH
                continue
            refusal = None if tx.room.plenty else refusal_of(tx, command)
            result = batch.results[index] = refusal or self._handle(tx, command, index, batch.results)
            if lane == LANE_POP:
                batch.answering += answer_bytes(result)
        if timed is None:
            timed = time(tx)
        topic.flush(tx)
        return timed

    def _handle(self, tx: Tx, command: Operation[object], index: int, results: list[object]) -> object:
        """Runs one command; returns its answer or refusal. Raises Poisoned if it failed after it wrote, or the map is
        full.
        """
        before = tx.dirty
        try:
            return HANDLERS[type(command)](tx, command)
        except MapFull:
            results[index] = self.space.at_put()
            raise Poisoned(index, full=True) from None
        except Refused as refused:
            results[index] = refused.with_traceback(None)  # its frames refer to the results
        except Exception:
            log.exception(
                "a %s command raised; it gets INTERNAL, the other commands of its batch run", type(command).__name__
            )
            results[index] = Refused(
                "INTERNAL",
                f"the broker failed on this {type(command).__name__}",
                action="report it with the broker's log",
            )
        if tx.dirty != before:
            raise Poisoned(index)
        return results[index]

    def _timed(self, tx: Tx) -> Timed:
        """Runs one bounded piece of each due job."""
        work = Timed([], [], [], [])
        if self.next_due_ms is not None and self.next_due_ms <= tx.now_ms:
            self.timetable.run(tx, work)
        return work

    def after_fault(self, fault: MapFull | DiskFault) -> None:
        """After a failed commit: releases the disk reserve for the next. Raises CommitFailed if the disk has room."""
        full = isinstance(fault, MapFull) or self.store.is_full(fault)
        log.error("a commit failed: %s; %s", fault, "retrying its parts separately" if full else "ending")
        if not full:
            raise CommitFailed(f"a commit failed although the disk has room: {fault}") from fault
        self.store.reserve.give()
        self.space.look_again()
        self.space.scattered = False
        self.store.end_copies("a commit found no room")

    def _commit(self, tx: Tx, results: list[object], timed: Timed) -> Committed:
        """Flushes the tables, commits with a sync, and only then merges the changes into memory. A batch that wrote
        nothing makes no commit.
        """
        state = tx.state
        wrote = tx.kv.writes > 0 or bool(changed(state.flushed))
        if wrote:
            if tx.now_ms - state.counters[""].saved_ms >= SAVE_TIME_MS:
                tx.save_time()
            tx.flush()
            next_due_ms = self.timetable.next_ms(tx)
            tx.kv.commit()
            tx.merge()
            self.next_due_ms = next_due_ms
            if self.store.folding is not None:
                self.folds.committed(tx.now_ms)
            self.timetable.committed()
            for sentence in timed.given_up:
                log.warning("%s", sentence)
        else:
            self.next_due_ms = self.timetable.next_ms(tx)
            tx.merge()  # keeps what is in memory only
            tx.abort()
            self.timetable.committed()
        self._reporter.report(tx.events, tx.now_ms)
        return Committed(results, tx.woken, wrote, timed=timed, arrived=tx.arrived, events=tx.events)

    def close(self) -> None:
        """Closes the store; everything that was answered is on disk. Raises CommitFailed if the last sync failed."""
        self.store.close()


def _set_map_size(store: Store, size: int) -> None:
    """Sets the map size, in bytes; refuses one below the pages in use. Raises DiskFault; a failure changes nothing.

    See docs/decisions/0039-moving-the-limit.md.
    """
    before, reached = store.map_bytes, store.pages_reached * store.page_bytes
    with reading(store) as kv:
        used = kv.used_pages() * store.page_bytes
    if size < used:
        raise invalid(
            f"the store has {used:,} bytes in use, more than {size:,}",
            field="map_bytes",
            action="name a larger size, or delete or purge something first",
        )
    try:
        store.set_max_size(size)
    except NoMapping as error:
        raise invalid(
            str(error), field="map_bytes", action="name a smaller size, or raise what the system allows"
        ) from None
    except MapFull:
        raise NoRoom(f"{size:,} bytes leave no page for the new limit itself") from None
    log.warning("the limit of the data file is %d bytes now, it was %d; the file has %d", size, before, reached)


#: Commands that run between two transactions.
BY_CORE = ask.SetMaxSize.by(Core._set_max_size) | own.Fold.by(Folds.demanded)
_BETWEEN = frozenset(BY_CORE.handlers)

#: A type checker refuses this line while an operation of the engine's own has no handler.
COMPLETE: Handled[own.EveryOwn] = BY_WRITER | BY_CORE
