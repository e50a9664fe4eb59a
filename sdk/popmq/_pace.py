"""How a consumer reads: its options, and how many messages it takes at a time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from popmq._guard import OnError
from popmq_proto.v1 import popmq_pb2 as pb

#: What a clock may be wrong by, in seconds.
TICK_S = 0.001
#: A batch should be handled within so many seconds: who takes more at a time keeps messages from idle colleagues.
BATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What `consume` was asked for; see there."""

    topic: str
    group: str
    max_messages: int
    wait: float
    invisible: float | None
    queues: Sequence[int]
    on_error: OnError
    confirm: bool
    max_in_hand: int
    until_idle: float | None
    filter: pb.Filter | None
    lite_topics: Sequence[str] = ()

    def idle_left(self, idle: float) -> float | None:
        """Seconds until it is over, after so many without a message; None: never."""
        return None if self.until_idle is None else max(0.0, self.until_idle - idle)

    def pop_wait(self, idle: float) -> float:
        """Seconds that one pop may be parked."""
        left = self.idle_left(idle)
        return self.wait if left is None else min(self.wait, left)


class PopSize:
    """How many messages to pop next: one first, twice as many after a batch handled in time, else half."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 1
        self._asked = 0
        self._got = 0
        self._since = 0.0

    def popped(self, messages: int, now: float) -> None:
        """A batch of so many messages goes to the handler."""
        self._got = messages
        self._since = now

    def next(self, room: int, now: float) -> int:
        """The size of the next pop, at most `room`, after the last batch was handled.

        A batch that was not full proves nothing: the topic had no more, not the handler.
        """
        if self._got and now - self._since > BATCH_S:
            self._size = max(1, self._size // 2)
        elif self._got and self._got >= self._asked:
            self._size = min(self._most, self._size * 2)
        self._asked = min(self._size, room)
        self._got = 0
        return self._asked
