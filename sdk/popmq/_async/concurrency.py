"""Locks, events and background workers on asyncio. popmq._sync.concurrency has the same names for threads.

The other modules of this folder are written once, here; sdk/twin.py makes the blocking client from them.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

log = logging.getLogger("popmq.client")


#: Seconds that closing waits for the running step of a worker: a callback that hangs must not block the process.
STOP_S_MAX = 5.0

#: For changes without awaiting. A thread lock, because guards and fake clocks are used from other threads too.
Lock = threading.Lock


def at_exit(_client: Any) -> None:
    """At the end of a program no event loop runs, which could run the `_leave` of an asynchronous client."""


class Home:
    """Where a client belongs: to the event loop of its first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_here(self) -> bool:
        """Whether the running loop is that of the first call. A consumer may be made before any loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return True
        if self._loop is None:
            self._loop = loop
        return self._loop is loop


class Mutex:
    """A lock that may be held while awaiting."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


#: Held by a consumer while it takes a delivery.
Turn = Mutex


def interrupted(_turn: Turn) -> bool:
    """A callback of the loop runs in the middle of no task."""
    return False


class Event:
    """An event that any thread may set, with a limit on waiting.

    Each message that is sent waits for one: asyncio.Event inside asyncio.timeout takes twice as long.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self) -> None:
        """Wakes all waiters."""
        _in_loop(self._loop, self._set)

    def _set(self) -> None:
        self._is_set = True
        for waiter in self._waiters:
            _wake(waiter)

    def clear(self) -> None:
        """The next wait waits again."""
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    async def wait(self, seconds: float | None = None) -> bool:
        """Waits until set, at most `seconds`. Returns whether it is set."""
        loop = self._loop = asyncio.get_running_loop()
        if self._is_set:
            return True
        waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()
        return self._is_set


class Stop(Event):
    """An event that is set once and calls its watchers. May be set from a signal handler."""

    def __init__(self) -> None:
        super().__init__()
        self._watchers: list[Callable[[], object]] = []

    def _set(self) -> None:
        """Both in one turn of the loop: who begins to watch sees that it is set, or is called."""
        super()._set()
        for watcher in list(self._watchers):
            watcher()

    def watch(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Calls `watcher` when set, at once if it is set already. Returns a function that removes the watcher."""
        self._loop = asyncio.get_running_loop()
        self._watchers.append(watcher)
        if self.is_set():
            watcher()
        return lambda: self._watchers.remove(watcher)


class Ticket:
    """Resolved with the broker's answer to an outcome: its error, or None."""

    def __init__(self) -> None:
        self._event = Event()
        self._error: BaseException | None = None

    def resolve(self, error: BaseException | None) -> None:
        """Wakes the waiting task or thread."""
        self._error = error
        self._event.set()

    def result(self) -> None:
        """Raises: only `async with` can wait."""
        raise RuntimeError("leaving this guard waits for the broker: use `async with delivery:` with an AsyncClient")

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        await self._event.wait()
        if self._error is not None:
            raise self._error


class BackgroundLoop:
    """Runs `step` in the background: whenever woken, and after the seconds that `step` returned."""

    def __init__(self, name: str, step: Callable[[], Awaitable[float | None]]) -> None:
        self._name = name
        self._step = step
        self._woken = Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = self._awaited = False

    def bind(self) -> None:
        """Remembers the loop to run in, so that other threads may wake it, and starts it if it was woken before."""
        self._loop = asyncio.get_running_loop()
        if self._woken.is_set():
            self.wake()

    def wake(self, awaited: bool = False) -> None:
        """Runs a step soon; starts the worker if it is not running. Without an event loop yet, `bind` starts it.

        `awaited`: the caller waits for it, and so it also runs when the end of the loop has cancelled the worker.
        """
        self._awaited = self._awaited or awaited
        self._woken.set()
        if not self._runs() and not self._stopped and (self._loop or _running_loop()):
            _in_loop(self._loop, self._start)

    def run_now(self) -> None:
        """Runs a step and waits for it, from another thread than the loop's."""
        self.wait_for(self._one_step)

    def wait_for(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Runs `function` in the loop and waits for it, from another thread."""
        assert self._loop is not None
        if _running_loop() is self._loop:
            raise RuntimeError("this blocks the event loop: use `await asyncio.to_thread(clock.advance, ms)`")
        asyncio.run_coroutine_threadsafe(function(), self._loop).result()

    def end(self) -> None:
        """Ends the worker after its running step; `stop` waits for that."""
        self._stopped = True
        self._woken.set()

    async def stop(self) -> None:
        """Ends the worker after its running step."""
        self.end()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_S_MAX)
            self._task.cancel()

    def _runs(self) -> bool:
        return self._task is not None and not (self._task.done() and self._awaited)

    def _start(self) -> None:
        if self._runs():
            return
        run = self._run() if self._task is None else self._run_what_waits()
        self._task = asyncio.get_running_loop().create_task(run, name=self._name)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A loop that ends cancels its tasks, and then lets generators close their consumers, which wait for this."""
        if task.cancelled() and self._awaited and self._woken.is_set() and not self._stopped:
            self._start()

    async def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            await self._woken.wait(await self._one_step())

    async def _run_what_waits(self) -> None:
        """Runs until nothing wakes it any more: a task that goes on would be destroyed with the loop."""
        while self._woken.is_set() and not self._stopped:
            self._woken.clear()
            await self._one_step()

    async def _one_step(self) -> float | None:
        try:
            return await self._step()
        except Exception:
            log.exception("%s failed and continues", self._name)
            return 1.0


async def aside(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a function that blocks for long (an fsync) in a thread."""
    return await asyncio.to_thread(function, *arguments)


_running: set["asyncio.Task[None]"] = set()  # a loop keeps no task alive


async def run_to_end(function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
    """Starts it in a task of its own, which goes on when the caller is cancelled: other callers wait for it too."""
    task = asyncio.get_running_loop().create_task(function(*arguments))
    _running.add(task)
    task.add_done_callback(_running.discard)


class Errands:
    """Functions that run to their end although the caller was cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps no task alive

    def run(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Starts it in a task of its own."""
        task = asyncio.get_running_loop().create_task(function(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def running(self) -> bool:
        """Whether any is under way."""
        return bool(self._tasks)

    async def done(self, seconds: float | None) -> None:
        """Waits for those that are under way, at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


async def others_ran() -> None:
    """Lets the tasks that were woken before run up to their next await."""
    await asyncio.sleep(0)


async def finished(answer: Any) -> Any:
    """The result of a user's function, which may be a coroutine function."""
    return await answer if inspect.isawaitable(answer) else answer


def ends_this_task(error: BaseException) -> bool:
    """Whether the task that runs was cancelled, or its coroutine is closed. Functions of a user may raise the same."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _in_loop(loop: asyncio.AbstractEventLoop | None, function: Callable[[], object]) -> None:
    """Calls `function` in `loop`: now when called from it, soon when called from another thread."""
    if loop is None or loop is _running_loop():
        function()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(function)
