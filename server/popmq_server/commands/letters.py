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
