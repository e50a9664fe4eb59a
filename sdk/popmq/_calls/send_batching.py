"""Which waiting sends go into one request: the decisions, without waiting or calling. Pure.

    callers ──add──▶ waiting ──take_request──▶ a request in flight ──finished──▶ settled

A send goes out at once when no request of its topic is in flight. Otherwise it waits until that request ends, until
enough has gathered for a full request, or for a few milliseconds; then it goes out with all other waiting sends. So a
single caller never waits for others, and a hundred callers share one fsync. One of the waiting callers always waits
with the short timeout (`keeps_time`), unless only the end of a request can help. When that passes to another caller,
its event is set.

A message group is in one request at a time, and within it in the order of its callers: a second request could
overtake the first one's retry. A send that waits for its message group lets other message groups pass.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from popmq._calls.send_calls import Rows

#: What one gathered request holds at most; what a single caller sends at once is never split by these.
GATHER_MESSAGES_MAX = 512
GATHER_BYTES_MAX = 1024 * 1024
#: Seconds that the first waiting send waits for the request in flight before it goes out beside it: a few quick fsyncs.
GATHER_S_MAX = 0.005
#: Requests of one topic in flight at a time. More would only spread the same messages over more commits.
IN_FLIGHT_MAX = 8


@dataclass(eq=False, slots=True)
class PendingSend:
    """What one caller sends at once. `wake` is an event: set when it is settled, or may go out now."""

    rows: Rows
    size: int  # bytes
    wake: Any
    message_groups: frozenset[str] = frozenset()
    limit: float = 0.0  # seconds that its request may take; sends of another limit go into another request
    keeps_time: bool = False  # waits a few ms only, then sends with all others that wait
    results: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    settled: bool = False

    def settle(self, results: list[Any], error: BaseException | None) -> None:
        """Ends the caller's waiting."""
        self.results = results
        self.error = error
        self.settled = True
        self.wake.set()


class TopicSends:
    """The waiting sends of one topic. The caller holds a lock around each call."""

    def __init__(self) -> None:
        self._pending: deque[PendingSend] = deque()
        self._messages = 0
        self._bytes = 0
        self._in_flight = 0
        self._groups_in_flight: set[str] = set()
        # The message groups of the waiting sends, when every one of them must wait for a request in flight.
        self._blocked: set[str] | None = None

    @property
    def waiting(self) -> int:
        """How many sends wait."""
        return len(self._pending)

    def add(self, send: PendingSend) -> None:
        """Adds a send. It keeps the time when it is the first, or the first that its message groups do not block."""
        self._pending.append(send)
        self._messages += len(send.rows)
        self._bytes += send.size
        send.keeps_time = len(self._pending) == 1 or self._unblocked_by(send)

    def _unblocked_by(self, send: PendingSend) -> bool:
        """Whether a new send may go out though all others are blocked. Looks at it alone: the others may be many."""
        if self._blocked is None:
            return False
        if self._blocked.isdisjoint(send.message_groups):
            self._blocked = None
            return True
        self._blocked |= send.message_groups
        return False

    def withdraw(self, send: PendingSend) -> bool:
        """Removes a send that still waits. False: it is in flight or settled."""
        if send not in self._pending:
            return False
        self._pending.remove(send)
        self._count_out(send)
        self._blocked = None
        self._wake_first()
        return True

    def take_request(self, patient: bool) -> list[PendingSend]:
        """The sends of the next request; none when it is better to wait. Not `patient`: the few ms are over."""
        full = self._messages >= GATHER_MESSAGES_MAX or self._bytes >= GATHER_BYTES_MAX
        if not self._pending or self._in_flight >= IN_FLIGHT_MAX or (self._in_flight and patient and not full):
            return []
        sends = [] if self._blocked is not None else self._take()
        if sends:
            self._in_flight += 1
            self._wake_first()
        return sends

    def finished(self, sends: list[PendingSend]) -> None:
        """The request of these sends has ended: others may go out."""
        self._in_flight -= 1
        self._blocked = None
        for send in sends:
            self._groups_in_flight -= send.message_groups
        self._wake_first()

    def _wake_first(self) -> None:
        """The caller that waits longest looks again, and keeps the time from now on."""
        if self._pending:
            self._pending[0].keeps_time = True
            self._pending[0].wake.set()

    def _take(self) -> list[PendingSend]:
        sends: list[PendingSend] = []
        passed: list[PendingSend] = []
        blocked = set(self._groups_in_flight)
        messages = size = 0
        while self._pending:
            send = self._pending[0]
            if not blocked.isdisjoint(send.message_groups):
                blocked |= send.message_groups
                passed.append(self._pending.popleft())
                continue
            if sends and send.limit != sends[0].limit:
                break
            messages += len(send.rows)
            size += send.size
            if sends and (messages > GATHER_MESSAGES_MAX or size > GATHER_BYTES_MAX):
                break
            sends.append(self._pop())
        self._pending.extendleft(reversed(passed))
        for send in sends:
            self._groups_in_flight |= send.message_groups
        if not sends:
            self._blocked = blocked
        return sends

    def _pop(self) -> PendingSend:
        send = self._pending.popleft()
        self._count_out(send)
        return send

    def _count_out(self, send: PendingSend) -> None:
        self._messages -= len(send.rows)
        self._bytes -= send.size
