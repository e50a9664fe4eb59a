"""Attempt ids: the answer of a Pop is kept for a minute, so that a client which lost it gets it by its repeat.

It is kept in this process alone. The same client may reach another gateway, or a restarted one: then other messages are
leased, and those of the lost answer come again after their lease (`attempt_ids` in promises.py). Ordered pops also name
the id to the broker, which hands out a locked batch again.
"""

import asyncio
from collections import OrderedDict

from popmq_server.contract.commands import Pop, Popped

KEPT_S = 60.0
#: Answers that are kept; beyond, the oldest are forgotten.
ANSWERS_MAX = 10_000
Key = tuple[str, str, str, str]


def key_of(command: Pop) -> Key | None:
    """What identifies a try; None: it cannot be repeated."""
    if not command.attempt_id:
        return None
    return command.client_id, command.attempt_id, command.group, command.topic


class Attempts:
    """Pops that are under way or were answered in the last minute."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pops: OrderedDict[Key, tuple[asyncio.Task[Popped], float]] = OrderedDict()

    def known(self, key: Key) -> "asyncio.Task[Popped] | None":
        """The pop of this try, unless it failed."""
        self._drop_old()
        found = self._pops.get(key)
        return found[0] if found is not None and not _failed(found[0]) else None

    def keep(self, key: Key, task: "asyncio.Task[Popped]") -> None:
        """The pop of a new try."""
        self._pops[key] = (task, self._loop.time())
        self._pops.move_to_end(key)
        if len(self._pops) > ANSWERS_MAX:
            self._pops.popitem(last=False)

    def _drop_old(self) -> None:
        while self._pops:
            key, (_, began_s) = next(iter(self._pops.items()))
            if self._loop.time() - began_s < KEPT_S:
                return
            del self._pops[key]


def _failed(task: "asyncio.Task[Popped]") -> bool:
    """Also one that leased nothing: a repeat of it waits anew."""
    return task.done() and (task.cancelled() or task.exception() is not None or not task.result().rows)
