"""Whose turn it is in a FIFO topic: message groups with something waiting and no lock, oldest first.

    waiting  (G, T, message group) → entries in fwait          locks    → undone members under leases, and whose
    stopped  (G, T, message group) → by what, and why          ready = waiting, not locked, not stopped

What is ready follows from these three tables; only the order in which groups became ready is kept here. An aborted
commit puts it back as it was (undo.py): else groups that run twice would serve the same message group each time. A
restart forgets it: it is made again from the tables.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from popmq_server.state.undo import Undo
from popmq_server.storage.table import Table

#: group id, topic id, hash of the message group.
Key = tuple[int, int, bytes]
M = TypeVar("M")


class Line(Generic[M]):
    """Members in the order in which they came. An abort puts each back in its place."""

    __slots__ = ("_came", "_next", "_sorted", "_undo")

    def __init__(self, undo: Undo, members: Iterable[M] = ()) -> None:
        self._undo = undo
        self._came: dict[M, int] = {member: place for place, member in enumerate(members)}
        self._next = len(self._came)
        self._sorted = True

    def stand(self, member: M, ready: bool) -> None:
        """Puts a member at the end, unless it is there, or takes it out."""
        if ready and member not in self._came:
            self._came[member] = self._next
            self._next += 1
            self._undo.note(self._take_out, member)
        elif not ready and member in self._came:
            self._undo.note(self._put_back, member, self._came.pop(member))

    def _take_out(self, member: M) -> None:
        del self._came[member]

    def _put_back(self, member: M, came: int) -> None:
        self._came[member] = came
        self._sorted = False

    def __iter__(self) -> Iterator[M]:
        """Those first that wait longest. No change while it runs."""
        if not self._sorted:
            self._came = dict(sorted(self._came.items(), key=lambda one: one[1]))
            self._sorted = True
        return iter(self._came)

    def __len__(self) -> int:
        return len(self._came)


class Lines:
    """The ready message groups of each group in each topic."""

    def __init__(
        self,
        waiting: Table[Key, int],
        locks: Table[Key, tuple[int, int, int]],
        stopped: Table[Key, tuple[tuple[int, str], ...]],
        undo: Undo,
    ) -> None:
        self._waiting = waiting
        self._locks = locks
        self._stopped = stopped
        self._undo = undo
        self._lines: dict[tuple[int, int], Line[bytes]] = {}

    def _ready(self, key: Key) -> bool:
        return key in self._waiting and key not in self._locks and key not in self._stopped

    def judge(self, key: Key) -> bool:
        """Puts a message group at the end of its line, or takes it out, by what the tables say; whether it is ready."""
        ready, where = self._ready(key), key[:2]
        line = self._lines.get(where)
        if line is not None:
            line.stand(key[2], ready)
        return ready

    def of(self, where: tuple[int, int]) -> Iterator[bytes]:
        """The ready message groups, those first that wait longest. No change while it runs."""
        return iter(self._line(where))

    def _line(self, where: tuple[int, int]) -> Line[bytes]:
        """A line, made from the tables when somebody asks for the first time."""
        line = self._lines.get(where)
        if line is None:
            line = Line(self._undo, (key[2] for key in self._waiting if key[:2] == where and self._ready(key)))
            self._lines[where] = line
            self._undo.note(self._lines.pop, where, None)
        return line

    def count(self, where: tuple[int, int]) -> int:
        """How many message groups are ready."""
        return len(self._line(where))
