"""Waiting for a broker that is away for a while: restarting, or not reachable.

The SDK retries a call for moments; a query must outlive minutes, because a failed driver method ends it.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import popmq

Answer = TypeVar("Answer")

_PAUSE_FIRST, _PAUSE_MAX = 0.05, 2.0

_log = logging.getLogger("popmq_spark")


def patiently(call: Callable[[], Answer], patience: float, stopped: threading.Event | None = None) -> Answer:
    """Calls until it succeeds, or `patience` seconds after the first transient error; then that error is raised.

    An error is transient when the broker, or the SDK, says so (`retryable`); any other is raised at once. `stopped`
    ends the wait early, with the error.
    """
    stopped = stopped or threading.Event()
    deadline: float | None = None
    pause = _PAUSE_FIRST
    while True:
        try:
            return call()
        except popmq.PopMQError as error:
            deadline = deadline or time.monotonic() + patience
            if not error.retryable or time.monotonic() + pause > deadline:
                raise
            _log.warning("the broker does not answer (%s); trying again for %.0f s", error, deadline - time.monotonic())
        if stopped.wait(pause):
            patience, deadline = 0.0, time.monotonic()
        pause = min(pause * 2, _PAUSE_MAX)
