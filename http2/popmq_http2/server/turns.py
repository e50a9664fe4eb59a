"""Turns of the event loop: how many calls all connections together open in one, and who goes on in the next.

    a read ─▶ frames, while the turn has calls left ─▶ the rest waits in line ─▶ the next turn: one connection of each
                                                                                 address, then the next one of each

Opening a call takes some 20 µs, and one read may hold ten thousand. Without a bound on all of them a few connections
that only open calls make turns of seconds; a new connection is greeted after its fourth.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from popmq_http2.budget import Budget

#: Calls opened in one turn: some 10 ms, besides what their handlers take.
CALLS_AT_ONCE = 500


class AddressTurns:
    """Counts the rest of this turn and the line for the next one, by address. Make it inside the event loop.

    A turn begins anew only after it was used up: so the calls of quiet times add up, which costs one of 500 a turn, and
    every call less than a callback in each turn would.
    """

    __slots__ = ("_lines", "_loop", "left")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, deque[Callable[[], None]]] = {}
        #: Calls that may be opened; at 0 they have to wait for the next turn. Who opens one counts it.
        self.left = CALLS_AT_ONCE

    def over(self, budget: Budget) -> None:
        """The last call of this turn was opened: its connection handles no further frame."""
        budget.turn = -1
        self._loop.call_soon(self.next)

    def wait(self, address: str, go_on: Callable[[], None]) -> None:
        """Puts a connection in line after the turn is over, once: in one of the next, `go_on` lets it go on."""
        self._lines.setdefault(address, deque()).append(go_on)

    def next(self) -> None:
        """Begins a turn with those in line. They use it up before new reads do, which have waited for less."""
        self.left = CALLS_AT_ONCE
        while self._lines and self.left:
            address = next(iter(self._lines))
            line = self._lines.pop(address)
            go_on = line.popleft()
            if line:
                self._lines[address] = line
            go_on()
