"""Measures whether resting objects slow other operations: 1,000, 100,000 and 1,000,000 leases of one message.
Beside them groups of one topic, and parked pops (resting_others.py).

It runs the engine without a network, on a fake clock and without fsync, and measures the CPU time of the writer's
thread for one commit batch: other requests wait that long, and other programs do not affect it. One store grows from
size to size; each commit adds a thousand leases.
"""

import asyncio
import gc
import os
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measuring import floors
from bench.measuring.floors import Floor
from bench.measuring.measure import Resting
from bench.parts import resting_others
from bench.parts.legs import Effort, Results
from bench.parts.storm import message
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.loop import listings
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer.core import Core
from popmq_server.values.handles import make_handle

MAP_BYTES = 64 << 30
COMMIT = 1_000
LEASE_MS = 12 * 3_600_000
#: How often each operation is measured; the median counts.
TIMES = 15


class _Bench:
    """A store that grows, with a small topic beside the resting leases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.leases = 0
        self.made = 0
        self.groups: list[float] = []
        self.open()
        self.pair("rest")

    def open(self) -> None:
        self.core = Core(Store(self.folder, MAP_BYTES, "none"), self.clock)

    def open_again(self) -> None:
        """Starts on the store and leaves what the start made out of garbage collections, as `popmq serve` does."""
        self.core.close()
        self.open()
        gc.collect()
        gc.freeze()

    def pair(self, name: str) -> None:
        self.core.run([ask.CreateTopic(name, 4, False, 72 * LEASE_MS)])
        delays = (10_000,)
        self.core.run([ask.CreateGroup(name, 17, delays, LEASE_MS, 0, "EARLIEST", 0, False, in_flight_max=1_000_000)])

    def grow(self, leases: int) -> None:
        """Adds resting leases, and as many unpopped messages in the same topic."""
        while self.leases < leases:
            numbers = range(self.leases, min(leases, self.leases + COMMIT))
            self.core.run([ask.Send("rest", tuple(message(number) for number in numbers)) for _ in range(2)])
            pops = [ask.Pop("rest", "rest", (), 1, client_id="c", attempt_id=f"a{number}") for number in numbers]
            self.core.run(pops)
            self.leases = numbers.stop

    def timed(self, *commands: Any) -> tuple[float, list[Any]]:
        """CPU seconds of one commit batch, and its answers."""
        began = time.thread_time()
        results = self.core.run(list(commands)).results
        self.groups.append(time.thread_time() - began)
        return self.groups[-1], results

    def fresh(self) -> str:
        """A topic with a group and a few messages, one of them leased."""
        self.made += 1
        name = f"small{self.made}"
        self.pair(name)
        self.core.run([ask.Send(name, tuple(message(number) for number in range(100)))])
        self.core.run([ask.Pop(name, name, (), 1)])
        return name

    # ── Operations: CPU seconds of one commit batch, of the longest where there are several ─────────────────────────

    def scrape(self) -> float:
        """All pieces of the lists that a scrape asks for, together."""
        took = 0.0

        async def execute(query: Any) -> Any:
            nonlocal took
            seconds, (answer,) = self.timed(query)
            took += seconds
            return answer

        for query in (queries.Topics(), queries.Groups()):
            asyncio.run(listings.joined_by(execute, query))
        asyncio.run(execute(operations.StoreState()))
        return took

    def heartbeat(self) -> float:
        return self.timed(queries.GroupSettings("rest"))[0]

    def listing(self) -> float:
        return self.timed(queries.Leases("", "", 100))[0]

    def purge(self) -> float:
        """The longest piece of purging a small topic."""
        name = self.fresh()
        longest = self.timed(ask.PurgeTopic(name))[0]
        while list(self.core.state.purges):
            longest = max(longest, self.timed()[0])
        self.core.run([ask.DeleteTopic(name), ask.DeleteGroup(name)])
        while list(self.core.state.purges):
            self.timed()
        return longest

    def retention(self) -> float:
        """The longest piece of a minute's retention."""
        self.clock.advance(60_000)
        longest = 0.0
        while self.core.next_due_ms is not None and self.core.next_due_ms <= self.clock.now_ms():
            longest = max(longest, self.timed()[0])
        return longest

    def pop(self) -> float:
        took, (popped,) = self.timed(ask.Pop("rest", "rest", (), 1, client_id="c", attempt_id="again"))
        self.popped = (make_handle(popped.ck_id, popped.rows[0][5], popped.nonce),)
        return took

    def ack(self) -> float:
        """Acks the message that was popped before."""
        return self.timed(ask.Ack("rest", self.popped))[0]


