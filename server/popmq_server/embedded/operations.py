"""The embedded engine's own operations: no protocol sends them.

Pieces of searches, redrives and sweeps (redrive.py, look_up.py, why.py, pop.py, sweep.py): a piece does what fits into
a transaction beside other commands, and its answer has the place to continue at. loop/in_pieces.py repeats them until
the command or query of the contract is answered. For some commands of the contract the first piece is the command.

What the event loop tells the writer, and asks it, about live clients and producers: Attend, Listen, CountChecks …
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from popmq_server.contract.commands import OffsetsOfQueue
from popmq_server.contract.commands.inspection import Failure, MessageLife
from popmq_server.contract.commands.numbers import Rows, ScheduleNumbers
from popmq_server.contract.operations import LANE_ACK, LANE_POP, Command, Declared, Query
from popmq_server.contract.rights import NOBODY, Needs
from popmq_server.values.records import Subscription, Terms

P = TypeVar("P", bound="EveryOwn")


class Own(Declared, Generic[P]):
    """Says that a class is a member of EveryOwn, with its own name; no key allows it."""

    def _is_listed(self) -> None: ...

    def needs(self) -> Needs:
        return NOBODY


# ── Answers to the first piece of a command of the contract ───────────────────────────────────────────────────────────


class Moved(NamedTuple):
    """The result of UpdateOffsets: messages that were moved past. `left`: some are left."""

    messages: int
    left: bool


class SessionPiece(NamedTuple):
    """The result of RenewSession and ReleaseSession: leases that were moved. `after`: of the next piece; 0 = none."""

    leases: int
    after: int


class Purged(NamedTuple):
    """The result of PurgeTopic: messages that were dropped. `after`: of the next piece; 0 = none."""

    messages: int
    after: int


class ModeSet(NamedTuple):
    """The result of SetConsumeMode. `left`: some messages are still to be moved: continue with Sweep."""

    subscription: Subscription
    left: bool


class Reset(NamedTuple):
    """The result of a reset or a clone: the group's next offset of each queue. `left`: some of what it held is not
    removed yet: continue with Sweep.
    """

    offsets: dict[int, int]
    left: bool


class NextRenewal(Command[SessionPiece], Own["NextRenewal"], lane=LANE_ACK):
    """A further piece of RenewSession; `after`: of the last answer."""

    client: str
    after: int


class NextRelease(Command[SessionPiece], Own["NextRelease"], lane=LANE_ACK):
    """A further piece of ReleaseSession; `after`: of the last answer."""

    client: str
    after: int


class NextPurge(Command[Purged], Own["NextPurge"], lane=LANE_ACK):
    """A further piece of PurgeTopic; `after`: of the last answer: the groups of the topic are moved in pieces."""

    name: str
    after: int


class NextOffsets(Command[Rows[OffsetsOfQueue]], Own["NextOffsets"], lane=LANE_POP):
    """A further piece of QueryOffsets, whose `least_committed` covers some more groups; `after`: of the last answer."""

    topic: str
    group: str
    after: str
    since_ms: None = None


class Sweep(Command[bool], Own["Sweep"], lane=LANE_ACK):
    """Runs one piece of the work that a reset or a switch of the consume mode left → whether something is left."""

    topic: str
    group: str


class ReadAhead(Command[bool], Own["ReadAhead"], lane=LANE_POP):
    """Reads a piece of the messages that wait by fair key → whether more is left to read."""

    topic: str
    group: str


# ── Live clients and producers ────────────────────────────────────────────────────────────────────────────────────────


class Attend(Command[None], Own["Attend"], lane=LANE_ACK, entries="topics"):
    """Live members of the group may read these topics: their subscriptions are in use."""

    group: str
    topics: tuple[str, ...]


class CountChecks(Command[None], Own["CountChecks"], lane=LANE_ACK, entries="checks"):
    """Counts checks that were written to a live stream, as (transaction, number of the check)."""

    checks: tuple[tuple[str, int], ...]


class Listen(Command[None], Own["Listen"], lane=LANE_ACK, entries="topics"):
    """Tells which topics have producers. `topics`: all for whose half messages a live producer can answer now.

    `joining`: the topics that a new producer has named; Refused if one of them takes no half messages.
    """

    topics: frozenset[str]
    joining: tuple[str, ...] = ()


class TermsOf(Query[dict[str, Terms]], Own["TermsOf"], entries="topics"):
    """The queue count, mode and share number of a group in each of these topics; missing topics are left out."""

    group: str
    topics: tuple[str, ...]


class TopicNames(Query[dict[int, str]], Own["TopicNames"], entries="topic_ids"):
    """Id → name of those of these topics that exist."""

    topic_ids: tuple[int, ...]


class Fold(Command[None], Own["Fold"], lane=LANE_ACK):
    """Makes the data file have all that was answered so far: before another thread or process reads it."""


class StoreUse(NamedTuple):
    """Used pages of the data file, and records in quarantine."""

    pages: int
    quarantined: int
    schedules: ScheduleNumbers


class StoreState(Query[StoreUse], Own["StoreState"]):
    """How much of the store is used."""


# ── Pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────────

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


class RedrivePiece(Command[RedrivenPiece], Own["RedrivePiece"], lane=LANE_POP, needs_room=True, entries="offsets"):
    """Redrives one piece of a group's dead letters; group "": commits given-up half messages.

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
    exception: str = ""


