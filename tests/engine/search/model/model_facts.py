"""What the model knows of topics, groups, messages and leases: records without rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DEDUP_MS = 600_000
#: Greater than every CheckPoint id of a test.
NEVER_GIVEN = 10**12
OWNER_KEEP_MS = 7 * 86_400_000
#: How long the end of a transaction is remembered.
ENDED_KEEP_MS = 3_600_000
FIRST_CHECK_MS, CHECK_EVERY_MS, CHECKS_MAX = 6_000, 30_000, 15
#: A half message that nobody ended is given up at this age, or within the next look for such.
HALF_KEEP_MS, HALF_LOOK_MS = 72 * 3_600_000, 60_000
#: Delayed messages, checks and dead letters wait at most this long after the disk was full.
QUIET_MS = 1_000
#: How often a group of the machine may snooze a message.
SNOOZES_MAX = 2
#: One in this number of pops of a PRIORITY topic may begin at another queue than the highest.
LOW_FIRST_EVERY = 10
#: One message group gets this part of a batch before others have had their turn.
SHARE_OF_BATCH = 8

Place = tuple[int, int]  # queue, offset
Record = tuple[Place, int, int]  # a message in a retry topic: when its record was stored, the CheckPoint it is tied to


class Handle(NamedTuple):
    """A handle as clients have it."""

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


class RetryRow(NamedTuple):
    """An entry of a retry topic. A message may have two entries, which differ in the record that an entry
    points at, and the CheckPoint it is tied to (0: none).
    """

    number: int
    place: Place
    attempts: int
    stored_ms: int
    tied: int

    @property
    def record(self) -> Record:
        return self.place, self.stored_ms, self.tied


class Stand(NamedTuple):
    """The position of a group in a topic: its next offsets, its retry topic, and its waiting messages."""

    next: list[int]
    retry: list[RetryRow]
    waiting: set[Place]


class Answer(NamedTuple):
    """The answer of a pop. `sealed`: (count, end, stolen, lost). `stand`: the position after it, in its transaction."""

    rows: list[Row]
    ck_id: int
    nonce: int
    popped_ms: int
    due_ms: int
    rest: int
    replay: bool
    sealed: tuple[int, bool, int, int] | None
    stand: Stand


class Position(NamedTuple):
    """How far a bounded read may go."""

    queues: dict[int, int]
    retry: int


class Content(NamedTuple):
    """A message as its producer made it; `size` is that of its record."""

    text: str
    name: str  # its message id
    size: int
    message_group: str = ""
    tag: str = ""
    number: int | None = None
    priority: int = 0
    due_ms: int = 0
    delay_ms: int = 0
    half: bool = False
    ttl_ms: int = 0


class Stored(NamedTuple):
    """A message in a queue."""

    content: Content
    stored_ms: int

    @property
    def size(self) -> int:
        return self.content.size

    @property
    def message_group(self) -> str:
        return self.content.message_group


class Where(NamedTuple):
    """The answer for one message of a send: its place, or the recall handle or transaction id of an invisible one."""

    queue: int = 0
    offset: int = 0
    recall: str = ""
    transaction: str = ""
    duplicate: bool = False


class Told(NamedTuple):
    """The answer of a send. `places`: None when all follow `first`; else a Where or a code for each message."""

    queue: int
    first: int
    duplicate: bool
    places: list[Where | str] | None


@dataclass
class Topic:
    """One life of a topic: a topic that is created again or purged has another number."""

    number: int
    kind: str
    queues: list[list[Stored]]
    unique_ms: int
    created_ms: int
    begin: list[int]  # the first offset of each queue
    ids: dict[str, tuple[int, Where]] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)  # the queue of each message group
    by_age: bool = False
    keep_ms: int = 0
    lost: set[Place] = field(default_factory=set)  # retention dropped them
    indexed: set[Place] = field(default_factory=set)  # of `lost`: those whose entry is still in the queue, with its tag
    unread_ms: dict[Place, int] = field(default_factory=dict)  # the last time at which some group had not read it

    def at(self, place: Place) -> Stored:
        return self.queues[place[0]][place[1]]

    def places(self) -> list[Place]:
        return [(queue, offset) for queue, rows in enumerate(self.queues) for offset in range(len(rows))]

    def has(self, place: Place) -> bool:
        """Whether a message can be read in its queue."""
        return place[1] >= self.begin[place[0]] and place not in self.lost


@dataclass
class Delayed:
    """A message that is not due yet. `order`: of those that are due together."""

    topic: str
    content: Content
    due_ms: int
    by_wall: bool
    order: int
    handle: str


@dataclass
class Half:
    """A message whose transaction is open."""

    topic: str
    content: Content
    name: str
    order: int
    stored_ms: int
    next_ms: int
    checks: int = 0


class DeadLetter(NamedTuple):
    """A dead letter: the message, where it came from, and how it died."""

    text: str
    topic: str
    queue: int
    offset: int
    attempts: int
    reason: str
    dead_ms: int


@dataclass
class Group:
    """A group: its settings, and its state outside of topics."""

    max_attempts: int
    delays_ms: tuple[int, ...]
    invisible_ms: int
    start: tuple[str, int]
    exclusive: bool
    stops: bool = False
    owners: dict[str, Owner] = field(default_factory=dict)
    dead: list[DeadLetter] = field(default_factory=list)

    def tokens(self) -> list[tuple[tuple[str, int, int, int], Token]]:
        """Of all its owners."""
        return [pair for owner in self.owners.values() for pair in owner.tokens.items()]

    @property
    def settings(self) -> tuple[Any, ...]:
        return self.max_attempts, self.delays_ms, self.invisible_ms, self.start, self.exclusive, self.stops


@dataclass
class Lease:
    """The members of one pop. `owner`, `part`: of its token."""

    ck_id: int
    nonce: int
    group: str
    topic: str
    popped_ms: int
    members: list[Entry]
    owner: str = ""
    part: int = 0


@dataclass(eq=False)
class Entry:
    """A message that a group has passed but not finished.

    leased, bound, backoff, retry, waiting; over once it is done, dead, filtered or void.
    """

    place: Place
    message_group: str
    state: str
    attempts: int
    lease: Lease | None = None
    due_ms: int = 0
    entered: int = 0  # into the retry topic: the number of the first entry of that step
    number: int = 0  # there, once somebody has looked
    tied: Token | None = None
    part: int = 0  # of its lease: 0 until it is extended alone
    stopped: bool = False
    reason: str = ""
    stored_ms: int = 0  # of a dead letter that was redriven: a new record
    snoozes: int = 0


@dataclass
class Token:
    """A sealed pop."""

    epoch: int
    lease: Lease | None
    count: int
    end: bool
    stolen: int = 0
    lost: bool = False  # with its topic, which was purged


@dataclass
class Owner:
    """A durable reader."""

    generation: int = 0
    lease_until_ms: int = 0
    acked_epoch: int = 0
    last_seen_ms: int = 0
    released: bool = False
    tokens: dict[tuple[str, int, int, int], Token] = field(default_factory=dict)


class Asker(NamedTuple):
    """The owner that pops with a token."""

    name: str
    owner: Owner
    part: int

    def has(self, entry: Entry) -> bool:
        """Whether an entry is tied to one of the owner's tokens, which will return it."""
        return any(entry.tied is token for token in self.owner.tokens.values())

    def locks(self, entry: Entry) -> bool:
        """Whether a held message locks its message group for this part alone."""
        return entry.lease is not None and (entry.lease.owner, entry.lease.part) == (self.name, self.part)


