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
    an invariant is broken                 its command gets INTERNAL, the batch runs again without it: breaches.py
    the commit meets a full map or disk    the disk reserve is released, and the batch runs in parts: nearly_full.py
    the store is nearly full (space.tight) each batch runs in parts, within the room that is left
    the commit fails with room on disk     UNAVAILABLE for all, and the process ends

`HANDLERS` names the function of each command. This module uses no thread and no socket: tests call `Core.run` with a
store, commands and a clock.
"""

import logging
from collections.abc import Sequence
from typing import Final

from popmq_server.clock import Clock, stopwatch
from popmq_server.contract import commands as ask
from popmq_server.contract.operations import LANE_ACK, LANE_POP, Handled, Operation
from popmq_server.embedded import operations as own
from popmq_server.embedded.fsck import at_start
from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.rules.delivery import (
    deadletter,
    lease,
    owner,
    pop,
    revive,
    session_lease,
    subscription,
    token_pop,
)
from popmq_server.embedded.rules.delivery.fair import reading as reading_ahead
from popmq_server.embedded.rules.inspect import browse, look_up, stats, trace, why
from popmq_server.embedded.rules.lite import failed_requests, lite_pop, lite_sync
from popmq_server.embedded.rules.lite.lite_send import LitePlacing
from popmq_server.embedded.rules.operate import end_lease, idle_subscriptions, message_groups, purge, redrive
from popmq_server.embedded.rules.pulling import consume_mode, offsets, pull, send_back
from popmq_server.embedded.rules.results import found, places, stored
from popmq_server.embedded.rules.retention.by_size import with_room
from popmq_server.embedded.rules.schedules import occurrences, schedules
from popmq_server.embedded.rules.sending import (
    check_back,
    delay,
    end_transaction,
    publishing,
    release_delayed,
    send,
    settle,
    stages,
    transaction,
)
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.topics import backlog, consumer_groups, lite_chunks, topic, topic_lifecycle
from popmq_server.embedded.rules.topics.index import MergingBlocks
from popmq_server.embedded.state import jobs, loading, space
from popmq_server.embedded.state.events import Reporter
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.store.store import Store, reading
from popmq_server.embedded.store.table import changed
from popmq_server.embedded.writer import coalescing, housekeeping, max_size, rebase, timetable
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
from popmq_server.embedded.writer.breaches import Breaches
from popmq_server.embedded.writer.folds import Folds
from popmq_server.embedded.writer.nearly_full import InParts
from popmq_server.errors import FREE_DISK, CommitFailed, NoRoom, Refused
from popmq_server.values.leased import Leased
from popmq_server.values.records import Topic

log = logging.getLogger("popmq.core")

#: Commands of one transaction that may fail after they wrote; with more, the others run in parts: each costs a run.
POISONED_MAX = 4
#: Minimum interval between two saves of the broker's time.
SAVE_TIME_MS = 1000


# ── Handlers ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Which function of the rules runs which command or query: each takes the transaction and the object, and returns the
# answer or raises Refused. The answer of one with `begun_by` is only the beginning: the event loop makes the whole
# (loop/in_pieces.py, loop/broker.py).


@with_room
def send_messages(tx: Tx, command: ask.Send) -> ask.Sent:
    """Stores messages: in lite topics, or in the queues of a topic."""
    topic = send.expect_topic(tx, command.topic)
    return send.send(tx, command, topic, _placing(topic))


def _placing(topic: Topic) -> type[Placing]:
    return LitePlacing if topic.type == "LITE" else Placing


def pop_messages(tx: Tx, command: ask.Pop) -> Leased:
    """Leases deliverable messages: under an owner's token, of lite topics, or of a topic."""
    if command.token:
        return token_pop.pop(tx, command, command.token)
    return pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)


def settle_messages(tx: Tx, command: ask.Settle) -> ask.Settled:
    """Ends deliveries and stores messages, all in one."""
    return settle.settle(tx, command, _placing)