def measure(bench: _Bench, leases: int) -> Resting:
    """All operations at one size."""
    gc.unfreeze()
    bench.grow(leases)
    bench.retention()
    bench.open_again()
    bench.groups.clear()
    found = Resting(leases)
    operations: dict[str, Callable[[], float]] = {
        "scrape": bench.scrape,
        "heartbeat": bench.heartbeat,
        "list of leases, piece": bench.listing,
        "purge, piece": bench.purge,
        "retention, piece": bench.retention,
    }
    for name, operation in operations.items():
        found.costs_us[name] = statistics.median(operation() for _ in range(TIMES)) * 1e6
    pairs = [(bench.pop(), bench.ack()) for _ in range(4 * TIMES)]
    found.costs_us["pop"] = statistics.median(pop for pop, _ in pairs) * 1e6
    found.costs_us["ack"] = statistics.median(ack for _, ack in pairs) * 1e6
    found.longest_ms = max(bench.groups) * 1e3
    bench.core.close()
    found.start_s, grown = _start(bench)
    found.lease_bytes = grown / leases
    bench.open()
    return found


def _start(bench: _Bench) -> tuple[float, float]:
    """CPU seconds and bytes of memory of a start on the store, measured in a new process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        before, began = _anonymous_bytes(), time.process_time()
        bench.open()
        os.write(writing, struct.pack("dd", time.process_time() - began, _anonymous_bytes() - before))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        took, grown = struct.unpack("dd", pipe.read())
    os.waitpid(child, 0)
    return took, grown


def _anonymous_bytes() -> int:
    """Memory of this process without mapped files, so without the store."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def everything(folder: Path, effort: Effort, results: Results, tell: Callable[[str], None]) -> None:
    """The table, and the floors that follow from it."""
    bench = _Bench(folder / "resting")
    for leases in effort.resting:
        tell(f"operations beside {leases:,} leases at rest")
        results.resting.append(measure(bench, leases))
    bench.core.close()
    most = results.resting[-1]
    results.floors += _bounds(results.resting)
    results.floors.append(Floor(f"start with {most.count:,} leases", most.start_s, floors.RESTING_START_S, "s CPU"))
    if most.count >= floors.LEASE_BYTES_FROM:
        results.floors.append(Floor("memory of a lease of one message", most.lease_bytes, floors.LEASE_BYTES, "B"))
    for measured, most_of_it in ((resting_others.groups, 10_000), (resting_others.parked, 100_000)):
        sizes = measured(folder, sorted({min(size, most_of_it) for size in effort.resting}), tell)
        results.resting += sizes
        results.floors += _bounds(sizes)


def _bounds(sizes: list[Resting]) -> list[Floor]:
    """The floors: the cost of each operation beside the most objects relative to the least, and the longest time."""
    least, most = sizes[0], sizes[-1]
    found = []
    for name, cost_us in most.costs_us.items():
        told = f"{name}: beside {most.count:,} {most.what}, of {least.count:,}"
        found.append(Floor(told, cost_us / least.costs_us[name], floors.RESTING_RATIO, "×"))
    longest = max(size.longest_ms for size in sizes)
    return [*found, Floor(f"longest at a time beside {most.what}", longest, floors.GROUP_MS, "ms CPU")]
