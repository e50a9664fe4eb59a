"""How many messages a worker holds of a topic: those that it handles, and those that it will begin in a moment.

A process that held more would keep them from idle processes for as long as its handlers run: minutes or hours, since
the leases of what it holds are renewed. Handlers that take a millisecond need a stock, or each would wait for a pop.
"""

from collections.abc import Callable

from popmq_http2.elapsed import monotonic

#: Seconds of work that may be held ahead.
AHEAD_S = 0.1
#: The share of the last message in the mean duration.
WEIGHT = 0.1


class Pace:
    """How fast one handler works."""

    def __init__(self, concurrency: int, most: int, clock: Callable[[], float] = monotonic) -> None:
        self._concurrency = concurrency
        self._most = max(most, concurrency)
        self._clock = clock
        self._mean: float | None = None  # seconds; None: nothing was finished yet
        self._running: dict[int, float] = {}  # when each delivery began; the oldest is the first

    def begin(self, delivery: int) -> None:
        """The handler was called."""
        self._running[delivery] = self._clock()

    def end(self, delivery: int) -> None:
        """It returned or raised."""
        took = self._clock() - self._running.pop(delivery)
        self._mean = took if self._mean is None else self._mean + WEIGHT * (took - self._mean)

    def limit(self) -> int:
        """How many messages to hold, those that are handled included."""
        if self._mean is None:
            return self._concurrency
        oldest = next(iter(self._running.values()), None)
        running = self._clock() - oldest if oldest is not None else 0.0
        seconds = max(self._mean, running, AHEAD_S / self._most)
        return min(self._most, self._concurrency + int(self._concurrency * AHEAD_S / seconds))
