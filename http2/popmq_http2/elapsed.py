"""Time that passes, also while a test has stopped the clocks of `time`.

    timeouts, pauses, rates   ──▶ monotonic()    of this module: always the machine's clock
    proofs of access keys     ──▶ wall()         the same
    the time of a message     ──▶ time.time()    what the test wants it to be

Libraries for tests (freezegun) replace the functions of `time`, and each name of a module that is bound to one of
them. A timeout that read such a clock would never be over. The functions here are other objects with the same effect.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def _machine(function: Callable[[], T], clock: str, read: str = "clock_gettime") -> Callable[[], T]:
    """Returns a function of `time` as another object; if a test has replaced it, one that reads the same clock."""
    if isinstance(function, BuiltinFunctionType) or not hasattr(time, clock):
        return functools.partial(function)
    return functools.partial(getattr(time, read), getattr(time, clock))


#: Seconds since some moment; they never go back.
monotonic = _machine(time.monotonic, "CLOCK_MONOTONIC")
monotonic_ns = _machine(time.monotonic_ns, "CLOCK_MONOTONIC", "clock_gettime_ns")
#: Seconds since 1970, of the machine.
wall = _machine(time.time, "CLOCK_REALTIME")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers go on: those of asyncio read `time.monotonic`. Others (uvloop) have a clock of their own."""
    import asyncio  # here: blocking clients do not need it

    loop = asyncio.new_event_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        loop.time = monotonic  # type: ignore[method-assign]  # a loop has one way to tell the time
    return loop
