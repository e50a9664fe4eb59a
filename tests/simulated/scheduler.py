"""One scheduler for everything that runs at the same time: it decides by a seed who goes on, and time is virtual.

    Process    broker, clients: may sleep as after SIGSTOP, and be killed at each point where one of its strands waits
    Strand     a thread of a process, its event loop's or another: it runs alone, from one wait to the next
    later      an event of no thread: bytes that arrive, a fault

A strand is a real thread, so that the broker's code finds what threads have: an identity, and a running event loop or
none. But it runs only while the scheduler waits for it. So a run is a function of its seed, and where no strand may go
on, time jumps to what is due next. `Lock`, `Condition` and `Thread` stand for those of `threading`.

See docs/decisions/0067-one-seeded-scheduler.md.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

#: Nanoseconds of virtual time.
US, MS, S = 1_000, 1_000_000, 1_000_000_000
#: What one strand's stretch from wait to wait takes.
STRETCH_NS = 2 * US, 120 * US
#: A run that lasts longer than this, or takes more stretches, hangs or spins.
TIME_MAX_NS, STRETCHES_MAX = 3600 * S, 400_000
#: How many of the last events a finding shows.
LAST_EVENTS = 40


class Killed(BaseException):
    """Raised where a strand of a killed process waits: its code does not go on."""


class Hangs(Exception):
    """Nothing can happen any more, or too much does, and the run is not over."""


class Process:
    """What is killed or sleeps as a whole."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.killed = False
        self.sleeps_until_ns = 0

    def start(self, name: str, run: Callable[[], None]) -> Strand:
        """Starts a strand."""
        return Strand(self, name, run)

    def kill(self) -> None:
        """Ends all strands where they wait; returns when they are gone. Called by a strand of another process."""
        self.killed = True
        strands = self.scheduler.strands
        self.scheduler.wait(lambda: not any(one.process is self for one in strands))


class Strand:
    """One thread. `ready` says whether it may go on; at `at_ns` it goes on in any case."""

    def __init__(self, process: Process, name: str, run: Callable[[], None]) -> None:
        self.process, self.name = process, f"{process.name}/{name}"
        self.ready: Callable[[], bool] = _yes
        self.at_ns: int | None = None
        self.unwinding = False
        self._run = run
        self.go = threading.Lock()
        self.go.acquire()
        self.thread = threading.Thread(target=self._main, name=self.name, daemon=True)
        process.scheduler.strands.append(self)
        self.thread.start()

    @property
    def over(self) -> bool:
        return self not in self.process.scheduler.strands

    def _main(self) -> None:
        scheduler = self.process.scheduler
        self.go.acquire()
        try:
            if not self.process.killed:
                self._run()
        except Killed:
            pass
        except BaseException as error:
            scheduler.errors.append(error)
        scheduler.strands.remove(self)
        scheduler.back.release()


