"""Single messages and dead letters: each of these is one call of an engine, in however many pieces it runs it."""

from typing import NamedTuple

from popmq_server.contract.capabilities import DEAD_LETTER_REASONS, DISCARD, LOOK_UP, PEEK, REDRIVE, SEARCH, WHY
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.messages import ReadRow
from popmq_server.contract.operations import LANE_POP, Command, Query
from popmq_server.contract.rights import ADMIN, Caller, Needs, covers, looks, receives
from popmq_server.errors import Refused
from popmq_server.values.message import dead_letter_topic


class Peek(Query[list[ReadRow]], Listed["Peek"], capability=PEEK):
    """What the group's next Pop would deliver; changes nothing. `filter`: (kind, text), None = the group's."""

    topic: str
    group: str
    messages_max: int
    bytes_max: int
    filter: tuple[str, str] | None = None

    def needs(self) -> Needs:
        return receives(self.topic, self.group, or_admin=True)


class LookedUp(NamedTuple):
    """`rows`: with attempt 0. `more`: the limits on the answer ended the search."""

    rows: list[ReadRow]
    more: bool


class LookUp(Query[LookedUp], Listed["LookUp"], capability=LOOK_UP):
    """A topic's messages by message id or by key, newest first; exactly one of the two is set.

    `from_ms`, `until_ms`: only messages stored in this time, inclusive; 0 = no bound.
    """

    topic: str
    message_id: str
    key: str
    messages_max: int
    bytes_max: int
    from_ms: int = 0
    until_ms: int = 0

    def needs(self) -> Needs:
        return looks(self.topic, "")


class Searched(NamedTuple):
    """`rows`: with attempt 0. `looked_at`: how many messages. `at`: where to go on; "" = all were looked at."""

    rows: list[ReadRow]
    looked_at: int
    at: str


class Search(Query[Searched], Listed["Search"], capability=SEARCH):
    """A topic's messages over all queues, in the order of their storing; those that have `text`, "" = all.

    `from_ms`, `until_ms`: only messages stored in this time, inclusive; 0 = no bound. `at`: of the last answer; "" =
    from the beginning.
    """

    topic: str
    newest: bool
    text: str
    messages_max: int
    bytes_max: int
    from_ms: int = 0
    until_ms: int = 0
    at: str = ""

    def needs(self) -> Needs:
        return looks(self.topic, "")


class LifeEvent(NamedTuple):
    """One event. `time_ms` 0: not known yet (the ack of a member whose batch is not finished)."""

    time_ms: int
    #: `sent`, `popped`, `renewed`, `acked`, `released`, `expired`, `rejected`, `dead`, `redriven`, `discarded` or
    #: `sent back`.
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
    events: list[LifeEvent]


class MessageLife(NamedTuple):
    """One stored message. `place`: stored, delayed, half, given up. `due_ms`: of a delayed or half message, else 0."""

    topic: str
    queue: int
    offset: int
    stored_ms: int
    place: str
    due_ms: int
    groups: list[GroupLife]


class Why(Query[list[MessageLife]], Listed["Why"], capability=WHY):
    """The histories of all messages with this id. `topic`: "" = all; `group`: "" = all."""

    message_id: str
    topic: str = ""
    group: str = ""

    def needs(self) -> Needs:
        return looks(self.topic, self.group)

    def shown(self, answer: list[MessageLife], caller: Caller) -> list[MessageLife]:
        """The messages, each with those of its groups that the key may see."""
        return [
            life._replace(groups=[one for one in life.groups if covers(caller, looks(life.topic, one.group))])
            for life in answer
        ]


class Failure(NamedTuple):
    """A dead letter that stays, and why. `offset`: -1 for an id that no dead letter has."""

    offset: int
    message_id: str
    why: Refused


class Redriven(NamedTuple):
    """Also of a discard. `topics`: the number of messages of each origin. `failures`: at most what a request names."""

    topics: dict[str, int]
    failures: list[Failure]


class Redrive(Command[Redriven], Listed["Redrive"], lane=LANE_POP, capability=REDRIVE):
    """Delivers dead letters of a group again; group "": commits given-up half messages. A discard removes them.

    `offsets`, `message_ids`: these; both empty: all that are there now. `topic`: only those from this topic; "" = all.
    `reason`: only those with this line of a reason (values/reasons.py); None = all. `exception`: only those whose
    reason begins with it; "" = all.
    """

    group: str
    topic: str = ""
    offsets: tuple[int, ...] = ()
    message_ids: frozenset[str] = frozenset()
    reason: str | None = None
    exception: str = ""

    def needs(self) -> Needs:
        return ADMIN


class Discard(Command[Redriven], Listed["Discard"], lane=LANE_POP, capability=DISCARD):
    """Removes dead letters of a group, chosen as in Redrive."""

    group: str
    topic: str = ""
    offsets: tuple[int, ...] = ()
    message_ids: frozenset[str] = frozenset()
    reason: str | None = None
    exception: str = ""

    def needs(self) -> Needs:
        return ADMIN


class ReasonNumbers(NamedTuple):
    """The dead letters with one reason: how many, when the first and the last came, and the offset of the last."""

    reason: str
    messages: int
    first_ms: int
    last_ms: int
    last_offset: int
    exception: str = ""


class ReasonsFound(NamedTuple):
    """`looked_at`: how many dead letters. `at`: where to go on; "" = all were looked at."""

    reasons: list[ReasonNumbers]
    looked_at: int
    at: str


class DeadLetterReasons(Query[ReasonsFound], Listed["DeadLetterReasons"], capability=DEAD_LETTER_REASONS):
    """The reasons of a group's dead letters; group "": of given-up half messages. `topic`: of those from this topic.

    `at`: of the last answer; "" = from the oldest on.
    """

    group: str
    topic: str = ""
    at: str = ""

    def needs(self) -> Needs:
        return looks(dead_letter_topic(self.group), "") if self.group else ADMIN
