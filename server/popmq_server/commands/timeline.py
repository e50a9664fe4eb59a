"""The answer to Why: a message, its state for each group, and what happened to it there."""

from typing import NamedTuple


class Event(NamedTuple):
    """One event. `time_ms` 0: not known yet (the ack of a member whose batch is not finished)."""

    time_ms: int
    #: `sent`, `popped`, `renewed`, `acked`, `released`, `expired`, `rejected`, `dead`, `redriven` or `sent back`.
    what: str
    client: str = ""
    until_ms: int = 0
    attempt: int = 0
    reason: str = ""


class GroupLife(NamedTuple):
    """The state of a message for one group, its explanation and its events."""

    group: str
    state: str
    explanation: str
    events: list[Event]


class MessageLife(NamedTuple):
    """One stored message. `place`: stored, delayed, half, given up. `due_ms`: of a delayed or half message, else 0."""

    topic: str
    queue: int
    offset: int
    stored_ms: int
    place: str
    due_ms: int
    groups: list[GroupLife]
