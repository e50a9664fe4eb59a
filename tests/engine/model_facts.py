"""What the model knows of topics, groups, messages and leases: records without rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

DEDUP_MS = 600_000
#: CheckPoints have smaller numbers, however long a test runs.
NEVER_GIVEN = 10**12
OWNER_KEEP_MS = 7 * 86_400_000

Place = tuple[int, int]  # queue, offset


class Handle(NamedTuple):
    """What a client holds."""

    ck_id: int
    member: int
    nonce: int


class Row(NamedTuple):
    """One delivery of an answer."""

    text: str
    stored_ms: int
    queue: int
    offset: int
    attempt: int
    member: int

    @property
    def place(self) -> Place:
        return self.queue, self.offset


class Answer(NamedTuple):
    """The answer of a pop. `sealed`: (count, end, stolen, lost)."""

    rows: list[Row]
    ck_id: int
    nonce: int
    popped_ms: int
    due_ms: int
    rest: int
    replay: bool
    sealed: tuple[int, bool, int, int] | None


class Position(NamedTuple):
    """How far a bounded read may go."""

    queues: dict[int, int]
    retry: int


class Stored(NamedTuple):
    """A message in a queue."""

    text: str
    stored_ms: int
    size: int


@dataclass
class Topic:
    """One life of a topic; a topic made anew has another number."""

    number: int
    queues: list[list[Stored]]


@dataclass
class Group:
    """Settings, and what belongs to a group alone."""

    max_attempts: int
    delays_ms: tuple[int, ...]
    invisible_ms: int
    start: tuple[str, int]
    exclusive: bool
    owners: dict[str, Owner] = field(default_factory=dict)
    dead: list[tuple[str, str, int, int, int, str]] = field(default_factory=list)


@dataclass
class Lease:
    """The members of one pop."""

    ck_id: int
    nonce: int
    group: str
    topic: str
    client: str
    popped_ms: int
    members: list[Place]
    owner: str = ""


@dataclass
class Entry:
    """A message that a group has passed."""

    state: str
    attempts: int
    first_pop_ms: int
    lease: Lease
    due_ms: int = 0
    entered: int = 0  # into the retry topic: the number of the first entry of that step
    tied: Token | None = None
    reason: str = ""


@dataclass
class Token:
    """A sealed pop."""

    epoch: int
    lease: Lease | None
    count: int
    end: bool
    stolen: int = 0


@dataclass
class Owner:
    """A durable reader."""

    generation: int = 0
    lease_until_ms: int = 0
    acked_epoch: int = 0
    last_seen_ms: int = 0
    released: bool = False
    tokens: dict[tuple[str, int, int, int], Token] = field(default_factory=dict)


@dataclass
class View:
    """A group in a topic."""

    next: list[int]
    entries: dict[Place, Entry] = field(default_factory=dict)
    attempts: dict[tuple[str, str], Lease] = field(default_factory=dict)
    acked: int = 0

    def of(self, *states: str) -> dict[Place, Entry]:
        return {place: entry for place, entry in self.entries.items() if entry.state in states}


class Bounds(NamedTuple):
    """What a pop asked for."""

    queues: tuple[int, ...]
    messages: int
    bytes: int
    upto: Position | None = None


class Broken(AssertionError):
    """The broker did what its rules forbid."""


def must(holds: bool, *what: Any) -> None:
    if not holds:
        raise Broken(*what)
