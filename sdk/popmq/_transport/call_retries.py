"""Decides whether and when a failed call is tried again. Pure: the caller gives the time."""

from typing import Any

from popmq._given.fields import ms
from popmq._transport.call import Call
from popmq.config import Retry
from popmq.errors import DeadlineExceeded, PopMQError, Unavailable


class Stopped(Exception):
    """A call was cancelled because its caller stops. Never raised to users."""


class CallRetries:
    """The tries of one call: their time limits and the pauses between them. `now`: seconds of any clock."""

    def __init__(self, call: Call[Any], limit: float, retry: Retry, now: float) -> None:
        self._call = call
        self._retry = retry
        self._deadline = now + call.wait + limit
        self._wait_until = now + call.wait
        self._reach_until = now + retry.reach
        self._before: PopMQError | None = None
        self.count = 0
        self.uncertain = False  # an earlier try may have been carried out, though its answer was lost

    def start(self, now: float) -> float:
        """Starts a try; returns the seconds it may take. A long poll that is retried waits for the rest of its time."""
        self.count += 1
        if self.count > 1 and self._call.wait:
            self._call.request.wait_ms = max(0, ms(self._wait_until - now))
        if self.uncertain and self._call.marked:
            self._call.request.repeated_try = True
        return max(self._deadline - now, 0.001)

    def failed(self, error: PopMQError, now: float, sent: bool = True) -> float:
        """Seconds to pause before the next try. Raises `error` when there is none. When only the deadline has passed,
        raises the error of the try before, which says more. `sent`: whether the broker may have got the request.
        """
        if isinstance(error, DeadlineExceeded) and self._before is not None:
            raise self._before
        self._before = error
        self.uncertain = self.uncertain or (sent and isinstance(error, Unavailable))
        if not error.retryable or self._call.once or self.count == self._retry.tries:
            raise error
        pause = self._retry.pause(self.count, error.retry_after)
        give_up = self._reach_until if isinstance(error, Unavailable) else self._deadline
        if now + pause >= min(give_up, self._deadline):
            raise error
        return pause
