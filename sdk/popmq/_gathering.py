"""Which sends fly together: the pure half of gathering, shared by both clients.

    callers ──▶ pending ──board()──▶ a request in flight ──landed()──▶ settled

A caller flies at once when nothing of its topic is in flight. Otherwise it waits until that flight lands, until as much
as one request should carry has gathered, or for a few ms; then it flies with everybody who waits. So one caller alone
never waits for company, and a hundred callers share one fsync. Of those who wait somebody always keeps the time for
all, unless only a landing can help: who keeps it may change, and whoever takes it over is woken.

A message group is in one flight at a time, and in a flight in the order of its callers: a flight that is tried again
would be overtaken otherwise. Whoever waits for its message group lets others pass, but nobody of its message group.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb

#: What one request gathers at most; what a single caller sends at once is never cut by these.
GATHER_MESSAGES_MAX = 512
GATHER_BYTES_MAX = 1024 * 1024
#: How long who came first waits for the request in flight before it flies beside it: a few times a quick fsync.
GATHER_S_MAX = 0.005
#: Requests of one topic in flight at a time. More would only spread the same messages over more commits.
FLIGHTS_MAX = 8


@dataclass(eq=False, slots=True)
class Unit:
    """What one caller sends at once. `turn` is set when it is settled, or when it may be its turn to fly."""

    rows: Sequence[pb.Message]
    size: int  # bytes
    turn: Any
    message_groups: frozenset[str] = frozenset()
    keeps_time: bool = False  # waits a few ms only, then flies with all who wait
    results: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    settled: bool = False

    def settle(self, results: list[Any], error: BaseException | None) -> None:
        """Ends the caller's waiting."""
        self.results = results
        self.error = error
        self.settled = True
        self.turn.set()


class Line:
    """Those of one topic who wait to fly."""

    def __init__(self) -> None:
        self._pending: deque[Unit] = deque()
        self._messages = 0
        self._bytes = 0
        self._flying = 0
        self._aloft: set[str] = set()  # message groups in flight
        self._blocked: set[str] | None = (
            None  # nobody may fly: all who wait are of these, and something must land first
        )

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._pending)

    def add(self, unit: Unit) -> None:
        """Joins those who wait. Who keeps the time is the first of them, and whoever ends a time when none may fly."""
        self._pending.append(unit)
        self._messages += len(unit.rows)
        self._bytes += unit.size
        unit.keeps_time = len(self._pending) == 1 or self._unblocked_by(unit)

    def _unblocked_by(self, unit: Unit) -> bool:
        """Another one joins those who may not fly: looked at alone, for the others may be many thousands."""
        if self._blocked is None:
            return False
        if self._blocked.isdisjoint(unit.message_groups):
            self._blocked = None
            return True
        self._blocked |= unit.message_groups
        return False

    def leave(self, unit: Unit) -> bool:
        """Takes back a unit that still waits; false: it flies or is settled."""
        if unit not in self._pending:
            return False
        self._pending.remove(unit)
        self._count_out(unit)
        self._blocked = None
        self._give_turn()
        return True

    def board(self, patient: bool) -> list[Unit]:
        """Who flies now, on one request; nobody when it is better to wait. Not `patient`: the few ms are over."""
        full = self._messages >= GATHER_MESSAGES_MAX or self._bytes >= GATHER_BYTES_MAX
        if not self._pending or self._flying >= FLIGHTS_MAX or (self._flying and patient and not full):
            return []
        units = [] if self._blocked is not None else self._take()
        if units:
            self._flying += 1
            self._give_turn()
        return units

    def landed(self, units: list[Unit]) -> None:
        """A flight is over: it may be the turn of those who wait."""
        self._flying -= 1
        self._blocked = None
        for unit in units:
            self._aloft -= unit.message_groups
        self._give_turn()

    def _give_turn(self) -> None:
        """Whoever waits longest looks again, and keeps the time from now on."""
        if self._pending:
            self._pending[0].keeps_time = True
            self._pending[0].turn.set()

    def _take(self) -> list[Unit]:
        units: list[Unit] = []
        passed: list[Unit] = []
        blocked = set(self._aloft)
        messages = size = 0
        while self._pending:
            unit = self._pending[0]
            if not blocked.isdisjoint(unit.message_groups):
                blocked |= unit.message_groups
                passed.append(self._pending.popleft())
                continue
            messages += len(unit.rows)
            size += unit.size
            if units and (messages > GATHER_MESSAGES_MAX or size > GATHER_BYTES_MAX):
                break
            units.append(self._pop())
        self._pending.extendleft(reversed(passed))
        for unit in units:
            self._aloft |= unit.message_groups
        if not units:
            self._blocked = blocked
        return units

    def _pop(self) -> Unit:
        unit = self._pending.popleft()
        self._count_out(unit)
        return unit

    def _count_out(self, unit: Unit) -> None:
        self._messages -= len(unit.rows)
        self._bytes -= unit.size