BY_WRITER = (
    ask.Send.by(send_messages)
    | ask.Pop.begun_by(pop_messages)
    | ask.Ack.by(lease.ack)
    | ask.ChangeInvisibleTime.by(lease.change)
    | ask.Settle.begun_by(settle_messages)
    | ask.EndLease.by(end_lease.end)
    | ask.AttachOwner.by(owner.attach)
    | ask.RenewOwner.by(owner.renew)
    | ask.AckUpTo.by(owner.ack_up_to)
    | ask.ReleaseOwner.by(owner.release)
    | ask.RenewSession.begun_by(session_lease.renew)
    | own.NextRenewal.by(session_lease.renew)
    | ask.ReleaseSession.begun_by(session_lease.release)
    | own.NextRelease.by(session_lease.release)
    | ask.Available.by(token_pop.available)
    | ask.CreateTopic.by(topic_lifecycle.create_topic)
    | ask.UpdateTopic.by(topic_lifecycle.update_topic)
    | ask.DeleteTopic.by(topic_lifecycle.delete_topic)
    | ask.PurgeTopic.begun_by(purge.purge_topic)
    | own.NextPurge.by(purge.purge_topic)
    | ask.CreateGroup.by(consumer_groups.create_group)
    | ask.UpdateGroup.by(consumer_groups.update_group)
    | ask.DeleteGroup.by(consumer_groups.delete_group)
    | ask.SetFilter.by(subscription.set_filter)
    | ask.ResumeMessageGroup.begun_by(message_groups.resume)
    | ask.Pull.by(pull.pull)
    | ask.UpdateOffsets.begun_by(offsets.update)
    | ask.QueryOffsets.by(offsets.query)
    | own.NextOffsets.by(offsets.query)
    | ask.ResetOffsets.begun_by(offsets.reset)
    | ask.CloneOffsets.begun_by(offsets.clone)
    | ask.SetConsumeMode.begun_by(consume_mode.set_consume_mode)
    | ask.SendBack.by(send_back.send_back)
    | own.Attend.by(idle_subscriptions.attend)
    | own.Sweep.by(offsets.go_on)
    | own.ReadAhead.by(reading_ahead.go_on)
    | ask.SyncLite.by(lite_sync.sync)
    | ask.Recall.by(delay.recall)
    | ask.Reschedule.by(delay.reschedule)
    | ask.EndTransaction.by(end_transaction.end)
    | ask.Stage.by(stages.stage)
    | ask.CommitBatch.by(stages.commit)
    | ask.DropStages.by(stages.drop)
    | own.CountChecks.by(check_back.count)
    | own.Listen.by(check_back.listen)
    | own.RedrivePiece.by(redrive.redrive)
    | own.DiscardPiece.by(redrive.discard)
    | own.FindDeadLetters.by(redrive.find)
    | ask.CreateSchedule.by(schedules.create)
    | ask.DeleteSchedule.by(schedules.delete)
    | ask.PauseSchedule.by(schedules.pause)
    | ask.RunSchedule.by(schedules.run)
    | ask.StoreResults.by(stored.store_given)
    | ask.ForgetResults.by(stored.forget)
    | own.ResultsPiece.by(found.find)
    | own.LookUpPiece.by(look_up.look_up)
    | own.PeekPiece.by(pop.peek)
    | own.Trace.by(trace.trace)
    | own.WhyPiece.by(why.lives)
    | ask.queries.Topics.by(stats.topics)
    | own.TopicNames.by(stats.topic_names)
    | ask.queries.Groups.by(stats.groups)
    | ask.queries.GroupSettings.by(stats.group_settings)
    | ask.queries.Subscriptions.by(stats.subscriptions)
    | own.TermsOf.by(consume_mode.terms)
    | ask.queries.HeldBy.by(stats.held_by)
    | ask.queries.SessionHandle.by(session_lease.handle_of)
    | ask.queries.Leases.by(stats.leases)
    | ask.queries.Owners.by(stats.owners)
    | ask.queries.MessageGroups.by(message_groups.listed)
    | ask.queries.Delayed.by(delay.listed)
    | ask.queries.Transactions.by(transaction.listed)
    | ask.queries.Schedules.by(schedules.listed)
    | ask.queries.Browse.by(browse.browse)
    | own.StoreState.by(stats.store)
)

