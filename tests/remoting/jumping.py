"""An event loop whose clock jumps to the next timer when nothing else happens: minutes pass in milliseconds.

Sockets are real ones, but both of their ends have to be in this loop: what one end writes, the other end can read at
once, so a loop that finds nothing to read may take the time until its next timer as passed. No other time passes: what
a test does takes none, however busy the machine is.
"""

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

#: Real seconds that the kernel has to carry bytes from one end of a socket to the other.
GRACE_S = 0.002

P = ParamSpec("P")


class JumpingSelector(selectors.DefaultSelector):
    """Waits for files; of the time until a timer it waits a moment, and then adds all of it to `now_s`."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # A second look, since the process may have had no processor for all of the grace.
        ready = super().select(min(timeout, GRACE_S)) or super().select(0)
        if not ready:
            self.now_s += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def jumping(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test in such a loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], bool], pause_s: float = 0.01) -> None:
    """Looks again and again, until it is so."""
    while True:
        if condition():
            return
        await asyncio.sleep(pause_s)


async def passed(seconds: float) -> None:
    """Lets so much time pass, over which the clock jumps."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    await until(lambda: loop.time() >= until_s, min(1.0, seconds))