class Scheduler:
    """`random`: makes all choices of the run. `trace`: a digest of all that happened."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ns = 1000 * S
        self.strands: list[Strand] = []
        self.errors: list[BaseException] = []
        self.back = threading.Lock()
        self.back.acquire()
        self.current: Strand | None = None
        self.last: deque[str] = deque(maxlen=LAST_EVENTS)
        self._digest = hashlib.blake2b(digest_size=8)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.stretches = 0
        #: How often a loop is interrupted between two callbacks.
        self.interrupted = 0.02

    # ── For what runs in it ──────────────────────────────────────────────────────────────────────────────────────────

    def note(self, event: str) -> None:
        """Adds an event to the trace."""
        line = f"{self.now_ns / S:.6f} {event}"
        self.last.append(line)
        self._digest.update(line.encode())

    def wait(self, ready: Callable[[], bool], at_ns: int | None = None) -> None:
        """The current strand waits until `ready`, or until `at_ns`. Raises Killed."""
        strand = self.current
        assert strand is not None
        if strand.unwinding:  # its `finally` blocks run to their ends
            return
        strand.ready, strand.at_ns = ready, at_ns
        self.back.release()
        strand.go.acquire()
        if strand.process.killed:
            strand.unwinding = True
            raise Killed

    def pause(self, ns: int) -> None:
        """The current strand waits for a time."""
        self.wait(_no, self.now_ns + ns)

    def later(self, ns: int, event: Callable[[], None]) -> None:
        """Something happens after a time, to no strand."""
        heapq.heappush(self._events, (self.now_ns + ns, next(self._numbers), event))

    def between(self, least: int, most: int) -> int:
        return self.random.randrange(least, most)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # ── The run ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, until: Callable[[], bool]) -> None:
        """Runs everything until the condition holds. Raises what a strand raised; Hangs."""
        while not until() and not self.errors:
            while self._events and self._events[0][0] <= self.now_ns:
                heapq.heappop(self._events)[2]()
            if able := [strand for strand in self.strands if self._may_go_on(strand)]:
                self._let_go_on(able)
            else:
                self._jump()
        if self.errors:
            raise self.errors[0]

    def _may_go_on(self, strand: Strand) -> bool:
        if strand.process.killed:
            return True
        if strand.process.sleeps_until_ns > self.now_ns:
            return False
        return (strand.at_ns is not None and strand.at_ns <= self.now_ns) or strand.ready()

    def _let_go_on(self, able: list[Strand]) -> None:
        """One of those that may go on does so until its next wait."""
        strand = able[0] if len(able) == 1 else self.random.choice(able)
        self.stretches += 1
        if self.stretches > STRETCHES_MAX:
            raise Hangs(f"{strand.name} and {len(able) - 1} others go on and on")
        self.note(f"{strand.name} of {len(able)}")
        self.current = strand
        strand.go.release()
        self.back.acquire()
        self.current = None
        self.now_ns += self.between(*STRETCH_NS)

    def _jump(self) -> None:
        """To the next moment at which something is due."""
        times = [max(one.at_ns, one.process.sleeps_until_ns) for one in self.strands if one.at_ns is not None]
        times += [one.process.sleeps_until_ns for one in self.strands if one.process.sleeps_until_ns > self.now_ns]
        if self._events:
            times.append(self._events[0][0])
        if not times or min(times) > TIME_MAX_NS:
            raise Hangs("waiting for ever: " + ", ".join(sorted(one.name for one in self.strands)))
        self.now_ns = max(self.now_ns, min(times))

    def end(self) -> None:
        """Ends all strands that are left, so that no thread stays."""
        for strand in list(self.strands):
            strand.process.killed = True
        while self.strands:
            self.current = self.strands[0]
            self.current.go.release()
            self.back.acquire()
        self.current = None

    @property
    def trace(self) -> str:
        return self._digest.hexdigest()


class Lock:
    """An RLock of strands."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.owner: Strand | None = None
        self.depth = 0

    def __enter__(self) -> None:
        me = self.scheduler.current
        if self.owner is not None and self.owner is not me:
            self.scheduler.wait(lambda: self.owner is None)
        self.owner = me
        self.depth += 1

    def __exit__(self, *_: Any) -> None:
        self.depth -= 1
        if self.depth <= 0:
            self.owner, self.depth = None, 0


class Condition:
    """A Condition on such a lock."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._called: list[list[bool]] = []

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, *_: Any) -> None:
        self._lock.__exit__()

    def notify_all(self) -> None:
        for called in self._called:
            called[0] = True

    def wait(self, timeout: float | None = None) -> bool:
        """As of threading.Condition: lets the lock go, and takes it again."""
        lock, scheduler = self._lock, self._lock.scheduler
        me, depth, called = scheduler.current, lock.depth, [False]
        at_ns = None if timeout is None else scheduler.now_ns + int(timeout * S) + 1
        self._called.append(called)
        lock.owner, lock.depth = None, 0
        try:
            scheduler.wait(lambda: called[0] and lock.owner is None, at_ns)
        finally:
            self._called.remove(called)
            if lock.owner is not None and lock.owner is not me:
                scheduler.wait(lambda: lock.owner is None)
            lock.owner, lock.depth = me, depth
        return called[0]

    def wait_for(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        until_ns = None if timeout is None else self._lock.scheduler.now_ns + int(timeout * S)
        while not holds():
            left = None if until_ns is None else (until_ns - self._lock.scheduler.now_ns) / S
            if left is not None and left <= 0:
                break
            self.wait(left)
        return holds()


class Thread:
    """A Thread that is a strand of the process whose code starts it."""

    def __init__(self, scheduler: Scheduler, target: Callable[[], None], name: str = "", daemon: bool = True) -> None:
        self._scheduler, self._target, self._name = scheduler, target, name
        self._strand: Strand | None = None

    def start(self) -> None:
        me = self._scheduler.current
        assert me is not None
        self._strand = me.process.start(self._name, self._target)

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.over

    def join(self) -> None:
        self._scheduler.wait(lambda: not self.is_alive())


def _yes() -> bool:
    return True


def _no() -> bool:
    return False
