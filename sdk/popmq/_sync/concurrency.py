"""What waiting and running beside each other means with threads. The twin of popmq._async.concurrency: same words."""

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("popmq.client")

#: How long closing waits for the step that a worker is in: a broker that is gone must not hold up the process.
STOP_S_MAX = 5.0

Lock = threading.Lock
Mutex = threading.Lock


_clients: "weakref.WeakSet[Any]" = weakref.WeakSet()


def at_exit(client: Any) -> None:
    """Calls its `_leave` at the end of the program, if it lives then: while its threads still run."""
    _clients.add(client)


@atexit.register
def _leave_all() -> None:
    for client in list(_clients):
        try:
            client._leave()
        except Exception:
            log.exception("a client was not left as it should be at the end of the program")


class Home:
    """Where a client belongs: to no thread in particular."""

    def is_here(self) -> bool:
        """Always."""
        return True


#: Held by a consumer while it takes a delivery. It knows its thread.
Turn = threading.RLock


def interrupted(turn: Any) -> bool:
    """Whether a signal handler runs in the middle of this thread's turn: to wait for its end would be forever."""
    return bool(turn._is_owned())  # as threading.Condition asks


class Event(threading.Event):
    """Setting one that is set takes no locks: handlers settle thousands of deliveries a second, each sets two."""

    def set(self) -> None:
        if not self.is_set():
            super().set()


class Stop:
    """Set once; the watchers are called. May be set from a signal handler.

    A signal handler runs in the middle of whatever the main thread does, perhaps holding the very lock that an Event
    needs: so `set` leaves only a flag, and a thread of its own does what takes locks.
    """

    def __init__(self) -> None:
        self._set = False
        self._event = threading.Event()
        self._watchers: list[Callable[[], object]] = []

    def set(self) -> None:
        """Stops what watches."""
        self._set = True
        try:
            threading.Thread(target=self._call_watchers, name="popmq-stop", daemon=True).start()
        except RuntimeError:  # at the exit of the program no thread can start, and no handler of a signal runs
            self._call_watchers()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until set, or so long; returns whether it is set."""
        return self._set or self._event.wait(seconds)

    def watch(self, watcher: Callable[[], object]) -> Callable[[], None]:
        """Calls `watcher` when set, at once if it is. Returns the way to watch no longer."""
        self._watchers.append(watcher)
        if self._set:
            watcher()
        return lambda: self._watchers.remove(watcher)

    def _call_watchers(self) -> None:
        self._event.set()
        for watcher in list(self._watchers):
            watcher()


class Ticket:
    """Waits for the broker's answer to an outcome: the error that it answered, or None."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: BaseException | None = None

    def resolve(self, error: BaseException | None) -> None:
        """Ends the waiting."""
        self._error = error
        self._event.set()

    def result(self) -> None:
        """Waits; raises the broker's error."""
        self._event.wait()
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[Any, None, None]:
        raise RuntimeError("this delivery came from a Client: use `with delivery:`, not `async with`")


class BackgroundLoop:
    """Runs `step` in the background whenever woken, and when the seconds that `step` returned are over."""

    def __init__(self, name: str, step: Callable[[], float | None]) -> None:
        self._name = name
        self._step = step
        self._woken = Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def bind(self) -> None:
        """Nothing to remember: a thread can be started from anywhere."""

    def wake(self, awaited: bool = False) -> None:
        """Runs a step soon; starts the worker if it is not running. `awaited`: the caller waits for it."""
        self._woken.set()
        if self._thread is None and not self._stopped:
            try:
                self._start()
            except RuntimeError:  # at the exit of the program no thread can start
                self._one_step()

    def run_now(self) -> None:
        """Runs a step, here."""
        self._one_step()

    def wait_for(self, function: Callable[[], object]) -> None:
        """Runs `function`, here."""
        function()

    def end(self) -> None:
        """Ends the worker after the step that it is in; `stop` waits for that."""
        self._stopped = True
        self._woken.set()

    def stop(self) -> None:
        """Ends the worker after the step that it is in."""
        self.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S_MAX)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            self._woken.wait(self._one_step())

    def _one_step(self) -> float | None:
        try:
            return self._step()
        except Exception:
            log.exception("%s failed; it goes on", self._name)
            return 1.0


def aside(function: Callable[..., T], *arguments: Any) -> T:
    """Runs it, here."""
    return function(*arguments)


def run_to_end(function: Callable[..., None], *arguments: Any) -> None:
    """Runs it in this thread: nothing cancels a thread."""
    function(*arguments)


class Errands:
    """Functions that run to their end although the caller was interrupted."""

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Runs it, here: the program may end next."""
        function(*arguments)

    def running(self) -> bool:
        """None runs in the background."""
        return False

    def done(self, seconds: float | None) -> None:
        """At once."""


def others_ran() -> None:
    """Threads that were woken run by themselves."""


def finished(answer: Any) -> Any:
    """What a user's function answered."""
    return answer


def ends_this_task(_error: BaseException) -> bool:
    """Nothing cancels a thread."""
    return False
