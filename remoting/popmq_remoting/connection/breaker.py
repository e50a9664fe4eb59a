"""When an address that failed is tried again: after a pause, by one call at a time.

The pause doubles, unless the machine answers at once that nothing listens there.

closed ── failed ──▶ open ── pause over, a call comes ──▶ probing ── succeeded ──▶ closed
                      ▲                                     │
                      └────────────── failed ───────────────┘
"""

from __future__ import annotations

from popmq_remoting.connection.limits import PeerLimits


class Breaker:
    """Time is a parameter."""

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._pause_s = 0.0
        self._until_s = 0.0
        self._probing = False

    @property
    def is_closed(self) -> bool:
        """Whether the last attempt was successful."""
        return self._pause_s == 0.0

    def admits(self, now_s: float) -> bool:
        """Whether a call may try to connect. When the pause is over, one may, until it is known how it ended."""
        if self.is_closed:
            return True
        if self._probing or now_s < self._until_s:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """The server has answered."""
        self._pause_s = 0.0
        self._probing = False

    def failed(self, now_s: float, *, refused: bool = False) -> None:
        """It cannot be reached, or does not answer. `refused`: its machine said at once that nothing listens there.

        That costs a millisecond, so the pause stays short: a server that is started again is found within it.
        """
        limits, doubled_s = self._limits, self._pause_s * 2
        self._pause_s = (
            limits.breaker_first_s if refused else min(doubled_s or limits.breaker_first_s, limits.breaker_most_s)
        )
        self._until_s = now_s + self._pause_s
        self._probing = False

    def left_s(self, now_s: float) -> float:
        """Seconds until a call may try."""
        return 0.0 if self.is_closed else max(0.0, self._until_s - now_s)
