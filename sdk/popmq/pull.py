"""Reading by queue and offset: what a pull answers, where queues and groups stand, what a pull consumer holds.

A pull takes no lease. The reader keeps its own position, and commits the position of its group to the broker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from popmq.config import LoopOptions
from popmq.message import Columns, Delivery
from popmq.process_queue import FlowControl
from popmq.topic import Start

#: How queues are assigned to the consumers of a group. MACHINE_ROOM reads a client id as room@name.
Strategy = Literal["AVG", "CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM"]


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull: what was found, and where to go on.

    `status` is a name of the contract's PullStatus: FOUND, or why there is nothing: NO_MESSAGE_IN_QUEUE,
    OFFSET_TOO_SMALL, OFFSET_OVERFLOW_ONE (at the end: the next message lands there), OFFSET_OVERFLOW_BADLY,
    OFFSET_FOUND_NULL, NO_MATCHED_LOGIC_QUEUE, NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING.
    """

    status: str
    deliveries: Sequence[Delivery]
    next_offset: int
    min_offset: int
    max_offset: int  # the offset that the next message gets
    # What these offsets are of: another time when the topic has been deleted and created again. Keep it with an offset,
    # and give it to the next pull.
    topic_created_ms: int = 0


@dataclass(frozen=True, slots=True)
class PulledColumns:
    """What `pull_columns` answers: as Pulled, with the messages as columns."""

    status: str
    columns: Columns
    next_offset: int
    min_offset: int
    max_offset: int
    topic_created_ms: int = 0
    # Without a filter: messages before `next_offset` that are not here, but not lost: their ttl is over, or they were
    # redriven for another group.
    passed_over: int = 0

    def to_arrow(self) -> Any:
        """A pyarrow.Table, with the names and types of the Spark connector. Raises MissingLibrary without pyarrow."""
        return self.columns.to_arrow()

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame. Raises MissingLibrary without pyarrow or pandas."""
        return self.columns.to_pandas()


@dataclass(frozen=True, slots=True)
class QueueLocks:
    """The queues that a client has locked, for `seconds` from now."""

    queues: Sequence[int]
    seconds: float


@dataclass(frozen=True, slots=True)
class PullState:
    """What a pull consumer holds of one queue, at this moment."""

    queue: int
    retry: bool  # the retry topic of the group: `queue` is 0
    next_offset: int  # where the next pull reads
    committed: int  # what the next commit says
    cached: int  # messages that are not done
    in_hand: int  # of these, delivered
    bytes: int
    backlog: int  # messages of the queue that are not done, an estimate
    held_back_by: str  # count, bytes or span: pulled no further for now
    leaving: bool  # another client gets it as soon as the current message is done


class BroadcastConsumeOptions(LoopOptions, total=False):
    """The options of `client.broadcast_consume`, which says what each does, and its default."""

    start: Start | None
    flow: FlowControl | None


class PullConsumeOptions(BroadcastConsumeOptions, total=False):
    """The options of `client.pull_consume`, which says what each does, and its default."""

    strategy: Strategy
    queues: Sequence[int]
    orderly: bool
