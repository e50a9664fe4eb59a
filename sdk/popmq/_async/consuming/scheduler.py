"""Runs a client's periodic jobs in the background: lease renewal, heartbeats, assignments, commits."""

import contextlib
from typing import Protocol

from popmq._async.concurrency import BackgroundLoop
from popmq._consuming.clock import Clock


class Job(Protocol):
    """Something to run whenever it is due."""

    def due(self) -> float | None:
        """When, in seconds on the client's clock; None: not now."""

    async def run(self) -> None:
        """Runs it; afterwards `due` is later."""


class Scheduler:
    """Runs each job when it is due, one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: list[Job] = []
        self._worker = BackgroundLoop("popmq-scheduler", self._step)
        self._driven = clock.drive(self.due, self._worker.run_now)

    def bind(self) -> None:
        """To be called in the event loop before the first job is due."""
        self._worker.bind()

    def add(self, job: Job) -> None:
        """Runs this job too."""
        self._jobs.append(job)
        self.wake()

    def remove(self, job: Job) -> None:
        """Runs this job no longer. It may be gone already: a client that is closed clears all."""
        with contextlib.suppress(ValueError):
            self._jobs.remove(job)

    def wake(self) -> None:
        """Looks again what is due: a job may be due sooner than before."""
        if not self._driven:
            self._worker.wake()

    def due(self) -> float | None:
        """When the next job is due."""
        return min((due for due in (job.due() for job in list(self._jobs)) if due is not None), default=None)

    def clear(self) -> None:
        """Begins no job any more."""
        self._jobs.clear()

    async def stop(self) -> None:
        """Ends the worker after the job that it runs."""
        await self._worker.stop()

    async def _step(self) -> float | None:
        for job in list(self._jobs):
            due = job.due()
            if due is not None and due <= self._clock.now():
                await job.run()
        due = self.due()
        return None if due is None else max(0.0, due - self._clock.now())
