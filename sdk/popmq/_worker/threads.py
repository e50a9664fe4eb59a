"""A thread in which a worker runs functions that block.

    event loop                          thread
    await call(f) ──▶ queue ──▶ f(…) in the context of the task ──▶ call_soon_threadsafe ──▶ the future

The threads are daemons: concurrent.futures would wait at exit for a function that never returns, also after the second
signal, which is to end the process at once.
"""

import asyncio
import contextlib
import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class CallingThread:
    """Runs functions one after the other in a thread of its own, which starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_busy(self) -> bool:
        """Whether a function runs in it, also one whose caller was cancelled."""
        return not self._idle.is_set()

    async def idle(self) -> None:
        """Waits until no function runs in it."""
        await self._idle.wait()

    def frame(self) -> FrameType | None:
        """Where it stands."""
        return sys._current_frames().get(self._thread.ident or 0) if self._thread is not None else None

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What `function` returns or raises. It runs to its end also when the caller is cancelled."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        self._idle.clear()

        def work() -> None:
            result, error = _outcome(lambda: context.run(function, *arguments))
            with contextlib.suppress(RuntimeError):  # the loop was closed: no caller waits any more
                loop.call_soon_threadsafe(self._ended, future, result, error)

        self._work.put(work)
        return await future

    def _ended(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._idle.set()
        _resolve(future, result, error)

    def end(self) -> None:
        """Ends the thread after the function that it runs."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except (StopIteration, GeneratorExit) as error:  # a future cannot hold one, the other would close its reader
        return None, RuntimeError(f"the handler raised {error!r}")
    except BaseException as error:
        return None, error


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
