"""The seams at which a run takes the place of the machine: time, randomness, threads, sockets and the disk's commits.

Everything else is the product's own code. The places that read a clock are found, not listed: each name of a module of
ours that is bound to a function of `popmq_http2/elapsed.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest import mock

import popmq_http2.client.aio
import popmq_http2.server.server
import popmq_server.embedded.writer.writer
import popmq_server.ports
import popmq_server.process.serving  # what a broker imports is imported before clocks are looked for
import popmq_server.protocols.server
import popmq_verify.load.client
import popmq_verify.load.scratch
import popmq_verify.rest
from popmq_http2 import elapsed
from popmq_server.contract.commands import Pop
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.store.lmdb import DiskFault, Transaction
from popmq_server.embedded.store.store import Store
from tests.simulated.scheduler import MS, US, Condition, Killed, Lock, S, Scheduler, Thread

#: What the wall clock shows when the monotonic one is 0, in ns.
WALL_NS = 1_700_000_000 * S
#: How long a commit takes, with its sync: on a fast, a usual and a slow disk, and on one of changing moods.
_FAST, _USUAL, _SLOW = (2 * US, 40 * US), (30 * US, 2 * MS), (1 * MS, 30 * MS)
COMMIT_NS = (_FAST,), (_USUAL,), (_SLOW,), (_FAST, _FAST, _USUAL, _SLOW)
#: Bytes that the disk has left.
DISK_FREE = 1 << 40


#: group, topic, queue, offset and attempt of a message that a pop returned.
Lease: TypeAlias = tuple[str, str, int, int, int]


class Disk:
    """The disk under the store: its commits take time, now and then long, and some fail."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: What happens to the next commit of the broker: it takes so long, or it fails.
        self.stall_ns = 0
        self.fails = False
        self.commits = 0
        self.commit_ns: tuple[tuple[int, int], ...] = COMMIT_NS[1]

    def commit(self, real: Callable[[Any], None], transaction: Any) -> None:
        scheduler = self._scheduler
        if scheduler.current is None:
            return real(transaction)
        stall_ns, self.stall_ns = self.stall_ns, 0
        half_ns = (stall_ns or scheduler.between(*scheduler.random.choice(self.commit_ns))) // 2
        try:
            scheduler.pause(half_ns)
        except Killed:
            transaction.abort()  # else LMDB waits for its thread when the environment is closed
            raise
        if self.fails:
            self.fails = False
            scheduler.note("commit fails")
            raise DiskFault("injected")
        self.commits += 1
        real(transaction)
        scheduler.note(f"commit {self.commits}")
        scheduler.pause(half_ns)
        return None


class Listening:
    """In place of popmq_http2's listening socket."""

    refuses = False

    def __init__(self, _: object, most: int = 0) -> None:
        pass

    def listen(self, _: int) -> None:
        pass


class Ports(popmq_server.ports.Ports):
    """A port that the network opens."""

    def opened(self, _: object, __: int) -> list[Any]:
        return [SimpleNamespace(getsockname=lambda: ("127.0.0.1", 8085), close=lambda: None)]


@functools.cache
def _places() -> list[tuple[Any, str, str]]:
    """(module, name, clock) of each name that is bound to a clock."""
    clocks = {id(getattr(elapsed, name)): name for name in ("monotonic", "monotonic_ns", "wall")}
    ours = [(name, module) for name, module in sys.modules.items() if name.startswith("popmq")]
    names = ((module, name, clocks.get(id(value))) for _, module in ours for name, value in vars(module).items())
    return [(module, name, clock) for module, name, clock in names if clock]


@contextlib.contextmanager
def simulated(scheduler: Scheduler, disk: Disk, seed: int) -> Iterator[set[Lease]]:
    """Puts a scheduler in the place of the machine. Yields what the engine's pops return meanwhile."""
    popped: set[Lease] = set()
    clocks: dict[str, Callable[[], float]] = {
        "monotonic": lambda: scheduler.now_ns / S,
        "monotonic_ns": lambda: scheduler.now_ns,
        "wall": lambda: (scheduler.now_ns + WALL_NS) / S,
    }
    told = SimpleNamespace(sleep=lambda seconds: scheduler.pause(int(seconds * S)), monotonic=clocks["monotonic"])
    threads = SimpleNamespace(
        RLock=lambda: Lock(scheduler), Condition=Condition, Thread=functools.partial(Thread, scheduler)
    )
    entropy, state = random.Random(f"{seed}/entropy"), random.getstate()
    random.seed(f"{seed}/random")
    with contextlib.ExitStack() as patched:

        def patch(where: Any, name: str, what: Any) -> None:
            patched.enter_context(mock.patch.object(where, name, what))

        for module, name, clock in _places():
            patch(module, name, clocks[clock])
        for module in (popmq_verify.load.client, popmq_verify.load.scratch, popmq_verify.rest):
            patch(module, "time", told)
        patch(os, "urandom", entropy.randbytes)
        patch(random, "_urandom", entropy.randbytes)
        patch(popmq_server.embedded.writer.writer, "threading", threads)
        patch(popmq_http2.server.server, "Listening", Listening)
        patch(Store, "disk_free", lambda _: DISK_FREE)
        patch(Waiters, "wake", _waking(Waiters.wake))
        for kind in (Transaction, JournaledTransaction):
            patch(kind, "commit", _committing(disk, kind.commit))
        patch(EmbeddedEngine, "pop", _popping(EmbeddedEngine.pop, popped))
        yield popped
    random.setstate(state)


def _committing(disk: Disk, real: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda transaction: disk.commit(real, transaction)


def _popping(real: Callable[..., Any], popped: set[Lease]) -> Callable[..., Any]:
    async def pop(engine: EmbeddedEngine, command: Pop, wait_ms: int) -> Any:
        found = await real(engine, command, wait_ms)
        popped.update((command.group, command.topic, row[2], row[3], row[4]) for row in found.rows)
        return found

    return pop


def _waking(real: Callable[..., None]) -> Callable[..., None]:
    """The order of a set of texts differs from process to process."""
    return lambda lot, woken, *served: real(lot, dict.fromkeys(sorted(woken, key=str)), *served)
