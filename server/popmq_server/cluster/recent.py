"""Calls that may come again: each is under way, or was answered in the last minute, in this process.

A repeat that reaches another gateway, or a restarted one, is a new call there.
"""

import asyncio
from collections import OrderedDict
from typing import Generic, TypeVar

KEPT_S = 60.0
#: Calls that are kept; beyond, the oldest are forgotten.
CALLS_MAX = 10_000

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Calls by what identifies them."""

    def __init__(self, calls_max: int = CALLS_MAX) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls_max = calls_max
        self._calls: OrderedDict[K, tuple[asyncio.Task[V], float]] = OrderedDict()

    def known(self, key: K) -> "asyncio.Task[V] | None":
        """The call with this key, unless it failed."""
        self._drop_old()
        task = self._calls.get(key, (None, 0.0))[0]
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        return None if failed else task

    def keep(self, key: K, task: "asyncio.Task[V]") -> None:
        """Keeps a new call."""
        self._calls[key] = (task, self._loop.time())
        self._calls.move_to_end(key)
        task.add_done_callback(_looked_at)
        if len(self._calls) > self._calls_max:
            self.forget(next(iter(self._calls)))

    def forget(self, key: K) -> None:
        """The call is undone: a repeat is a new one."""
        self._calls.pop(key, None)

    def _drop_old(self) -> None:
        while self._calls:
            key, (_, began_s) = next(iter(self._calls.items()))
            if self._loop.time() - began_s < KEPT_S:
                return
            self.forget(key)


def _looked_at(task: "asyncio.Task[V]") -> None:
    """Whoever made the call may have gone."""
    if not task.cancelled():
        task.exception()
