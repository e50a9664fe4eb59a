"""The budget of a connection: points that frames cost which are cheap for a client and not for us (limits.py)."""

from time import monotonic

from popmq_http2.frames import ENHANCE_YOUR_CALM, ConnectionFault
from popmq_http2.limits import Limits

#: Points that come back with a call that was answered in full, and with this many bytes that were sent: clients that
#: work send window updates and pings because of it.
CALL_POINTS = 8
POINT_BYTES = 1024


class Budget:
    """A token bucket. The time is looked at only when it seems empty."""

    __slots__ = ("_filled_s", "_limits", "_points")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._points = limits.budget
        self._filled_s = monotonic()

    def spend(self, what: str, points: int = 1) -> None:
        """Takes points. Raises ConnectionFault when there are not enough."""
        self._points -= points
        if self._points < 0:
            self._fill(what)

    def earn(self, points: int) -> None:
        """Gives points back for work that was done."""
        self._points = min(self._points + points, self._limits.budget)

    def _fill(self, what: str) -> None:
        """Points come back with time: computed here, where they are needed, instead of by a timer."""
        now = monotonic()
        back = int((now - self._filled_s) * self._limits.budget_per_s)
        if back < 1:
            raise ConnectionFault(ENHANCE_YOUR_CALM, f"too many frames that ask for nothing, the last one {what}")
        self._filled_s = now
        self.earn(back)
        if self._points < 0:
            raise ConnectionFault(ENHANCE_YOUR_CALM, f"too many frames that ask for nothing, the last one {what}")
