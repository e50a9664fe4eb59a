"""Commands on messages, on their leases, and on the message groups of FIFO topics (message_groups.py)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self, cast

from popmq_server.contract.capabilities import (
    END_LEASE,
    LITE,
    MESSAGE_GROUPS,
    OWNERS,
    RESULTS,
    SETTLE,
    SNOOZE,
    TTL,
    Capability,
)
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.results import GivenResult
from popmq_server.contract.operations import LANE_ACK, LANE_POP, LANE_SEND, Command
from popmq_server.contract.rights import ADMIN, Caller, Needs, receives, receives_from, sends
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from popmq_server.values.plain import Plain
from popmq_server.values.reach import EVERYWHERE, Reach


class NewMessage(NamedTuple):
    """A validated message to be stored. `data`: a popmq.v1.Message; the other fields are what it says there.

    `extra`: None for most: any queue, deliverable at once. `plain`: all of `data`, if the protocol has read it already.
    """

    data: bytes
    tag: str
    message_id: str
    keys: tuple[str, ...] = ()
    extra: Extra | None = None
    plain: Plain | None = None


class Entry(Protocol):
    """A message of a request: a NewMessage, or what an engine has made of it for itself."""

    @property
    def data(self) -> bytes: ...

    @property
    def message_id(self) -> str: ...

    @property
    def extra(self) -> Extra | None: ...


#: For each message of a request, in its order, the validated message or why it is refused.
Entries = tuple[Entry | Refused, ...]


class Place(NamedTuple):
    """Where one message is: in a queue, or, with a recall handle or a transaction id, not in one yet.

    `duplicate`: the id was known, this is the place of the first message.
    """

    queue: int = 0
    offset: int = 0
    recall_handle: str = ""
    transaction_id: str = ""
    duplicate: bool = False


class Sent(NamedTuple):
    """`first` is the offset of the first stored message; the others follow it in `queue`.

    `places`: the place of each valid entry, or why it is refused; None if `queue` and `first` are enough.
    """

    queue: int
    first: int
    duplicate: bool
    places: tuple[Place | Refused, ...] | None = None


class Send(Command[Sent], Listed["Send"], lane=LANE_SEND, needs_room=True, entries="entries"):
    """Stores the valid messages of a request.

    `producer_id`, `request_number`: both or neither; a repeated number gets its first answer for 10 minutes.
    `bytes`: the size of all messages, counted against what may wait for the writer. `types`: the topic types that the
    messages are for, if only such a topic may take them.
    """

    topic: str
    entries: Entries
    producer_id: str = ""
    request_number: int = 0
    bytes: int = 0
    types: frozenset[str] = frozenset()

    @property
    def valid(self) -> tuple[NewMessage, ...]:
        """The entries without the refused ones; where there are none, without a look at each."""
        kinds = {*map(type, self.entries)}
        if kinds == {NewMessage} or (len(kinds) == 1 and Refused not in kinds):
            whole: Any = self.entries
            valid: tuple[NewMessage, ...] = whole
            return valid
        return cast(tuple[NewMessage, ...], tuple(entry for entry in self.entries if not isinstance(entry, Refused)))

    def needs(self) -> Needs:
        return sends(self.topic)

    def needed(self) -> tuple[Capability, ...]:
        extras = [entry.extra for entry in self.entries if not isinstance(entry, Refused)]
        return (TTL,) if any(extra.ttl_ms for extra in extras if extra is not None) else ()


class Position(NamedTuple):
    """A group's position in a topic: the next offset of each queue, and the next entry of the retry topic.

    As a bound (`upto`) it is exclusive, and queues that it does not name are not read at all.
    """

    queues: dict[int, int]
    retry: int


class PopToken(NamedTuple):
    """A sealed token: see owner.py.

    `generation`: the owner's, from AttachOwner. `share`: the maximum of messages in all chunks of (epoch, part), 0 = no
    bound. `upto`: nothing at or beyond it. Both matter only for a new token. `topic_id`: of the topic; 0 = any.
    `reach`: as in the commands on owners.
    """

    owner: str
    generation: int
    epoch: int
    part: int
    chunk: int
    share: int
    upto: Position | None
    topic_id: int = 0
    reach: Reach = EVERYWHERE


#: (message bytes, stored ms, queue, offset, attempt): plain tuples, since a Pop or Pull makes thousands of them.
ReadRow = tuple[bytes, int, int, int, int]
#: The same, and the handle that names this delivery in acks and changes: text of ASCII characters.
PoppedRow = tuple[bytes, int, int, int, int, bytes]


def bytes_of(rows: Sequence[tuple[bytes, *tuple[object, ...]]]) -> int:
    """Message bytes of rows, whose first field has them."""
    return sum(map(len, [row[0] for row in rows]))


class Popped(NamedTuple):
    """What a Pop leased; empty `rows` lease nothing.

    `rest`: messages left in the visited queues. `replay`: the answer to a known attempt id or token. `sealed`: with a
    token (messages sealed at first, end, stolen, lost). `type`: the topic's.
    """

    rows: list[PoppedRow]
    popped_ms: int
    due_ms: int
    rest: int
    replay: bool = False
    sealed: tuple[int, bool, int, int] | None = None
    type: str = "NORMAL"

    @property
    def handles(self) -> list[bytes]:
        """The handles of all rows, in their order."""
        return [handle for _, _, _, _, _, handle in self.rows]


class Pop(Command[Popped], Listed["Pop"], lane=LANE_POP, needs_room=True, entries="lite"):
    """Leases deliverable messages.

    `filter_wins`: the filter replaces the group's instead of being refused. `session`: the lease lasts as long as
    `client_id` is alive, by the engine's rules where `invisible_ms` is 0. `release_if_gone`: a caller that left loses
    the lease, even with an attempt id. `queues`: empty = all, with a rotating start. `of_queue`: the queue that the
    client was assigned, -1 = none; it is read alone where the group has a share number, except in FIFO topics.
    `max_bytes`: soft, one message is always allowed. `invisible_ms`: 0 = the group's own. `attempt_id`: with
    `client_id` identifies this try, so that a repeat gets the same messages. `filter`: the (kind, text) of an
    expression, None = the group's own. `lite`: these lite topics of a LITE topic; if empty, those that the client has
    subscribed to (SyncLite). `handles`: False leaves those of the rows empty, for a caller that uses none.
    """

    topic: str
    group: str
    queues: tuple[int, ...] = ()
    max_messages: int = 32
    max_bytes: int = 3 << 20
    invisible_ms: int = 0
    client_id: str = ""
    attempt_id: str = ""
    token: PopToken | None = None
    filter: tuple[str, str] | None = None
    filter_wins: bool = False
    session: bool = False
    release_if_gone: bool = False
    lite: tuple[str, ...] | None = None
    of_queue: int = -1
    handles: bool = True

    @property
    def bytes(self) -> int:
        """The text of its filter, for what may wait for the writer."""
        return 0 if self.filter is None else len(self.filter[1])

    def needs(self) -> Needs:
        return receives(self.topic, self.group)

    def needed(self) -> tuple[Capability, ...]:
        return (OWNERS,) if self.token is not None else (LITE,) if self.lite is not None else ()

    def narrowed(self, caller: Caller) -> Self:
        """One with a token is of an owner."""
        return self if self.token is None else replace(self, token=self.token._replace(reach=caller.reach))


class Acked(NamedTuple):
    """None or Refused for each handle; the number of finished messages of each topic."""

    results: list[Refused | None]
    topics: dict[str, int]


class Ack(Command[Acked], Listed["Ack"], lane=LANE_ACK, entries="handles results"):
    """Finishes deliveries of `group`. `handles`: as Popped has them.

    `results`: of some of them, stored in the same commit; one whose handle is refused is not. `bytes`: of all results.
    """

    group: str
    handles: tuple[str, ...]
    results: tuple[GivenResult, ...] = ()
    bytes: int = 0

    def needs(self) -> Needs:
        return receives_from(self.group)

    def needed(self) -> tuple[Capability, ...]:
        return (RESULTS,) if self.results else ()

    def takes_room(self) -> bool:
        return bool(self.results)


class Change(NamedTuple):
    """One entry of ChangeInvisibleTime.

    `kind`: extend (`delay_ms` is the new lease), release (`delay_ms` until it is visible; None: the group's backoff by
    attempts; 0: at once), reject. `uncounted`: the attempt does not count. `reason`: stored with the message.
    `handle`: as in Ack. `snooze`: a release that does not count, as often as the group's `snoozes_max` allows.
    """

    handle: str
    kind: str
    delay_ms: int | None = 0
    uncounted: bool = False
    reason: str = ""
    snooze: bool = False


class Changed(NamedTuple):
    """`visible_ms`: when the message is delivered to others, or the end of the lease; 0 if it is a dead letter."""

    visible_ms: int
    dead_lettered: bool


class Renewed(NamedTuple):
    """The answer to an extension after which the delivery has another handle. The embedded engine's stay the same."""

    visible_ms: int
    dead_lettered: bool
    handle: str


