"""Locks of queues: one client of a group at a time reads a queue (S0.02, S0.06, S3.32).

    LockQueues ──▶ free, or its time is over ──▶ locked for LOCK_MS ──▶ the same client: renewed
                   locked by another         ──▶ not among the answer

In memory only: a restart frees all, and clients lock again. A lock is a matter of the consumers of a group among
themselves; Pull asks nobody for it.
"""

from collections.abc import Iterable

from popmq_server.clock import Clock

#: Clients hold a lock for half of this and renew it every third (C.13).
LOCK_MS = 60_000


class QueueLocks:
    """Who has which queue, by group and topic; for one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[tuple[str, str], dict[int, tuple[str, int]]] = {}

    def lock(self, group: str, topic: str, client: str, queues: Iterable[int]) -> list[int]:
        """Takes or renews queues; those that the client has now, also from before."""
        now_ms = self._clock.now_ms()
        held = self._locks.setdefault((group, topic), {})
        for queue in queues:
            holder, until_ms = held.get(queue, ("", 0))
            if holder == client or until_ms <= now_ms:
                held[queue] = (client, now_ms + LOCK_MS)
        return sorted(queue for queue, (name, until_ms) in held.items() if name == client and until_ms > now_ms)

    def unlock(self, group: str, topic: str, client: str, queues: Iterable[int]) -> None:
        """Gives queues free, if they are this client's; none named: all of its own."""
        held = self._locks.get((group, topic), {})
        for queue in list(queues) or list(held):
            if held.get(queue, ("", 0))[0] == client:
                del held[queue]
        if not held:
            self._locks.pop((group, topic), None)

    def leave(self, group: str, client: str) -> None:
        """A client says goodbye: whoever takes its queues over need not wait."""
        for name, topic in [key for key in self._locks if key[0] == group]:
            self.unlock(name, topic, client, ())

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """A group or a topic was deleted: one made later under its name is a new one."""
        for key in [key for key in self._locks if (group and key[0] == group) or (topic and key[1] == topic)]:
            del self._locks[key]
