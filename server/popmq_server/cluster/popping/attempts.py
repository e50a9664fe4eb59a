"""Attempt ids: the answer of a Pop is kept for a minute, so that a client which lost it gets it by its repeat.

It is kept in this process alone. The same client may reach another gateway, or a restarted one: then other messages are
leased, and those of the lost answer come again after their lease (`attempt_ids` in promises.py). Ordered pops also name
the id to the broker, which hands out a locked batch again.

A repeat gets what is still leased: whoever has acked, changed or given back a delivery has had the answer, or left it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from popmq_server.cluster.recent import Recent
from popmq_server.contract.commands import Pop, Popped, bytes_of

Key = tuple[str, str, str, str]

#: Of messages in answers that are kept; beyond, the oldest are forgotten.
BYTES_MAX = 64 << 20


def key_of(command: Pop) -> Key | None:
    """What identifies a try; None: it cannot be repeated."""
    if not command.attempt_id:
        return None
    return command.client_id, command.attempt_id, command.group, command.topic


@dataclass
class _Answer:
    """`bytes`: of its messages. `left`: deliveries that are not over."""

    popped: Popped
    bytes: int
    left: int


class Attempts(Recent[Key, Popped]):
    """Pops that are under way or were answered in the last minute. `now_ms`: the time of their leases."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._now_ms = now_ms
        #: The oldest first.
        self._answers: dict[Key, _Answer] = {}
        #: Of their messages.
        self.bytes = 0
        #: By the handles of deliveries that are not over.
        self._key_of: dict[bytes, Key] = {}

    def known(self, key: Key) -> "asyncio.Task[Popped] | None":
        """The pop of this try, unless it failed, or leased nothing that is left: a repeat of it pops anew."""
        task = super().known(key)
        if task is None or not task.done():
            return task
        answer = self._answers.get(key)
        return task if answer is not None and answer.popped.due_ms > self._now_ms() else None

    def left(self, popped: Popped) -> Popped:
        """What is left of an answer, for a repeat."""
        return popped._replace(rows=[row for row in popped.rows if row[5] in self._key_of], replay=True)

    def answered(self, key: Key, popped: Popped) -> None:
        """What the running pop has found, unless it was forgotten meanwhile."""
        if not popped.rows or self._calls.get(key, (None, 0.0))[0] is not asyncio.current_task():
            return
        answer = self._answers[key] = _Answer(popped, bytes_of(popped.rows), len(popped.rows))
        self._key_of |= dict.fromkeys(popped.handles, key)
        self.bytes += answer.bytes
        while self.bytes > BYTES_MAX:
            self.forget(next(iter(self._answers)))

    def over(self, handle: str) -> None:
        """A delivery was acked, changed or given back. Nothing is kept of an answer that has no other one."""
        key = self._key_of.pop(handle.encode(), None)
        if key is None:
            return
        answer = self._answers[key]
        answer.left -= 1
        if not answer.left:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """The call is undone, or too old: a repeat is a new one."""
        super().forget(key)
        answer = self._answers.pop(key, None)
        if answer is not None:
            self.bytes -= answer.bytes
            for handle in answer.popped.handles:
                self._key_of.pop(handle, None)
