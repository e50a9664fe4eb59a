"""Whose turn it is in a FIFO topic: message groups with something waiting and no lock, oldest first.

    waiting  (G, T, message group) → entries in fwait          locks    → undone members under leases, and whose
    stopped  (G, T, message group) → by what, and why          ready = waiting, not locked, not stopped

What is ready follows from these three tables; only the order in which groups became ready is kept here, in plain dicts.
A restart and an aborted commit forget the order of what they touched, and it is made again from the tables: nothing is
lost by that but who came first.
"""

from collections.abc import Iterator

from popmq_server.storage.table import Table

#: group id, topic id, hash of the message group.
Key = tuple[int, int, bytes]


class Lines:
    """The ready message groups of each group in each topic."""

    def __init__(
        self,
        waiting: Table[Key, int],
        locks: Table[Key, tuple[int, int, int]],
        stopped: Table[Key, tuple[tuple[int, str], ...]],
    ) -> None:
        self._waiting = waiting
        self._locks = locks
        self._stopped = stopped
        self._lines: dict[tuple[int, int], dict[bytes, None]] = {}
        self._touched: set[tuple[int, int]] = set()

    def _ready(self, key: Key) -> bool:
        return key in self._waiting and key not in self._locks and key not in self._stopped

    def judge(self, key: Key) -> bool:
        """Puts a message group at the end of its line, or takes it out, by what the tables say; whether it is ready."""
        ready, where = self._ready(key), key[:2]
        line = self._lines.get(where)
        if line is not None:
            self._touched.add(where)
            if ready:
                line.setdefault(key[2])
            else:
                line.pop(key[2], None)
        return ready

    def of(self, where: tuple[int, int]) -> Iterator[bytes]:
        """The ready message groups, those first that wait longest. No change while it runs."""
        return iter(self._line(where))

    def _line(self, where: tuple[int, int]) -> dict[bytes, None]:
        """A line, made from the tables when somebody asks for the first time."""
        line = self._lines.get(where)
        if line is None:
            self._touched.add(where)
            line = {key[2]: None for key in self._waiting if key[:2] == where and self._ready(key)}
            self._lines[where] = line
        return line

    def count(self, where: tuple[int, int]) -> int:
        """How many message groups are ready."""
        return len(self._line(where))

    def keep(self) -> None:
        """What was changed has been committed."""
        self._touched.clear()

    def forget(self) -> None:
        """What was changed is not true: these lines are made again when somebody asks."""
        for where in self._touched:
            self._lines.pop(where, None)
        self._touched.clear()
