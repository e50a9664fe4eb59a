"""What was read from the cluster, remembered for some seconds: one question for all that ask at the same time.

    younger than FRESH_S       answered from memory
    younger than STALE_S       the same, and read anew in the background
    older, or forgotten        waited for; if nobody answers, what was known is served on

Everything here may be lost at any time: another gateway has its own, and a restart begins without one.
"""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from popmq_server.errors import Refused

FRESH_S, STALE_S = 5.0, 15.0
#: How long it is remembered that something does not exist.
ABSENT_S = 1.0
#: Entries of one memory; beyond, those that were read the longest ago are forgotten.
ENTRIES_MAX = 20_000

K = TypeVar("K")
V = TypeVar("V")


class _Entry(NamedTuple, Generic[V]):
    value: V
    read_s: float


class Remembered(Generic[K, V]):
    """Values by key. `read`: asks the cluster; it raises Refused. A value that is None is one that does not exist."""

    def __init__(self, read: Callable[[K], Awaitable[V]]) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._entries: dict[K, _Entry[V]] = {}
        #: The reads that later askers wait for too, and all reads.
        self._reading: dict[K, asyncio.Task[V]] = {}
        self._tasks: set[asyncio.Task[V]] = set()

    async def get(self, key: K, within_s: float | None = None) -> V:
        """Raises Refused if nothing is known, and nothing can be read. `within_s`: how old it may be, instead."""
        fresh_s, stale_s = (FRESH_S, STALE_S) if within_s is None else (within_s, within_s)
        entry = self._entries.get(key)
        age_s = self._loop.time() - entry.read_s if entry is not None else stale_s
        if entry is not None and age_s < (fresh_s if entry.value is not None else ABSENT_S):
            return entry.value
        task = self._reading.get(key)
        if task is None:
            # Without the deadline of the call that happens to ask first: others wait for it too.
            task = self._loop.create_task(self._ask(key), context=contextvars.Context())
            self._reading[key] = task
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._asked, key))
        if entry is not None and entry.value is not None and age_s < stale_s:
            return entry.value
        try:
            return await asyncio.shield(task)
        except Refused as refused:
            if entry is None or entry.value is None or not refused.retryable:
                raise  # what did not exist may exist by now
            return entry.value

    async def anew(self, key: K) -> V:
        """As `get`, but the cluster is asked now: what is being read may be older than what the caller has seen."""
        self._reading.pop(key, None)
        return await self.get(key, 0.0)

    def known(self, key: K) -> V | None:
        """What is remembered, of any age."""
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    def put(self, key: K, value: V) -> None:
        """Remembers a value that this gateway has just written or learnt."""
        self._entries.pop(key, None)
        self._entries[key] = _Entry(value, self._loop.time())
        if len(self._entries) > ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]

    def forget(self, key: K) -> None:
        """Drops a value: an answer showed that it may be wrong. What is being read may be older than that answer."""
        self._entries.pop(key, None)
        self._reading.pop(key, None)

    def doubt(self, key: K) -> None:
        """As `forget`, but a value read a moment ago stays; else a broker that always answers so costs a read each."""
        entry = self._entries.get(key)
        if entry is not None and self._loop.time() - entry.read_s >= ABSENT_S:
            self.forget(key)

    async def _ask(self, key: K) -> V:
        try:
            value = await self._read(key)
        except Refused as refused:
            entry = self._entries.get(key)
            if entry is not None and refused.retryable:  # served on, and asked for again in the background
                self._entries[key] = entry._replace(read_s=self._loop.time() - FRESH_S)
            else:
                self._entries.pop(key, None)
            raise
        if self._reading.get(key) is asyncio.current_task():
            self.put(key, value)
        return value

    def _asked(self, key: K, task: "asyncio.Task[V]") -> None:
        self._tasks.discard(task)
        if self._reading.get(key) is task:
            del self._reading[key]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone, or had an older value

    def close(self) -> None:
        """Ends what is being read."""
        for task in list(self._tasks):
            task.cancel()
