"""The clock of what a client does in the background, such as lease renewal. A parameter, so that tests can move it
(popmq.testing).
"""

from collections.abc import Callable
from typing import Protocol

from popmq_http2.elapsed import monotonic


class Clock(Protocol):
    """What consumers and their background jobs need of a clock."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        """True: this clock calls `run` itself whenever `due()` is reached. False: the caller must wait."""


class SystemClock:
    """The real clock."""

    def now(self) -> float:
        return monotonic()

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        return False
