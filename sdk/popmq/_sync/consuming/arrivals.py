# Written by sdk/twin.py from popmq/_async/consuming/arrivals.py: change that one.
"""Delivers pulled messages, one queue after the other, so that a full queue does not delay the others."""

from typing import Protocol

from popmq._sync.concurrency import Event, Lock
from popmq.errors import PopMQError
from popmq.message import Delivery


class Source(Protocol):
    """A queue with messages to deliver. Both methods are called under the lock."""

    def take(self, now: float) -> Delivery | None:
        """The next delivery, if there is one."""

    def waiting(self, now: float) -> bool:
        """Whether `take` would return a delivery."""


class Arrivals:
    """The sources that may have messages, and the event that wakes the task or thread that waits for them."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._sources: dict[Source, None] = {}  # an ordered set
        self._news = Event()
        self._error: PopMQError | None = None

    def offer(self, source: Source) -> None:
        """This source may have messages."""
        with self._lock:
            self._sources.setdefault(source)
        self._news.set()

    def offered(self, source: Source) -> bool:
        """Whether it is looked at by one of the next calls of `next`. The caller holds the lock."""
        return source in self._sources

    def fail(self, error: PopMQError) -> None:
        """Ends the loop of the consumer with this error."""
        self._error = self._error or error
        self._news.set()

    def wake(self) -> None:
        """Ends a `wait`."""
        self._news.set()

    def next(self, now: float, paused: bool) -> Delivery | None:
        """The next delivery, of each source in turn; none while `paused`. Raises what `fail` was given."""
        self._news.clear()
        if self._error is not None:
            raise self._error
        if paused:
            return None
        with self._lock:
            while self._sources:
                source = next(iter(self._sources))
                del self._sources[source]
                if (delivery := source.take(now)) is not None:
                    if source.waiting(now):
                        self._sources[source] = None
                    return delivery
        return None

    def news(self) -> bool:
        """Whether anything happened since the last `next`."""
        return self._news.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Waits up to `seconds` for anything to happen since the last `next`. False: nothing did."""
        return self._news.wait(seconds)