HANDLERS: Final = BY_WRITER.handlers


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
        self.breaches = Breaches()
        self._reporter = Reporter()
        try:
            self._load()
        except BaseException:
            store.close()
            raise
        now_ms = self.state.started_ms = clock.now_ms()
        tidying = (*housekeeping.jobs(now_ms), MergingBlocks(now_ms), places.Listing(now_ms), *lite_chunks.jobs(store))
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
            at_start.verify(kv, self.state)
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
        if self.store.folding is not None:
            self.folds.if_due()
        batch = Batch(commands)
        order = sorted(range(len(commands)), key=batch.lane)
        if not _BETWEEN.isdisjoint(map(type, commands)):
            order = self._between(batch, order)
        shut = False
        if not self.space.tight:
            try:
                return self.attempt(batch, order, self._timed)
            except (MapFull, DiskFault) as fault:
                self.after_fault(fault)
                shut = isinstance(fault, DiskFault)
            except TooManyPoisoned:
                pass
        return InParts(self, batch).run(order, shut)._replace(seconds=stopwatch() - batch.began)

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
            max_size.set_max_size(self.store, command.size)
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
                committed = self._commit(tx, batch, self._run(tx, batch, order, time), failures)
                batch.answered = batch.answering
                return committed
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
                self.breaches.note_job(failure)
                failure.job.failed(failure, tx.now_ms)
            except BrokenInvariant as broken:
                tx.abort()
                self.breaches.note_end(broken, batch, order, time)
            except BaseException as error:
                tx.abort()
                if not isinstance(error, MapFull) or not self.folds.make_room():
                    raise

    def _begin_with_room(self, shut: bool) -> Tx:
        """Begins a transaction with its Room. If freed pages are needed, makes a commit first that releases them."""
        tx = self._with_room(shut)
        if tx.room.plenty or not self.space.recovers:
            return tx
        try:
            self.folds.allow(0)  # a record of the journal would release none
            tx.save_time()
            tx.flush()
            tx.kv.commit()
            tx.merge()
        except BaseException as fault:
            tx.abort()
            if isinstance(fault, DiskFault):
                self.after_fault(fault)
            elif not isinstance(fault, MapFull):
                raise
        return self._with_room(shut)

    def _with_room(self, shut: bool) -> Tx:
        tx = Tx(self.state, self.store, self.clock.now_ms(), self.clock.wall_ms())
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

    def _run(self, tx: Tx, batch: Batch, order: list[int], time: TimesWork) -> jobs.Timed:
        """Runs the commands lane by lane. Due jobs run between acks and sends, so an ack in this batch takes effect
        before the revive.
        """
        timed: jobs.Timed | None = None
        alike = coalescing.Alike(batch, order) if batch.as_one else None
        for index in order:
            lane = (command := batch.commands[index]).lane
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
        if deadletter.FAILED_REQUESTS in tx.scratch:
            failed_requests.tell(tx)
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
        except BrokenInvariant as broken:  # poisoned also if it wrote nothing: it does not run again
            results[index] = self.breaches.note(broken, f"a {type(command).__name__} command")
            raise Poisoned(index) from None
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

    def _timed(self, tx: Tx) -> jobs.Timed:
        """Runs one bounded piece of each due job."""
        work = jobs.Timed([], [], [], [])
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

    def _commit(self, tx: Tx, batch: Batch, timed: jobs.Timed, failures: list[str]) -> Committed:
        """Flushes the tables, commits with a sync, and only then merges the changes into memory. A batch that wrote
        nothing makes no commit.
        """
        wrote = tx.kv.writes > 0 or bool(changed(tx.state.flushed))
        if wrote:
            if tx.now_ms - tx.state.counters[""].saved_ms >= SAVE_TIME_MS:
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
        seconds = stopwatch() - batch.began
        told = tx.resulted or (), tx.events, failures, self.breaches.take(), tx.served or ()
        return Committed(batch.results, tx.woken, wrote, seconds, timed, tx.arrived, *told)

    def close(self) -> None:
        """Closes the store; everything that was answered is on disk. Raises CommitFailed if the last sync failed."""
        self.store.close()


#: Commands that run between two transactions.
BY_CORE = ask.SetMaxSize.by(Core._set_max_size) | own.Fold.by(Folds.demanded)
_BETWEEN = frozenset(BY_CORE.handlers)

#: A type checker refuses this line while an operation of the engine's own has no handler.
COMPLETE: Handled[own.EveryOwn] = BY_WRITER | BY_CORE