class DiscardPiece(Command[RedrivenPiece], Own["DiscardPiece"], lane=LANE_POP, entries="offsets"):
    """Discards one piece of a group's dead letters; its fields as of RedrivePiece."""

    group: str
    offsets: tuple[int, ...] | None = None
    topic: str = ""
    start: int = 0
    stop: int = 0
    reason: str | None = None
    exception: str = ""


class LettersFound(NamedTuple):
    """`message_ids`: of matching dead letters, by offset. `below`: where to continue; 0 = all were searched."""

    message_ids: dict[int, str]
    below: int


class FindDeadLetters(Command[LettersFound], Own["FindDeadLetters"], lane=LANE_POP, entries="message_ids"):
    """Finds the dead letters with these ids, newest first. `below`: where the last piece stopped."""

    group: str
    message_ids: frozenset[str]
    below: int | None = None


class LookedUpPiece(NamedTuple):
    """`rows`: (message bytes, stored ms, queue, offset, 0). `below`: where to continue; 0 = all were searched.

    `full`: the limits on the answer ended the search.
    """

    rows: list[tuple[bytes, int, int, int, int]]
    below: int
    full: bool


class LookUpPiece(Query[LookedUpPiece], Own["LookUpPiece"]):
    """A topic's messages by message id or by key, newest first; exactly one of the two is set.

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


class SomeResults(NamedTuple):
    """`rows`: as those of ResultsFound. `done`: how many of the ids were looked at. `full`: the limit of bytes was
    reached.
    """

    rows: list[tuple[bytes, int, str]]
    done: int
    full: bool


class ResultsPiece(Query[SomeResults], Own["ResultsPiece"], entries="message_ids"):
    """Some results that are there; each id once."""

    group: str
    message_ids: tuple[str, ...]
    bytes_max: int


class PeekedPiece(NamedTuple):
    """`rows` as those of Popped. `begins`: nothing was found yet, but the search is not complete: continue there."""

    rows: list[tuple[bytes, int, int, int, int, int]]
    begins: dict[int, int] | None


class PeekPiece(Query[PeekedPiece], Own["PeekPiece"]):
    """Shows the messages that the group's next Pop would deliver. `filter`: (kind, text), None = the group's.

    `begins`: where to continue a search, by queue; None for a new one.
    """

    topic: str
    group: str
    messages_max: int
    bytes_max: int
    filter: tuple[str, str] | None = None
    begins: dict[int, int] | None = None


class Spotted(NamedTuple):
    """A place stored under an id: in the log (`key` is its position, 8 bytes), delayed or half."""

    stage: int
    topic_id: int
    key: bytes


class Traced(NamedTuple):
    """`at`: where the next piece continues; None = all were searched."""

    found: list[Spotted]
    at: tuple[int, bytes] | None


class Trace(Query[Traced], Own["Trace"]):
    """One piece of the search for everything stored under a message id.

    `topic`: "" = all; `group`: only its dead letters; "" = all. `at`: (stage, key) where the last piece stopped.
    """

    message_id: str
    topic: str = ""
    group: str = ""
    at: tuple[int, bytes] = (0, b"")


class WhyPiece(Query[list[MessageLife] | HolderSearch], Own["WhyPiece"], entries="found"):
    """The histories of the messages that a trace has found; or a HolderSearch: ask again with it."""

    message_id: str
    found: tuple[Spotted, ...]
    topic: str = ""
    group: str = ""
    walk: HolderSearch | None = None


#: All of them: the writer has a handler for each.
EveryOwn = (
    Attend
    | CountChecks
    | DiscardPiece
    | FindDeadLetters
    | Fold
    | Listen
    | LookUpPiece
    | NextOffsets
    | NextPurge
    | NextRelease
    | NextRenewal
    | PeekPiece
    | ReadAhead
    | RedrivePiece
    | ResultsPiece
    | StoreState
    | Sweep
    | TermsOf
    | TopicNames
    | Trace
    | WhyPiece
)
