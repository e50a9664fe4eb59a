"""Runs a commit batch in parts: after a commit that met a full map or disk, and while the store is nearly full.

    acks … │ job │ job │ … │ sends, pops      one transaction each; if it fails, the commands run again without
                                              those that need room, then one by one, then UNAVAILABLE;
                                              a job is postponed, and its next piece is smaller

A commit may lack pages although some are free: a long value needs adjacent ones. Then the commands are halved until it
is alone. They are halved too if many failed after they wrote.
"""

from typing import Protocol

from popmq_server.clock import Clock
from popmq_server.contract.operations import LANE_ACK
from popmq_server.embedded.state import jobs
from popmq_server.embedded.state.jobs import Timed
from popmq_server.embedded.state.space import Space
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer import timetable
from popmq_server.embedded.writer.batch import Batch, Committed, TimesWork, TooManyPoisoned, joined, nothing
from popmq_server.embedded.writer.breaches import Breaches
from popmq_server.errors import NoRoom, Refused, not_written

#: Consecutive failures of single commands after which the rest of the batch is not tried.
GIVE_UP_AFTER = 3
#: At most this many halvings of one batch; the rest is tried without commands that need room, then one by one.
HALVINGS_MAX = 32


class Attempts(Protocol):
    """The part of Core that InParts uses."""

    clock: Clock
    store: Store
    space: Space
    breaches: Breaches
    next_due_ms: int | None

    def attempt(self, batch: Batch, order: list[int], time: TimesWork, *, shut: bool = False) -> Committed:
        """One transaction of commands and due jobs. Raises TooManyPoisoned, and MapFull or DiskFault of its commit."""

    def after_fault(self, fault: MapFull | DiskFault) -> None:
        """After a failed commit: releases the disk reserve for the next. Raises CommitFailed if the disk has room."""

    def due_jobs(self) -> list[jobs.Job]:
        """The jobs that have a due piece."""

    def look_ahead(self) -> None:
        """Computes `next_due_ms` from the timetable."""


class InParts:
    """One batch."""

    def __init__(self, core: Attempts, batch: Batch) -> None:
        self._core = core
        self._batch = batch
        self._halvings = 0

    def run(self, order: list[int], shut: bool) -> Committed:
        """Runs acks, each due job, and the other commands in separate transactions, in the usual order.

        This isolates the part whose commit lacks pages, so it can be retried alone or with smaller bounds.
        """
        acks = [index for index in order if self._batch.lane(index) == LANE_ACK]
        parts = [self._alone(acks, shut)]
        if self._core.next_due_ms is not None and self._core.next_due_ms <= self._core.clock.now_ms():
            parts += [self._job_alone(job, shut) for job in self._core.due_jobs()]
            self._core.look_ahead()
        others = [index for index in order if self._batch.lane(index) != LANE_ACK]
        parts.append(self._alone(others, shut))
        journal = self._core.store.folding
        if journal is not None and journal.unsure:
            self._weaken(order)
        return joined(self._batch.results, parts)

    def _weaken(self, order: list[int]) -> None:
        """STORAGE_FULL says that nothing was stored, UNAVAILABLE does not."""
        for index in order:
            if isinstance(self._batch.results[index], NoRoom):
                self._batch.results[index] = not_written("what was asked for may be there after the next start")

    def _job_alone(self, job: jobs.Job, shut: bool) -> Committed:
        """One piece of one job. If its commit fails the job is postponed, and its next piece is smaller."""

        def piece(tx: Tx) -> Timed:
            work = Timed([], [], [], [])
            if not job.waits(tx):
                timetable.step(job, tx, work)
            return work

        try:
            return self._core.attempt(Batch([]), [], piece, shut=shut)
        except (MapFull, DiskFault) as fault:
            self._core.after_fault(fault)
            failure = jobs.JobFailed(job, None, full=True, no_pages=isinstance(fault, MapFull))
            job.failed(failure, self._core.clock.now_ms())
            return Committed([], set(), False)
        except TooManyPoisoned as end:  # what the piece left for the end of the transaction broke an invariant
            failure = jobs.JobFailed(job, None, full=False)
            failure.__cause__ = end.__cause__
            self._core.breaches.note_job(failure)
            job.failed(failure, self._core.clock.now_ms())
            return Committed([], set(), False, failures=timetable.report(failure), broken=self._core.breaches.take())

    def _alone(self, order: list[int], shut: bool) -> Committed:
        """Runs commands without jobs: together (halved, if a long value lacks adjacent pages or many failed), then
        refusing those that need room, then one by one.
        """
        for closed in () if not order else (True,) if shut else (False, True):
            try:
                return self._core.attempt(self._batch, order, nothing, shut=closed)
            except (MapFull, DiskFault) as fault:
                self._core.after_fault(fault)
                self._core.space.scattered = not closed and isinstance(fault, MapFull) and self._core.space.has_pages()
                if self._core.space.scattered and len(order) > 1 and self._halvings < HALVINGS_MAX:
                    self._halvings += 1
                    return self._halved(order, False)
            except TooManyPoisoned:  # `order` is shorter now, so this ends
                return self._halved(order, closed)
        if len(order) > 1:
            return self._one_by_one(order)
        for index in order:
            self._batch.results[index] = not_written("even this small change could not be written")
        return Committed(self._batch.results, set(), False)

    def _halved(self, order: list[int], shut: bool) -> Committed:
        """Runs the two halves of some commands apart; each may be halved again."""
        half = len(order) // 2
        return joined(self._batch.results, [self._alone(part, shut) for part in (order[:half], order[half:])])

    def _one_by_one(self, order: list[int]) -> Committed:
        """Runs each command alone. Stops after GIVE_UP_AFTER failures in a row: each is a write to a failing disk."""
        parts: list[Committed] = []
        failed = 0
        for index in order:
            if failed < GIVE_UP_AFTER:
                parts.append(self._alone([index], True))
                result = self._batch.results[index]
                failed = failed + 1 if isinstance(result, Refused) and result.code == "UNAVAILABLE" else 0
            else:
                self._batch.results[index] = not_written("earlier commands could not be written")
        return joined(self._batch.results, parts)
