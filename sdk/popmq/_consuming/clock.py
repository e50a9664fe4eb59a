"""The clock of what a client does in the background, such as lease renewal. A parameter, so that tests can move it
(popmq.testing).
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What consumers and their background jobs need of a clock."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        """True: this clock calls `run` itself whenever `due()` is reached. False: the caller must wait."""


class SystemClock:
    """The real clock. It keeps the function, since libraries for tests (freezegun) replace the one of `time` by a clock
    that stands still: a consumer would never be idle, and would renew no lease.
    """

    _monotonic = staticmethod(time.monotonic)

    def now(self) -> float:
        return self._monotonic()

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        return False
