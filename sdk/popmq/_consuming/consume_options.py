"""The options of `client.consume`."""

from collections.abc import Sequence
from dataclasses import dataclass

from popmq._consuming.guard import OnError
from popmq_proto.v1 import popmq_pb2 as pb

#: Seconds below which a remaining time counts as over: clocks are not more exact.
TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The parameters of `client.consume`; durations in seconds."""

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
        """Seconds left of `until_idle`, after `idle` seconds without a message; None: it never ends."""
        return None if self.until_idle is None else max(0.0, self.until_idle - idle)

    def pop_wait(self, idle: float) -> float:
        """Seconds that one pop may wait."""
        left = self.idle_left(idle)
        return self.wait if left is None else min(self.wait, left)
