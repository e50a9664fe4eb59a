"""Starts again what Spark gives up: it waits ten seconds for a Python process of its own, whatever its settings are.

On a busy machine such a process takes longer to start. And a killed one ends a query, unless it ran one of the tasks,
which Spark repeats by itself.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql.streaming.query import StreamingQuery

#: How Spark's errors name a Python process that came too late, or has ended.
GIVEN_UP = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker",
    "Python worker exited unexpectedly",
)
#: Of one job or query, the first included.
TRIES = 10
LOOK_SECONDS = 0.25

Result = TypeVar("Result")


def is_given_up(error: BaseException) -> bool:
    """Whether Spark gave up on one of its Python processes: the same job may well succeed."""
    return any(text in str(error) for text in GIVEN_UP)


def repeated(job: Callable[[], Result]) -> Result:
    """The result of `job`, which may be run ten times. Raises its last error, and other errors at once."""
    for _ in range(TRIES - 1):
        try:
            return job()
        except Exception as error:
            if not is_given_up(error):
                raise
    return job()


class Query:
    """A streaming query that begins again at its checkpoint when Spark has given it up. `start` starts it."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._tries = TRIES - 1
        self._running = repeated(start)

    @property
    def batches(self) -> dict[int, int]:
        """Its last micro-batches since it was started: number → rows."""
        return {progress.batchId: progress.numInputRows for progress in self._running.recentProgress}

    def revive(self) -> bool:
        """Starts the query again if Spark has given it up, and tells so. Raises any other error that ended it."""
        error = self._running.exception()
        if error is None:
            return False
        if not self._tries or not is_given_up(error):
            raise error
        self._tries -= 1
        self._running = repeated(self._start)
        return True

    def finish(self) -> None:
        """Waits for the end of a query that has one. Raises the error that ended it."""
        while self._running.isActive or self.revive():
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        self._running.stop()


def sentence(error: BaseException) -> str:
    """An error in one line: those of Spark go on with a plan, or with the calls that led to it."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
