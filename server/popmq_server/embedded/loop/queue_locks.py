"""Queue locks: one client of a group at a time reads a queue.

    LockQueues ──▶ unlocked, or timed out ──▶ locked for LOCK_MS ──▶ the same client: renewed
                   locked by another      ──▶ not in the answer

In memory only: a restart drops all locks, and clients lock again. The locks are advisory among the consumers of a
group; Pull does not check them.
"""

from collections.abc import Iterable

from popmq_server.clock import Clock
from popmq_server.contract.commands.sessions import LOCK_MS


class QueueLocks:
    """The holder of each locked queue, by group and topic. For one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[tuple[str, str], dict[int, tuple[str, int]]] = {}

    def lock(self, group: str, topic: str, client: str, queues: Iterable[int]) -> list[int]:
        """Locks or renews queues; returns all that the client holds now, earlier ones included."""
        now_ms = self._clock.now_ms()
        held = self._locks.setdefault((group, topic), {})
        for queue in queues:
            holder, until_ms = held.get(queue, ("", 0))
            if holder == client or until_ms <= now_ms:
                held[queue] = (client, now_ms + LOCK_MS)
        return sorted(queue for queue, (name, until_ms) in held.items() if name == client and until_ms > now_ms)

    def unlock(self, group: str, topic: str, client: str, queues: Iterable[int]) -> None:
        """Unlocks those queues that this client holds; an empty `queues` unlocks all of its own."""
        held = self._locks.get((group, topic), {})
        for queue in list(queues) or list(held):
            if held.get(queue, ("", 0))[0] == client:
                del held[queue]
        if not held:
            self._locks.pop((group, topic), None)

    def leave(self, group: str, client: str) -> None:
        """Unlocks everything of a client that says goodbye, so that its successors need not wait."""
        for name, topic in [key for key in self._locks if key[0] == group]:
            self.unlock(name, topic, client, ())

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops the locks of a deleted group or topic: one created later under that name starts without locks."""
        for key in [key for key in self._locks if (group and key[0] == group) or (topic and key[1] == topic)]:
            del self._locks[key]
