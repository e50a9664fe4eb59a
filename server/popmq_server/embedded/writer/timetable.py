"""The timetable: all jobs in the order in which they run (jobs.py).

Each commit asks when the next piece is due. Most jobs say what can move their time (Job.moved_by), so a commit asks the
few that do not, and those whose databases it wrote. It asks all of them once one is due, and after an abort.
"""

import logging
from collections.abc import Iterable

from popmq_server.embedded.rules.topics import topic
from popmq_server.embedded.state.jobs import (
    POSTPONE_MS,
    Job,
    JobFailed,
    Timed,
)
from popmq_server.embedded.state.tx import Tx

#: A job without a next piece.
_NEVER = 1 << 63

log = logging.getLogger("popmq.core")


class Timetable:
    """Decides when the writer has to wake for a job, and which jobs then run a piece."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        self.jobs = jobs
        self._all = range(len(jobs))
        self._always = [number for number in self._all if jobs[number].moved_by is None]
        self._by_database: dict[str, list[int]] = {}
        for number, job in enumerate(jobs):
            for name in job.moved_by or ():
                self._by_database.setdefault(name, []).append(number)
        #: When the next piece of each job is due, as of the last commit, if `_known`.
        self._times = [_NEVER] * len(jobs)
        self._known = False

    def next_ms(self, tx: Tx) -> int | None:
        """When the next piece is due, right before the commit. Each commit asks, so it makes few calls."""
        times = self._times
        asked: Iterable[int] = self._all
        if self._known and min(times) > tx.now_ms:
            asked = self._always
            for name in tx.kv.touched:
                if name in self._by_database:
                    asked = [*asked, *self._by_database[name]]
        self._known = False
        for number in asked:
            job = self.jobs[number]
            due_ms = job.next_ms(tx)
            if due_ms is None:
                times[number] = _NEVER
            else:
                times[number] = max(due_ms, job.not_before()) if job.postponed else due_ms
        soonest = min(times)
        return None if soonest == _NEVER else soonest

    def due(self, tx: Tx) -> list[Job]:
        """The jobs that have a due piece."""
        times = ((job, job.next_ms(tx)) for job in self.jobs if not job.waits(tx))
        return [job for job, due_ms in times if due_ms is not None and due_ms <= tx.now_ms]

    def run(self, tx: Tx, work: Timed) -> None:
        """Runs a piece of each due job. Raises JobFailed."""
        for job in self.due(tx):
            step(job, tx, work)

    def committed(self) -> None:
        """Tells the jobs that their pieces are on disk, and keeps the times that the commit asked for."""
        self._known = True
        for job in self.jobs:
            if job.stepped:
                job.committed()


def step(job: Job, tx: Tx, work: Timed) -> None:
    """Runs one piece of one job. Raises JobFailed.

    If room is scarce it writes the messages that the piece appended at once, so a lack of pages is attributed to it.
    """
    job.begin(tx)
    with job.apart():
        job.step(tx, work)
        if tx.state.staged.changed and not tx.room.plenty:
            topic.flush(tx)


def report(failure: JobFailed) -> list[str]:
    """Logs a failed job; returns its name. A full map is not a fault of the broker: refused commands report it."""
    if failure.full:
        return []
    log.exception("%s failed; it is tried again in %d s", failure, POSTPONE_MS // 1000)
    return [failure.job.name]
