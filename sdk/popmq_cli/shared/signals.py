"""SIGTERM and SIGHUP as exceptions, so that what a command has begun is released, finished or removed before it ends.

Without a handler the system ends a process at once, with its messages leased and its topics left behind; process 1 of a
container it does not end at all.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

#: What `docker stop`, systemd and Kubernetes send, and what a closed terminal sends.
ENDING = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """A signal asked the process to end. Like an interrupt from the terminal, it is not an error of what runs."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def listen() -> None:
    """From now on they raise Terminated in the main thread, once: what cleans up is not ended by a second one.

    A signal that the caller ignores, as `nohup` does, stays ignored.
    """
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def end(number: int, _frame: Any) -> NoReturn:
    """Raises Terminated. Later signals are ignored."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise Terminated(number)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals that come within are handled at its end: what begins there has a name by then, and can be ended."""
    before: dict[int, Any] = {}
    came: list[int] = []

    def note(number: int, _frame: Any) -> None:
        came.append(number)

    try:
        for number in (*ENDING, signal.SIGINT, signal.SIGALRM):
            if callable(signal.getsignal(number)):
                before[number] = signal.signal(number, note)
        yield
    finally:
        # SIGALRM first: the handler of another signal may set that of SIGALRM anew.
        for number in reversed(before):
            if signal.getsignal(number) is note:
                signal.signal(number, before[number])
        for each in came:
            before[each](each, None)


class Drain:
    """What a command with a loop does instead: the first signal calls `stop`, and what the loop has begun is finished.

    After `limit` seconds Terminated is raised nevertheless. `signal` is the one that came, or None.
    """

    def __init__(self, stop: Callable[[], None], limit: float) -> None:
        self.signal: int | None = None
        self._stop = stop
        self._limit = limit
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Drain":
        for number in ENDING:
            if signal.getsignal(number) is end:
                self._before[number] = signal.signal(number, self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        if self.signal is None:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _begin(self, number: int, _frame: Any) -> None:
        if self.signal is None:
            self.signal = number
            signal.signal(signal.SIGALRM, self._over)
            signal.setitimer(signal.ITIMER_REAL, max(self._limit, 1e-3))  # 0 would mean never
            self._stop()

    def _over(self, _number: int, frame: Any) -> None:
        end(self.signal or signal.SIGTERM, frame)