class EndLease(Command[int], Listed["EndLease"], lane=LANE_ACK, capability=END_LEASE):
    """Ends a lease early → the number of its messages that were not done.

    `lease_id`: of LeaseNumbers. `reach`: as in commands on owners.
    """

    group: str
    lease_id: str
    reach: Reach = EVERYWHERE

    def needs(self) -> Needs:
        return receives_from(self.group, or_admin=True)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach_or_admin())


class ChangeInvisibleTime(
    Command[Sequence[Changed | Renewed | Refused]], Listed["ChangeInvisibleTime"], lane=LANE_ACK, entries="changes"
):
    """Extends, releases or rejects deliveries of `group`; the answer has one for each change, in order.

    `repeated_try`: an earlier try may have been carried out, though its answer was lost. An engine to which a change of
    an old handle is a second lease carries out none.
    """

    group: str
    changes: tuple[Change | Refused, ...]
    repeated_try: bool = False

    @property
    def bytes(self) -> int:
        """The reasons of all changes, for what may wait for the writer."""
        return sum(len(each.reason) for each in self.changes if isinstance(each, Change))

    def needs(self) -> Needs:
        return receives_from(self.group)

    def needed(self) -> tuple[Capability, ...]:
        return (SNOOZE,) if any(isinstance(each, Change) and each.snooze for each in self.changes) else ()


