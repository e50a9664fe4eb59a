"""The history of a message in each group that could read it. `…_ms` are milliseconds since 1970 UTC.

MessageLife        one for each stored message of the id: where it is
  └─ GroupLife       for each group: its state, as one word and as a sentence
       └─ LifeEvent    what happened, oldest first
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """One thing that happened to a message in a group."""

    time_ms: int
    #: `sent`, `popped`, `renewed`, `acked`, `released`, `expired`, `rejected`, `dead`, `redriven` or `sent back`.
    what: str
    client_id: str
    until_ms: int  # popped, renewed: the lease's deadline
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class GroupLife:
    """The state of a message for one group.

    `state` is `ready`, `leased`, `backoff`, `retry`, `waiting` or `stopped` (FIFO), `acked`, `dead`, `filtered`,
    `dropped` (by retention), `skipped` (a reset or a purge), `quarantined`, `pulled`, or `before start`.
    """

    group: str
    state: str
    explanation: str  # a sentence
    events: Sequence[LifeEvent]


@dataclass(frozen=True, slots=True)
class MessageLife:
    """One stored message of an id. `place`: stored, delayed, half, or given up."""

    topic: str
    queue: int
    offset: int
    stored_ms: int
    place: str
    due_ms: int  # of a delayed or half message
    groups: Sequence[GroupLife]
