"""The deadlines of all calls, with one timer for all those that end in the same moment of TICK_S.

    call A  12.3041 ─┐
    call B  12.3077 ─┴─ moment 1231, at 12.31 ─▶ one timer        call C  12.4001 ── moment 1241 ─▶ another

A timer of its own for each call costs as much as a tenth of the call: almost all calls end before their deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

#: A call, of a server or of a client.
C = TypeVar("C")

#: How late a call may be ended, in seconds.
TICK_S = 0.01


class Moment(Generic[C]):
    """The calls that end at the same time. Without calls it has no timer, so short calls leave no timer."""

    __slots__ = ("_forget", "_timer", "calls")

    def __init__(self, timer: asyncio.TimerHandle, forget: Callable[[], object]) -> None:
        self._timer = timer
        self._forget = forget
        self.calls: dict[C, None] = {}

    def leave(self, call: C) -> None:
        """Removes a call that has ended before its deadline."""
        self.calls.pop(call, None)
        if not self.calls:
            self._timer.cancel()
            self._forget()


class Deadlines(Generic[C]):
    """All moments at which calls end. `expire`: ends a call."""

    def __init__(self, expire: Callable[[C], None]) -> None:
        self._expire = expire
        self._loop = asyncio.get_running_loop()
        self._moments: dict[int, Moment[C]] = {}

    def __len__(self) -> int:
        return len(self._moments)

    def add(self, call: C, timeout_s: float) -> Moment[C]:
        """The call ends after this time, unless it leaves the moment."""
        number = int((self._loop.time() + timeout_s) / TICK_S) + 1
        moment = self._moments.get(number)
        if moment is None:
            timer = self._loop.call_at(number * TICK_S, self._due, number)
            moment = self._moments[number] = Moment(timer, lambda: self._moments.pop(number, None))
        moment.calls[call] = None
        return moment

    def _due(self, number: int) -> None:
        for call in list(self._moments.pop(number).calls):
            self._expire(call)
