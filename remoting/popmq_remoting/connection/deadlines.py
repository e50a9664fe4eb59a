"""Deadlines of many calls with few timers: those of the same 1/64 s share one, rounded down, so none ends late.

Almost all calls end before their deadline. A timer for each would cost more than the rest of the bookkeeping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_STEPS = 64


class Deadlines:
    """`over`: called with the number of each call whose deadline has come."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[int], None]) -> None:
        self._loop = loop
        self._over = over
        self._moments: dict[float, tuple[asyncio.TimerHandle, set[int]]] = {}

    def add(self, number: int, now_s: float, until_s: float) -> float:
        """The moment at which the call ends, for `remove`."""
        moment_s = int(until_s * _STEPS) / _STEPS
        if moment_s <= now_s:
            moment_s = until_s
        moment = self._moments.get(moment_s)
        if moment is None:
            self._moments[moment_s] = (self._loop.call_at(moment_s, self._come, moment_s), {number})
        else:
            moment[1].add(number)
        return moment_s

    def remove(self, number: int, moment_s: float) -> None:
        """The call is over; its deadline may have come. A timer that nobody needs is given back."""
        moment = self._moments.get(moment_s)
        if moment is not None:
            moment[1].discard(number)
            if not moment[1]:
                moment[0].cancel()
                del self._moments[moment_s]

    def __len__(self) -> int:
        return len(self._moments)

    def _come(self, moment_s: float) -> None:
        _, numbers = self._moments.pop(moment_s)
        for number in numbers:
            self._over(number)
