"""Starts again what Spark gives up: it waits ten seconds for a Python process of its own, whatever its settings are.

On a busy machine such a process takes longer to start. And a killed one ends a query, unless it ran one of the tasks,
which Spark repeats by itself. So what was given up waits, longer each time, and only one query starts at a time: each
start takes both cores.
"""

import re
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from pyspark.sql.streaming.query import StreamingQuery

#: How Spark's errors name a Python process that came too late, or has ended.
GIVEN_UP = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker",
    "Python worker exited unexpectedly",
    "Python daemon failed to launch worker",
    # While Spark was writing to it, or reading the beginning of an answer.
    "Broken pipe",
    "Connection reset",
)
#: The pause before the second try, and the longest of those that follow, each of which is twice the last one.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 30.0
#: How long something may be given up again and again without a success in between.
LIMIT_SECONDS = 600.0
LOOK_SECONDS = 0.25

#: How the status of a query begins until its source has a Python process.
STARTING = "Initializing"
#: What an error of a query begins with.
_OF_QUERY = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")

Result = TypeVar("Result")


class Clock(Protocol):
    """What is used of the module `time`."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class GivenUpError(RuntimeError):
    """Spark has given up the same thing for too long."""


def is_given_up(error: BaseException) -> bool:
    """Whether Spark gave up on one of its Python processes: the same job may well succeed."""
    return any(text in str(error) for text in GIVEN_UP)


def sentence(error: BaseException) -> str:
    """An error in one line: those of Spark go on with a plan, or with the calls that led to it."""
    return _OF_QUERY.sub("", next(iter(str(error).strip().splitlines()), type(error).__name__))


class Patience:
    """The pauses of one query or job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.succeeded()

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._failing_since: float | None = None
        self._pause = PAUSE_SECONDS

    def after(self, error: Exception) -> float:
        """When to try again. Raises `error` if it is of another kind, and GivenUpError after the limit."""
        if not is_given_up(error):
            raise error
        now = self._clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since >= LIMIT_SECONDS:
            raise GivenUpError(
                f"Spark has no Python process for {LIMIT_SECONDS / 60:.0f} minutes, the machine is too busy: "
                f"{sentence(error)}"
            ) from error
        pause, self._pause = self._pause, min(2 * self._pause, PAUSE_SECONDS_MAX)
        return now + pause


def repeated(job: Callable[[], Result], clock: Clock = time) -> Result:
    """The result of `job`, which is run again while Spark gives it up. Raises other errors at once."""
    patience = Patience(clock)
    while True:
        try:
            return job()
        except Exception as error:
            due = patience.after(error)
        clock.sleep(max(0.0, due - clock.monotonic()))


class Query:
    """A streaming query that begins again at its checkpoint when Spark has given it up. `start` starts it."""

    def __init__(self, start: Callable[[], StreamingQuery], clock: Clock) -> None:
        self._start, self._clock = start, clock
        self._patience = Patience(clock)
        self._due = clock.monotonic()
        self._running: StreamingQuery | None = None
        #: Its micro-batches: number → rows.
        self.batches: dict[int, int] = {}

    @property
    def is_starting(self) -> bool:
        """Whether Spark is starting the Python process of its source."""
        query = self._running
        return query is not None and query.isActive and query.status["message"].startswith(STARTING)

    @property
    def has_ended(self) -> bool:
        """Whether it has come to its end."""
        return self._running is not None and not self._running.isActive and self._running.exception() is None

    def look(self, may_start: bool) -> str:
        """Starts it when it is due. Returns the error by which Spark gave it up since the last look, or "".

        Raises any other error that ended it, and GivenUpError.
        """
        try:
            if self._running is None:
                if may_start and self._clock.monotonic() >= self._due:
                    self._running = self._start()
            else:
                self._follow(self._running)
        except Exception as error:
            self._running, self._due = None, self._patience.after(error)
            return sentence(error)
        return ""

    def _follow(self, running: StreamingQuery) -> None:
        error = running.exception()
        batches = {progress.batchId: progress.numInputRows for progress in running.recentProgress}
        if batches.keys() - self.batches.keys():
            self._patience.succeeded()
        self.batches |= batches
        if error is not None:
            raise error

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()


class Queries:
    """Several queries, of which only one starts at a time."""

    def __init__(self, *starts: Callable[[], StreamingQuery], clock: Clock = time) -> None:
        self._clock = clock
        self._queries = [Query(start, clock) for start in starts]

    def look(self) -> list[str]:
        """Follows each. Returns the errors by which Spark gave up some; raises as `Query.look` does."""
        said = []
        for query in self._queries:
            others = (other for other in self._queries if other is not query)
            said.append(query.look(may_start=not any(other.is_starting for other in others)))
        return [text for text in said if text]

    @property
    def batches(self) -> list[dict[int, int]]:
        """The micro-batches of each query: number → rows."""
        return [query.batches for query in self._queries]

    def finish(self, say: Callable[[str], None]) -> None:
        """Waits until all have come to their ends; `say` gets each error by which Spark gave one up."""
        while not all(query.has_ended for query in self._queries):
            for text in self.look():
                say(text)
            self._clock.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        for query in self._queries:
            query.stop()
