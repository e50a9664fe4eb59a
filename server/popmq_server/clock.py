"""Time is a parameter: everything that needs the time gets a Clock.

Leases, backoff and retries run on a monotonic clock, anchored at start to max(wall clock, saved time): a step of the
wall clock while the broker runs changes nothing. Times are milliseconds since 1970 UTC.

    wall clock steps while running     nothing happens
    … back before a restart            the saved time counts: broker time continues from there, nothing is early
    … ahead before a restart           leases expire early by as much: a new process knows only the wall clock
    a saved time over an hour ahead    reported; the wall clock counts, stored times are corrected (rebase.py)

`wall_ms` follows the wall clock, and may step in either direction at any moment. It serves delivery times that were
given as wall time, which are due when both clocks have passed them (delay.py), and certificates.

See docs/decisions/0023-broker-clock.md.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from popmq_http2.elapsed import monotonic, monotonic_ns, wall

#: A saved time further ahead of the wall clock than this is ignored: it came from a wrong wall clock.
SAVED_AHEAD_MAX_MS = 3_600_000


class Clock(Protocol):
    """The time source of the broker."""

    def ahead_ms(self, saved_ms: int) -> int:
        """Returns the lead of a saved time over the clock if it is too large to trust the time; else 0."""

    def anchor(self, saved_ms: int) -> None:
        """Called once at start with the time that the store saved last (0 = none)."""

    def now_ms(self) -> int:
        """The broker's time; never goes back while the process lives."""

    def wall_ms(self) -> int:
        """The machine's clock, for wall times of deliveries and schedules, and for what expires: keys, certificates."""

    def seconds_to(self, due_ms: int) -> float | None:
        """How long to wait for `due_ms`, at least 0; None: no wait helps, `moved` is called when the time comes."""

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Calls `moved` when time jumps (a fake clock only); returns a function that unsubscribes."""


class SystemClock:
    """The real clock. `wall` and `monotonic` are parameters for tests."""

    def __init__(self, wall: Callable[[], float] = wall, monotonic: Callable[[], int] = monotonic_ns) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._origin_ms = 0
        self.anchor(0)

    def ahead_ms(self, saved_ms: int) -> int:
        ahead_ms = saved_ms - self.wall_ms()
        return ahead_ms if ahead_ms > SAVED_AHEAD_MAX_MS else 0

    def anchor(self, saved_ms: int) -> None:
        """Sets the origin to max(wall clock, `saved_ms`), unless `saved_ms` is too far ahead."""
        if self.ahead_ms(saved_ms):
            saved_ms = 0
        self._origin_ms = max(self.wall_ms(), saved_ms) - self._monotonic() // 1_000_000

    def now_ms(self) -> int:
        return self._origin_ms + self._monotonic() // 1_000_000

    def wall_ms(self) -> int:
        return int(self._wall() * 1000)

    def seconds_to(self, due_ms: int) -> float | None:
        return max(0.0, (due_ms - self.now_ms()) / 1000)

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class FakeClock:
    """A clock that only `advance` moves. `advance` returns when all subscribers have caught up."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms
        self._wall_ahead_ms = 0
        self._moved: list[Callable[[], None]] = []

    def ahead_ms(self, saved_ms: int) -> int:
        """Always 0: a fake clock does not go back."""
        return 0

    def anchor(self, saved_ms: int) -> None:
        """A restart on the same fake clock continues where the store was."""
        self._now_ms = max(self._now_ms, saved_ms)

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._now_ms + self._wall_ahead_ms

    def step_wall(self, ms: int) -> None:
        """Sets the machine's clock, forward or (ms < 0) back. Subscribers are not called, as with a real clock."""
        self._wall_ahead_ms += ms

    def seconds_to(self, due_ms: int) -> float | None:
        return 0.0 if due_ms <= self._now_ms else None

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
        self._moved.append(moved)
        return lambda: self._moved.remove(moved) if moved in self._moved else None

    def advance(self, ms: int) -> None:
        """Moves time forward by `ms` ≥ 0; everything due by then has been committed when this returns."""
        if ms < 0:
            raise ValueError("time does not go back")
        self._now_ms += ms
        for moved in list(self._moved):
            moved()


#: Seconds on a monotonic clock: for measurements and rates, never for a promise to a client.
stopwatch = monotonic


def wait_until(event: threading.Condition, clock: Clock, due_ms: int | None, idle_s: float) -> None:
    """Waits on `event` (held by the caller) until notified, or until `due_ms`, at most `idle_s`."""
    seconds = None if due_ms is None else clock.seconds_to(due_ms)
    event.wait(idle_s if seconds is None else min(idle_s, seconds))


async def pause(seconds: float) -> None:
    """Sleeps on the real clock, to keep a rate, or (0) to let others run: no promise to a client depends on it."""
    await asyncio.sleep(max(0.0, seconds))
