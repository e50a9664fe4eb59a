"""The timetable: all jobs in the order in which they have their turn, and one piece of a job (jobs.py)."""

from popmq_server.state.jobs import Job, Timed
from popmq_server.state.tx import Tx
from popmq_server.topics import topic


class Timetable:
    """All jobs, in the order in which they have their turn."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        self.jobs = jobs

    def next_ms(self, tx: Tx) -> int | None:
        """When the next piece is due."""
        times = [max(due_ms, job.not_before()) for job in self.jobs if (due_ms := job.next_ms(tx)) is not None]
        return min(times, default=None)

    def due(self, tx: Tx) -> list[Job]:
        """The jobs that have a piece to do now."""
        times = ((job, job.next_ms(tx)) for job in self.jobs if not job.waits(tx))
        return [job for job, due_ms in times if due_ms is not None and due_ms <= tx.now_ms]

    def run(self, tx: Tx, did: Timed) -> None:
        """A piece of each job that is due. Raises JobFailed."""
        for job in self.due(tx):
            step(job, tx, did)

    def committed(self) -> None:
        """What was run is on disk."""
        for job in self.jobs:
            job.committed()


def step(job: Job, tx: Tx, did: Timed) -> None:
    """One piece of one job. Raises JobFailed.

    Where room is scarce the messages that it appended are written at once: a lack of pages is then known to be its.
    """
    job.begun()
    with job.apart():
        job.step(tx, did)
        if tx.staged and not tx.room.plenty:
            topic.flush(tx)
