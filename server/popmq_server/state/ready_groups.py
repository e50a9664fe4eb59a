"""Ready message groups of FIFO topics: they have waiting messages, no lock, and are not stopped; oldest first.

    waiting  (G, T, message group) → entries in fwait          locks    → undone members under leases, owner, part
    stopped  (G, T, message group) → offsets and reasons       ready = waiting, not locked, not stopped

These three tables determine which message groups are ready; this module keeps only the order in which they became
ready. An aborted commit restores the order (undo.py): otherwise a batch that runs twice would change it twice. After a
restart it is built from the tables.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from popmq_server.model.ids import GroupTopic, MessageGroup
from popmq_server.state.undo import Undo
from popmq_server.storage.table import Table

M = TypeVar("M")


class Line(Generic[M]):
    """Members in the order of their arrival. An abort restores the order."""

    __slots__ = ("_came", "_next", "_sorted", "_undo")

    def __init__(self, undo: Undo, members: Iterable[M] = ()) -> None:
        self._undo = undo
        self._came: dict[M, int] = {member: place for place, member in enumerate(members)}
        self._next = len(self._came)
        self._sorted = True

    def stand(self, member: M, ready: bool) -> None:
        """Adds a member to the end, unless it is present, or removes it."""
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
        """Longest waiting first. The line must not change during the iteration."""
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
        waiting: Table[MessageGroup, int],
        locks: Table[MessageGroup, tuple[int, int, int]],
        stopped: Table[MessageGroup, tuple[tuple[int, str], ...]],
        undo: Undo,
    ) -> None:
        self._waiting = waiting
        self._locks = locks
        self._stopped = stopped
        self._undo = undo
        self._lines: dict[tuple[int, int], Line[bytes]] = {}

    def _ready(self, key: MessageGroup) -> bool:
        return key in self._waiting and key not in self._locks and key not in self._stopped

    def judge(self, key: MessageGroup) -> bool:
        """Adds a message group to the end of its line, or removes it, by the tables; returns whether it is ready."""
        ready, where = self._ready(key), key[:2]
        line = self._lines.get(where)
        if line is not None:
            line.stand(key[2], ready)
        return ready

    def of(self, where: GroupTopic) -> Iterator[bytes]:
        """The ready message groups, longest waiting first. The line must not change during the iteration."""
        return iter(self._line(where))

    def _line(self, where: GroupTopic) -> Line[bytes]:
        """A line; the first access builds it from the tables."""
        line = self._lines.get(where)
        if line is None:
            line = Line(self._undo, (key[2] for key in self._waiting if key[:2] == where and self._ready(key)))
            self._lines[where] = line
            self._undo.note(self._lines.pop, where, None)
        return line

    def count(self, where: GroupTopic) -> int:
        """Number of ready message groups."""
        return len(self._line(where))