class Settled(NamedTuple):
    """`sent`: one for each topic, none with a refusal. `duplicate`: the request number was known.

    `topics`: the number of acked messages of each topic.
    """

    sent: tuple[Sent, ...]
    duplicate: bool
    topics: dict[str, int]


class Settle(
    Command[Settled], Listed["Settle"], lane=LANE_ACK, entries="handles changes sends results", capability=SETTLE
):
    """Ends deliveries of `group` and stores messages, all in one commit; what is refused refuses the whole command.

    `handles`: acked. `changes`: releases and rejects. `sends`: each topic once, without refused entries, half messages
    and request numbers of their own. `producer_id`, `request_number`: as in Send. `results`: as in Ack;
    `results_bytes`: of all of them.
    """

    group: str
    handles: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    sends: tuple[Send, ...] = ()
    producer_id: str = ""
    request_number: int = 0
    results: tuple[GivenResult, ...] = ()
    results_bytes: int = 0

    @property
    def messages(self) -> int:
        """The number of messages that it stores."""
        return sum([len(send.entries) for send in self.sends])

    @property
    def bytes(self) -> int:
        """The reasons and results, for what may wait for the writer; the messages have their own."""
        return sum([len(each.reason) for each in self.changes]) + self.results_bytes

    def needs(self) -> Needs:
        return *receives_from(self.group), *(need for send in self.sends for need in send.needs())

    def needed(self) -> tuple[Capability, ...]:
        return (SETTLE, RESULTS) if self.results else (SETTLE,)

    def takes_room(self) -> bool:
        return bool(self.sends or self.results)


class ResumeMessageGroup(Command[None], Listed["ResumeMessageGroup"], lane=LANE_ACK, capability=MESSAGE_GROUPS):
    """Goes on with a message group that is stopped.

    `dead_letter`: the stopped head goes to the dead letter topic; otherwise it is delivered again, attempts from 0.
    """

    topic: str
    group: str
    message_group: str
    dead_letter: bool = False

    def needs(self) -> Needs:
        return ADMIN
