"""The tries of one call: what to do after an error, decided without a clock of its own."""

from typing import Any

from popmq._calls import Call, ms
from popmq.config import Retry
from popmq.errors import DeadlineExceeded, PopMQError, Unavailable


class Stopped(Exception):
    """A call was given up because its caller stops. Never seen outside of the SDK."""


class CallRetries:
    """Says how long the next try may take, and after which pause it comes. `now` is any clock in seconds."""

    def __init__(self, call: Call[Any], limit: float, retry: Retry, now: float) -> None:
        self._call = call
        self._retry = retry
        self._deadline = now + call.wait + limit
        self._wait_until = now + call.wait
        self._before: PopMQError | None = None
        self.count = 0
        self.uncertain = False  # an earlier try may have been done, though its answer was lost

    def start(self, now: float) -> float:
        """Begins a try; returns the seconds it may take. A park that is tried again waits for what is left of it."""
        self.count += 1
        if self.count > 1 and self._call.wait:
            self._call.request.wait_ms = max(0, ms(self._wait_until - now))
        return max(self._deadline - now, 0.001)

    def failed(self, error: PopMQError, now: float) -> float:
        """Seconds to pause before the next try. Raises when there shall be none: `error`, or, when only the time ran
        out, what went wrong before, which says more.
        """
        if isinstance(error, DeadlineExceeded) and self._before is not None:
            raise self._before
        self._before = error
        self.uncertain = self.uncertain or isinstance(error, Unavailable)
        if not error.retryable or self._call.once or self.count == self._retry.tries:
            raise error
        pause = self._retry.pause(self.count, error.retry_after)
        if now + pause >= self._deadline:
            raise error
        return pause
