"""The budget of a connection: a client pays points for frames that are cheap for it and not for us (limits.py)."""

import sys

from popmq_http2.elapsed import monotonic
from popmq_http2.frames import ENHANCE_YOUR_CALM, ConnectionFault
from popmq_http2.limits import Limits

#: Points earned by a call that was answered in full, and by this many sent bytes: working clients send window updates
#: and pings because of them.
CALL_POINTS = 8
POINT_BYTES = 1024
#: Points that a connection spends before the other connections get a turn: some 5 ms of headers, the dearest frames.
TURN_POINTS = 200


class Flood(ConnectionFault):
    """A connection without points."""

    def __init__(self, what: str) -> None:
        super().__init__(ENHANCE_YOUR_CALM, f"too many frames that ask for nothing, the last one {what}")


class Budget:
    """A token bucket. Reads the time only when it seems empty.

    `turn`: points left in this turn, of which a call costs one; below 0 once it is over (turns.py); at first unlimited.
    `held`: bytes of messages and large headers in memory, of this connection (inbox.py).
    """

    __slots__ = ("_filled_s", "_limits", "_points", "held", "turn")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._points = limits.budget
        self._filled_s = monotonic()
        self.turn = sys.maxsize
        self.held = 0

    def start(self, points: int) -> None:
        """Sets the points of a new connection (addresses.py)."""
        self._points = points

    def spend(self, what: str, points: int = 1) -> None:
        """Spends points. Raises Flood if there are not enough."""
        self._points -= points
        self.turn -= points
        if self._points < 0:
            self._fill(what)

    def earn(self, points: int) -> None:
        """Returns points for finished work."""
        self._points += points
        if self._points > self._limits.budget:
            self._points = self._limits.budget

    def _fill(self, what: str) -> None:
        """Refills by elapsed time, only when needed, instead of by a timer."""
        now = monotonic()
        back = int((now - self._filled_s) * self._limits.budget_per_s)
        if back < 1:
            raise Flood(what)
        self._filled_s = now
        self.earn(back)
        if self._points < 0:
            raise Flood(what)
