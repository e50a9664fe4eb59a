"""The time that leases are renewed by. A parameter, so that a test may move it (popmq.testing)."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What the lease keeper asks of time."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        """True: this clock calls `run` by itself whenever `due()` has come. False: it passes, as time does."""


class SystemClock:
    """The real one."""

    def now(self) -> float:
        return time.monotonic()

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        return False
