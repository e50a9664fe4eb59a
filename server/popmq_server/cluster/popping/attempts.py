"""Attempt ids: the answer of a Pop is kept for a minute, so that a client which lost it gets it by its repeat.

It is kept in this process alone. The same client may reach another gateway, or a restarted one: then other messages are
leased, and those of the lost answer come again after their lease (`attempt_ids` in promises.py). Ordered pops also name
the id to the broker, which hands out a locked batch again.
"""

import asyncio

from popmq_server.cluster.recent import Recent
from popmq_server.contract.commands import Pop, Popped

Key = tuple[str, str, str, str]


def key_of(command: Pop) -> Key | None:
    """What identifies a try; None: it cannot be repeated."""
    if not command.attempt_id:
        return None
    return command.client_id, command.attempt_id, command.group, command.topic


class Attempts(Recent[Key, Popped]):
    """Pops that are under way or were answered in the last minute."""

    def known(self, key: Key) -> "asyncio.Task[Popped] | None":
        """The pop of this try, unless it failed, or leased nothing: a repeat of it waits anew."""
        task = super().known(key)
        return None if task is not None and task.done() and not task.result().rows else task
