"""Topics and groups as the control plane shows them. Durations are seconds, `…_ms` are milliseconds since 1970 UTC."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

#: Where a new group starts in a topic: at the first message, after the last one, or at the first one stored since.
Start = Literal["earliest", "latest"] | datetime

DEFAULT_KEEP_S = 72 * 3600.0


@dataclass(frozen=True, slots=True)
class Retention:
    """When a topic drops messages.

    `by_age` false: `keep` seconds after every group is done with a message; what a group has not finished is kept.
    `by_age` true: `keep` seconds after it was stored, read or not; unread ones are counted as expired.
    """

    keep: float = DEFAULT_KEEP_S  # 60 s – 10 years
    by_age: bool = False


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its settings."""

    name: str
    type: str = "NORMAL"
    queues: int = 8
    retention: Retention = Retention()
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A group and its settings."""

    name: str
    max_attempts: int = 17  # deliveries before the dead-letter topic
    backoff: Sequence[float] = ()  # delay before attempt 2, 3, …; the last one repeats; empty: the broker's table
    invisible: float = 60.0  # the lease of a pop that asks for none
    share_number: int = 0  # 0: every client pops every queue; n: each queue is shared by 1 + n clients
    start: Start = "earliest"
    exclusive_owner: bool = False  # what an owner holds is not popped by others after its lease ran out
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which queues the broker wants this client to pop.

    Not `known`: it has no session of this client yet, keep what you had. `all`: pop without naming queues.
    """

    known: bool
    all: bool
    queues: Sequence[int]


@dataclass(frozen=True, slots=True)
class Session:
    """The answer to a heartbeat: come again within `interval` seconds; another version means another assignment."""

    interval: float
    assignment_version: int
