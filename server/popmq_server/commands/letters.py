"""What can be asked about dead letters and single messages: see redrive.py, look_up.py, why.py, peek.py.

Searches and redrives are done in pieces: a command does what fits in a transaction beside those of others, and its
answer says where the next one goes on.
"""

from typing import NamedTuple

from popmq_server.errors import Refused


class Redrive(NamedTuple):
    """→ Redriven. A piece of a group's dead letters is delivered again; group "": given-up half messages are committed.

    `offsets`: these letters; None: those from `start` up to `stop` (0: the end as it is now). `topic`: only those that
    came from this topic; "" = all.
    """

    group: str
    offsets: tuple[int, ...] | None = None
    topic: str = ""
    start: int = 0
    stop: int = 0


class Failure(NamedTuple):
    """A letter that stays, and why."""

    offset: int
    message_id: str
    why: Refused


class Redriven(NamedTuple):
    """`topics`: how many messages of each origin. `failures`: letters that stay.

    `done`: how many of the named offsets were handled. `next`, `stop`: of all letters, where the next piece goes on,
    and the end; all is done when they meet.
    """

    topics: dict[str, int]
    failures: list[Failure]
    done: int
    next: int
    stop: int


class FindLetters(NamedTuple):
    """→ (offset by offset, the message id of each letter that has one of them; where to go on, 0 = all was seen)."""

    group: str
    message_ids: frozenset[str]
    below: int | None = None


class LookUp(NamedTuple):
    """→ LookedUp. Messages of a topic by message id, or by key, the newest first; one of the two is set.

    `from_ms`, `until_ms`: stored in this time, both included; 0 = no bound. `below`: where the last piece stopped.
    """

    topic: str
    message_id: str
    key: str
    messages_max: int
    bytes_max: int
    from_ms: int = 0
    until_ms: int = 0
    below: int | None = None


class LookedUp(NamedTuple):
    """`rows`: (message bytes, stored ms, queue, offset, 0). `below`: where to go on; 0 = all was seen.

    `full`: it ended because of the bounds on the answer.
    """

    rows: list[tuple[bytes, int, int, int, int]]
    below: int
    full: bool


class Peek(NamedTuple):
    """→ Peeked. What the group's next Pop would deliver; nothing changes. `filter`: (kind, text), None = the group's.

    `begins`: where a look that goes on begins, by queue; None for the first one.
    """

    topic: str
    group: str
    messages_max: int
    bytes_max: int
    filter: tuple[str, str] | None = None
    begins: dict[int, int] | None = None


class Peeked(NamedTuple):
    """`rows` as those of Popped. `begins`: nothing was found yet, but not all was looked at: go on there."""

    rows: list[tuple[bytes, int, int, int, int, int]]
    begins: dict[int, int] | None


class Trace(NamedTuple):
    """→ Traced. A piece of the search for everything that is stored under a message id.

    `topic`: "" = all; `group`: whose dead letters; "" = all. `at`: (stage, key) where the last piece stopped.
    """

    message_id: str
    topic: str = ""
    group: str = ""
    at: tuple[int, bytes] = (0, b"")


class Spotted(NamedTuple):
    """Something that is stored under an id: in the log (`key` is its position, 8 bytes), delayed or half."""

    stage: int
    topic_id: int
    key: bytes


class Traced(NamedTuple):
    """`at`: where the next piece goes on; None = all was seen."""

    found: list[Spotted]
    at: tuple[int, bytes] | None


class Why(NamedTuple):
    """→ list of life.MessageLife. The lives of what a trace has found."""

    message_id: str
    found: tuple[Spotted, ...]
    topic: str = ""
    group: str = ""
