"""What a pull consumer was asked for, and the paces that it keeps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from popmq._guard import OnError
from popmq.errors import InvalidField
from popmq.process_queue import FlowControl
from popmq.pull import Strategy
from popmq.topic import Start
from popmq_proto.v1 import popmq_pb2 as pb

#: The number by which a consumer knows the retry topic of its group, among its queues.
RETRY = -1

#: Seconds between two looks at which queues this consumer has; sooner when a heartbeat says so.
REBALANCE_S = 20.0
#: Seconds after a broker was away before a consumer takes on more queues: by then all have sent their heartbeats.
SETTLE_S = 10.0
#: Seconds before what failed, or could not be had altogether, is tried again.
AGAIN_S = 1.0
#: Seconds between two commits: what is done again after a kill.
COMMIT_S = 5.0
#: Seconds that a queue which is somebody else's now is kept for the messages in hand.
LEAVE_S = 15.0
#: Locks are renewed so often, and no longer relied on after so long, though the broker keeps them twice as long: two
#: clocks never have to agree on the last second.
LOCK_S = 20.0
LOCK_VALID_S = 30.0
#: Seconds before a pull that failed is tried again, and before a paused consumer looks whether it still is.
FAILED_S = 1.0
PAUSED_S = 1.0
#: Seconds before a message whose handler failed comes again in an orderly queue.
ORDERLY_AGAIN_S = 1.0
#: Of how many times that a queue was held back one is logged.
HELD_BACK_LOG_EVERY = 1000


@dataclass(frozen=True, slots=True)
class PullOptions:
    """What `pull_consume` and `broadcast_consume` were asked for; see there."""

    topic: str
    group: str  # "": a broadcast
    filter: pb.Filter | None
    start: Start | None
    strategy: Strategy
    queues: Sequence[int]
    orderly: bool
    max_messages: int
    wait: float
    flow: FlowControl
    on_error: OnError
    until_idle: float | None


def check_strategy(strategy: str) -> None:
    """Raises InvalidField: to a name that it does not know a broker answers that nothing is known yet."""
    if strategy not in get_args(Strategy):
        words = ", ".join(get_args(Strategy))
        raise InvalidField(f"{strategy!r} is none of {words}", code="INVALID_FIELD", field="strategy")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin in a queue, and where its end was then."""

    offset: int
    max_offset: int
