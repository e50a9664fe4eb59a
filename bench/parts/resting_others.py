"""Measures other operations beside consumer groups of one topic, and beside parked pops; resting.py has leases.

Of groups: CPU time of the writer thread for one commit batch. Of parked pops: CPU time of the event loop. A list of all
groups has as many pieces as it needs: the table has one piece of it.
"""

import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measuring.measure import Resting
from bench.parts.storm import message
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.loop.long_poll import WAITERS_PER_KEY_MAX, Waiters
from popmq_server.embedded.state.lite_watch import wake_key
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer.core import Core
from popmq_server.values.handles import make_handle

MAP_BYTES = 16 << 30
COMMIT = 500
HOUR_MS = 3_600_000
#: How often each operation is measured; the median counts, and the longest.
TIMES = 15


class _Groups:
    """A store with groups that all read topic `rest`, and a pair of topic and group beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.count = folder, FakeClock(), 0
        self.core = Core(Store(folder, MAP_BYTES, "none"), self.clock)
        for topic in ("rest", "small"):
            self.core.run([ask.CreateTopic(topic, 4, False, 72 * HOUR_MS)])
        self.core.run([_group("small")])
        self.core.run([ask.Send("small", tuple(map(message, range(1000))))])
        self.core.run([ask.Pop("small", "small", (), 1)])

    def grow(self, count: int) -> None:
        self.core.run([ask.Send("rest", tuple(map(message, range(100))))])
        for first in range(0, count, COMMIT):  # those that were there lost their leases in the purge of `rest`
            names = [f"g{number}" for number in range(first, min(count, first + COMMIT))]
            self.core.run([_group(name) for name in names])
            self.core.run([ask.Pop("rest", name, (), 1, client_id="c") for name in names])
        self.count = count
        self.core.close()
        self.core = Core(Store(self.folder, MAP_BYTES, "none"), self.clock)

    def retention(self) -> Any:
        """A minute's periodic work, whose pieces are counted one by one."""
        self.clock.advance(60_000)
        return None


def _group(name: str) -> ask.CreateGroup:
    return ask.CreateGroup(name, 17, (10_000,), 12 * HOUR_MS, 0, "EARLIEST", 0, False)


def groups(folder: Path, sizes: list[int], tell: Callable[[str], None]) -> list[Resting]:
    """The table beside groups."""
    bench, found = _Groups(folder / "groups"), list[Resting]()
    for size in sizes:
        tell(f"operations beside {size:,} groups of one topic")
        gc.unfreeze()
        bench.grow(size)
        gc.collect()
        gc.freeze()
        found.append(_beside_groups(bench))
    gc.unfreeze()
    bench.core.close()
    return found


def _beside_groups(bench: _Groups) -> Resting:
    found, longest = Resting(bench.count, "groups"), list[float]()

    def timed(*commands: Any) -> tuple[float, Any]:
        began = time.thread_time()
        results = bench.core.run(list(commands)).results
        longest.append(time.thread_time() - began)
        return longest[-1], results

    def minute() -> float:
        bench.clock.advance(60_000)
        pieces = [0.0]
        while bench.core.next_due_ms is not None and bench.core.next_due_ms <= bench.clock.now_ms():
            pieces.append(timed()[0])
        return max(pieces)

    def removed(*commands: Any) -> float:
        """The longest of the commands, and of the pieces of the removal that follows."""
        costs = [timed(*commands)[0]]
        while next(iter(bench.core.state.purges), None) is not None:
            costs.append(timed()[0])
        return max(costs)

    def one_removed() -> float:
        bench.core.run([ask.CreateTopic("gone", 1, False, HOUR_MS), _group("gone"), ask.Available("gone", "gone")])
        return removed(ask.DeleteGroup("gone"), ask.DeleteTopic("gone"))

    def scraped() -> float:
        """One piece of the list of all groups, in the middle of it."""
        return timed(queries.Groups(after=f"{bench.count // 2} rest"))[0]

    operations: dict[str, Callable[[], float]] = {
        "list of groups with numbers, piece": scraped,
        "list of groups with settings, piece": lambda: timed(queries.GroupSettings(after="g5", rows_max=500))[0],
        "numbers of one group": lambda: timed(queries.Groups("small", "small"))[0],
        "heartbeat": lambda: timed(queries.GroupSettings("small"))[0],
        "send to their topic": lambda: timed(ask.Send("rest", (message(1),)))[0],
        "retention, piece": minute,
        "delete of a small topic and its group, piece": one_removed,
    }
    for name, operation in operations.items():
        found.costs_us[name] = statistics.median(operation() for _ in range(TIMES)) * 1e6
    pairs = []
    for _ in range(TIMES):
        took, (popped,) = timed(ask.Pop("small", "small", (), 1))
        handle = make_handle(popped.ck_id, popped.rows[0][5], popped.nonce)
        pairs.append((took, timed(ask.Ack("small", (handle,)))[0]))
    found.costs_us |= {"pop": statistics.median(pop for pop, _ in pairs) * 1e6}
    found.costs_us |= {"ack": statistics.median(ack for _, ack in pairs) * 1e6}
    found.costs_us["purge of their topic, piece"] = removed(ask.PurgeTopic("rest")) * 1e6
    found.longest_ms = max(longest) * 1e3
    return found


def parked(folder: Path, sizes: list[int], tell: Callable[[str], None]) -> list[Resting]:
    """The table beside parked pops; it needs no store."""
    found = []
    for size in sizes:
        tell(f"operations beside {size:,} parked pops")
        found.append(asyncio.run(_beside_parked(size)))
    return found


async def _beside_parked(count: int) -> Resting:
    clock, found, longest = FakeClock(), Resting(count, "parked pops"), list[float]()
    lot = Waiters(clock, wake_all=False)
    keys = [(f"g{number // WAITERS_PER_KEY_MAX}", wake_key("t", "")) for number in range(count - 2)]
    waits = [asyncio.ensure_future(lot.park(key, lot.generation(key), 1 << 60)) for key in keys]
    await asyncio.sleep(0)
    gc.collect()
    gc.freeze()

    async def timed(action: Callable[[], Any]) -> float:
        began = time.thread_time()
        action()
        await asyncio.sleep(0)
        longest.append(time.thread_time() - began)
        return longest[-1]

    key = ("mine", wake_key("t", ""))

    def park() -> None:
        waits.append(asyncio.ensure_future(lot.park(key, lot.generation(key), 1 << 60)))

    took: dict[str, list[float]] = {"park": [], "wake of one group": [], "number in stats": [], "timer": []}
    for _ in range(4 * TIMES):
        took["park"].append(await timed(park))
        took["number in stats"].append(await timed(lambda: lot.parked("mine", "t")))
        took["wake of one group"].append(await timed(lambda: lot.wake({key})))
        took["timer"].append(await timed(lot.tick))
    found.costs_us = {name: statistics.median(each) * 1e6 for name, each in took.items()}
    found.longest_ms = max(longest) * 1e3
    lot.close()
    await asyncio.gather(*waits)
    gc.unfreeze()
    return found
