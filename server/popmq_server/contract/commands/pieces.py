"""Pieces of searches and redrives, as the embedded engine runs them: see redrive.py, look_up.py, why.py, pop.py.

A command does what fits into a transaction beside other commands, and its answer holds the place to continue at.
loop/in_pieces.py repeats them until the query of inspection.py is answered. The protocols do not send them.
"""

from typing import NamedTuple

from popmq_server.contract.commands.inspection import Failure
from popmq_server.contract.commands.lanes import LANE_POP, command

#: Topic id, queue and offset of a message.
MessagePlace = tuple[int, int, int]


class HolderSearch(NamedTuple):
    """How far a command has searched for the CheckPoints that hold the messages at some places (holders.py).

    `group_id`: only those of this group; 0 = all. `at`: the CheckPoint to continue at; `found`: the ids found so far.
    """

    places: frozenset[MessagePlace]
    group_id: int = 0
    at: int = 0
    found: tuple[int, ...] = ()


@command(LANE_POP, needs_room=True, entries="offsets")
class RedrivePiece(NamedTuple):
    """→ RedrivenPiece. Redrives one piece of a group's dead letters; group "": commits given-up half messages.

    `offsets`: these dead letters; None: those from `start` up to `stop` (0: the current end). `topic`: only those from
    this topic; "" = all. `walk`: that of the last answer, if it had one.
    """

    group: str
    offsets: tuple[int, ...] | None = None
    topic: str = ""
    start: int = 0
    stop: int = 0
    walk: HolderSearch | None = None
    reason: str | None = None


@command(LANE_POP, entries="offsets")
class DiscardPiece(NamedTuple):
    """→ RedrivenPiece, without a walk. Discards one piece of a group's dead letters; its fields as of RedrivePiece."""

    group: str
    offsets: tuple[int, ...] | None = None
    topic: str = ""
    start: int = 0
    stop: int = 0
    reason: str | None = None


class RedrivenPiece(NamedTuple):
    """`topics`: the number of messages of each origin. `failures`: dead letters that stay.

    `done`: how many of the named offsets were handled. `next`, `stop`: if all are redriven, where the next piece
    continues, and the end; the redrive is done when they are equal. `walk`: nothing was redriven yet, the command has
    to be repeated with it.
    """

    topics: dict[str, int]
    failures: list[Failure]
    done: int
    next: int
    stop: int
    walk: HolderSearch | None = None


@command(LANE_POP, entries="message_ids")
class FindDeadLetters(NamedTuple):
    """→ ({offset: message id} of matching dead letters, where to continue, 0 = all were searched)."""

    group: str
    message_ids: frozenset[str]
    below: int | None = None


@command(LANE_POP)
class LookUpPiece(NamedTuple):
    """→ LookedUpPiece. A topic's messages by message id or by key, newest first; exactly one of the two is set.

    `from_ms`, `until_ms`: only messages stored in this time, inclusive; 0 = no bound. `below`: where the last piece
    stopped.
    """

    topic: str
    message_id: str
    key: str
    messages_max: int
    bytes_max: int
    from_ms: int = 0
    until_ms: int = 0
    below: int | None = None


class LookedUpPiece(NamedTuple):
    """`rows`: (message bytes, stored ms, queue, offset, 0). `below`: where to continue; 0 = all were searched.

    `full`: the limits on the answer ended the search.
    """

    rows: list[tuple[bytes, int, int, int, int]]
    below: int
    full: bool


@command(LANE_POP)
class PeekPiece(NamedTuple):
    """→ PeekedPiece. `filter`: (kind, text), None = the group's.

    `begins`: where to continue a search, by queue; None for a new one.
    """

    topic: str
    group: str
    messages_max: int
    bytes_max: int
    filter: tuple[str, str] | None = None
    begins: dict[int, int] | None = None


class PeekedPiece(NamedTuple):
    """`rows` as those of Popped. `begins`: nothing was found yet, but the search is not complete: continue there."""

    rows: list[tuple[bytes, int, int, int, int, int]]
    begins: dict[int, int] | None


@command(LANE_POP)
class Trace(NamedTuple):
    """→ Traced. One piece of the search for everything stored under a message id.

    `topic`: "" = all; `group`: only its dead letters; "" = all. `at`: (stage, key) where the last piece stopped.
    """

    message_id: str
    topic: str = ""
    group: str = ""
    at: tuple[int, bytes] = (0, b"")


class Spotted(NamedTuple):
    """A place stored under an id: in the log (`key` is its position, 8 bytes), delayed or half."""

    stage: int
    topic_id: int
    key: bytes


class Traced(NamedTuple):
    """`at`: where the next piece continues; None = all were searched."""

    found: list[Spotted]
    at: tuple[int, bytes] | None


@command(LANE_POP, entries="found")
class WhyPiece(NamedTuple):
    """→ list of MessageLife: the lives of the messages that a trace found; or the HolderSearch to ask again with."""

    message_id: str
    found: tuple[Spotted, ...]
    topic: str = ""
    group: str = ""
    walk: HolderSearch | None = None
