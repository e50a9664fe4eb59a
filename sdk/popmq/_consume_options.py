"""How a consumer reads: its options, and how many messages it takes at a time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from popmq._guard import OnError
from popmq_proto.v1 import popmq_pb2 as pb

#: What a clock may be wrong by, in seconds.
TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
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
