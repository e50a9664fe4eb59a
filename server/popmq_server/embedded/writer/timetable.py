"""The timetable: all jobs in the order in which they run (jobs.py)."""

import logging

from popmq_server.embedded.rules.topics import topic
from popmq_server.embedded.state.jobs import (
    POSTPONE_MS,
    Job,
    JobFailed,
    Timed,
)
from popmq_server.embedded.state.tx import Tx

log = logging.getLogger("popmq.core")


class Timetable:
    """Decides when the writer has to wake for a job, and which jobs then run a piece."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        self.jobs = jobs

    def next_ms(self, tx: Tx) -> int | None:
        """When the next piece is due. Each commit asks: so it makes no call for a job that is not postponed."""
        times = [
            max(due_ms, job.not_before()) if job.postponed else due_ms
            for job in self.jobs
            if (due_ms := job.next_ms(tx)) is not None
        ]
        return min(times, default=None)

    def due(self, tx: Tx) -> list[Job]:
        """The jobs that have a due piece."""
        times = ((job, job.next_ms(tx)) for job in self.jobs if not job.waits(tx))
        return [job for job, due_ms in times if due_ms is not None and due_ms <= tx.now_ms]

    def run(self, tx: Tx, work: Timed) -> None:
        """Runs a piece of each due job. Raises JobFailed."""
        for job in self.due(tx):
            step(job, tx, work)

    def committed(self) -> None:
        """Tells the jobs that their pieces are on disk."""
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
