"""Callers in a closed loop, as tasks of one event loop or as threads: whichever the library asks for.

A caller's step sends or receives one batch, waits for its end, and returns how many messages it moved. 0 ends the
caller: it found its topic empty.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

#: Seconds until the connections of all callers are open.
OPEN_S = 30.0
#: Seconds for which a received message is leased.
LEASE_S = 60


@dataclass(frozen=True)
class Options:
    """The flags of one run, with the meanings of those of bench/loadgen."""

    target: str
    endpoint: str
    leg: str
    topic: str
    batch: int
    callers: int
    seconds: float
    bytes: int

    def texts(self) -> list[str]:
        """A batch of bodies; each starts with the time, as those of bench/loadgen."""
        return [f"{time.time_ns():019d}".ljust(self.bytes, ".") for _ in range(self.batch)]


class Tasks(Protocol):
    """A library whose callers are tasks."""

    def opened(self) -> AbstractAsyncContextManager[Any]: ...
    async def prepare(self, topics: Sequence[str]) -> None: ...
    async def send(self) -> int: ...
    async def receive(self) -> int: ...


class Threads(Protocol):
    """A library whose callers are threads. `sender` and `receiver` are called in the thread of their caller."""

    def prepare(self, topics: Sequence[str]) -> None: ...
    def sender(self, caller: int) -> Callable[[], int]: ...
    def receiver(self, caller: int) -> Callable[[], int]: ...


@dataclass
class Tally:
    """What a caller did: seconds of each step, messages, and the time at which the last step ended."""

    latencies: list[float] = field(default_factory=list)
    messages: int = 0
    last: float = 0.0

    def add(self, began: float, moved: int) -> None:
        self.last = time.perf_counter()
        self.latencies.append(self.last - began)
        self.messages += moved


class Run:
    """The time of a run, which begins when its callers are ready."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self) -> None:
        """Tells the bench that all callers are ready, and waits for its word."""
        print("ready", flush=True)
        input()
        self._cpu, self._began = time.process_time(), time.perf_counter()
        self.until = self._began + self._seconds

    def result(self, tallies: Iterable[Tally]) -> dict[str, float]:
        """What bench/loadgen prints."""
        done = list(tallies)
        latencies = sorted(latency * 1e3 for tally in done for latency in tally.latencies) or [0.0]
        p50, p99, p999 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99, 0.999))
        return {
            "messages": sum(tally.messages for tally in done),
            "elapsed_s": max(max(tally.last for tally in done) - self._began, 1e-9),
            "p50_ms": p50, "p99_ms": p99, "p999_ms": p999,
            "load_cpu_s": time.process_time() - self._cpu, "undelivered": 0,
        }  # fmt: skip


async def by_tasks(step: Callable[[], Awaitable[int]], callers: int, run: Run) -> list[Tally]:
    """Repeats the step in as many tasks as there are callers."""

    async def caller(own: Tally) -> Tally:
        while (began := time.perf_counter()) < run.until and (moved := await step()):
            own.add(began, moved)
        return own

    await asyncio.to_thread(run.begin)
    return await asyncio.gather(*(caller(Tally()) for _ in range(callers)))


def by_threads(opened: Callable[[int], Callable[[], int]], callers: int, run: Run) -> list[Tally]:
    """Repeats a step of its own in each of the threads. Raises what a step raised."""
    ready = threading.Barrier(callers, run.begin)

    def caller(number: int) -> Tally:
        own, step = Tally(), opened(number)
        ready.wait()
        while (began := time.perf_counter()) < run.until and (moved := step()):
            own.add(began, moved)
        return own

    with ThreadPoolExecutor(callers) as pool:
        return list(pool.map(caller, range(callers)))