class Filter(NamedTuple):
    """The filter of a group. Equal filters have the same `normal`; "" matches every message."""

    normal: str
    passes: Callable[[Content], bool]
    by_tag: bool = False


EVERYTHING = Filter("", lambda content: True)


@dataclass
class Turns:
    """For each source with messages: the number of non-empty pops since it was last served.

    `passed`: by queue of a PRIORITY topic, the pops that named it since one was allowed to begin with a low queue.
    """

    queues: dict[int, int] = field(default_factory=dict)
    retries: int = 0
    passed: dict[int, int] = field(default_factory=dict)


@dataclass
class View:
    """A group in a topic."""

    next: list[int]
    held: list[Entry] = field(default_factory=list)
    attempts: dict[tuple[str, str], Lease] = field(default_factory=dict)
    acked: int = 0
    filtered: int = 0
    expired: int = 0
    dropped: int = 0
    filter: Filter | None = None
    mode: str = "POP"
    pulled: bool = False
    turns: Turns = field(default_factory=Turns)

    def of(self, *states: str) -> list[Entry]:
        return [entry for entry in self.held if entry.state in states]

    def wants(self, content: Content) -> bool:
        return self.filter is None or self.filter.passes(content)

    def over(self, entry: Entry, state: str) -> None:
        """The group is done with a message, in one way or another."""
        self.held.remove(entry)
        entry.state, entry.tied = state, None


class Bounds(NamedTuple):
    """What a pop asked for."""

    queues: tuple[int, ...]
    messages: int
    bytes: int
    upto: Position | None = None


class Postponed(NamedTuple):
    """Until when each job of the engine waits for room."""

    delayed_ms: int = 0
    checks_ms: int = 0
    leases_ms: int = 0
    letters_ms: int = 0  # dead letters of the leases that ended by `letters_due_ms`
    letters_due_ms: int = -1


class Seen(NamedTuple):
    """Periodic work of the engine: the places of fired delayed messages, and the check-backs that were sent.

    `old`: (topic, message id) of half messages that were given up for their age.
    """

    places: dict[str, Place]
    checks: set[tuple[str, int]]
    old: Sequence[tuple[str, str]] = ()


NOTHING_SEEN = Seen({}, set())


class Broken(AssertionError):
    """The broker did what its rules forbid."""


def must(holds: bool, *what: Any) -> None:
    if not holds:
        raise Broken(*what)
