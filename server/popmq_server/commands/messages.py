"""Send, pop, ack, change: what can be asked about messages."""

from typing import NamedTuple

from popmq_server.errors import Refused
from popmq_server.model.message import Handle, Outgoing


class Send(NamedTuple):
    """→ Sent. Stores messages in one queue, in order.

    `entries`: for each message of the request, in its order, the checked message or why it is refused.
    `producer_id`, `request_number`: both or neither; a number seen in the last 10 minutes is answered as it was.
    `bytes`: of all messages, counted against what may wait for the writer. `types`: the types of topic that the
    messages are for, when only a topic of just that type may take them.
    """

    topic: str
    entries: tuple[Outgoing | Refused, ...]
    producer_id: str = ""
    request_number: int = 0
    bytes: int = 0
    types: frozenset[str] = frozenset()


class Place(NamedTuple):
    """Where one message is: in a queue, or, with a recall handle or a transaction id, not in one yet.

    `duplicate`: its id was known, this is where the first one is.
    """

    queue: int = 0
    offset: int = 0
    recall_handle: str = ""
    transaction_id: str = ""
    duplicate: bool = False


class Sent(NamedTuple):
    """`first` is the offset of the first stored message; the stored ones follow each other in `queue`.

    `places`: for each good entry of the request where it is, or why it is refused; None when the two numbers say it.
    """

    queue: int
    first: int
    duplicate: bool
    places: tuple[Place | Refused, ...] | None = None


class Position(NamedTuple):
    """A place in a topic for one group: the next offset of each queue, and the next entry of the retry topic.

    As a bound (`upto`) it excludes what it names: a queue that it does not name is read not at all.
    """

    queues: dict[int, int]
    retry: int


class PopToken(NamedTuple):
    """A sealed token: see owner.py.

    `generation`: of the owner, from AttachOwner. `share`: at most so many messages in all chunks of (epoch, part), 0 =
    no bound. `upto`: nothing at or beyond it. Both matter only when the token is new.
    """

    owner: str
    generation: int
    epoch: int
    part: int
    chunk: int
    share: int
    upto: Position | None


class Pop(NamedTuple):
    """→ Popped. Leases what is deliverable.

    `filter_wins`: the filter replaces the group's instead of being refused. `session`: the lease lives with
    `client_id`, see session_lease.py. `give_back`: undone when its caller has gone, in spite of an attempt id.
    `queues`: empty = all, with the start rotated. `max_bytes`: soft, one message is always allowed. `invisible_ms`: 0 =
    the group's own. `attempt_id`: with `client_id` names this try, so that a repeat gets the same messages. `filter`:
    (kind, text) of an expression, None = the group's own. `lite`: of a LITE topic these lite topics, or, when empty,
    those that the client has subscribed to (SyncLite).
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
    give_back: bool = False
    lite: tuple[str, ...] | None = None


class Popped(NamedTuple):
    """What a Pop leased; empty `rows` lease nothing.

    `rows`: (message bytes, stored ms, queue, offset, attempt, member); a handle is made of (ck_id, member, nonce).
    `rest`: messages that the visited queues still have. `replay`: the answer to an attempt id or token that was known.
    `sealed`: with a token (messages sealed at first, end, stolen, lost). `again`: nothing was found yet, but not
    all was looked at: ask again at once. `refusal`: why nothing was leased although
    messages are there, for who waits no longer. `token_ms`: when the topic's quota gives the next one. `type`: the
    topic's. `parts`: of lite topics, each with a CheckPoint and rows of its own; `rows` are then those of all.
    """

    rows: list[tuple[bytes, int, int, int, int, int]]
    ck_id: int
    nonce: int
    popped_ms: int
    due_ms: int
    rest: int
    replay: bool = False
    sealed: tuple[int, bool, int, int] | None = None
    again: bool = False
    refusal: Refused | None = None
    token_ms: int = 0
    type: str = "NORMAL"
    parts: tuple["Popped", ...] = ()

    @property
    def leases(self) -> tuple["Popped", ...]:
        """The answer by CheckPoints: handles are made of these."""
        return self.parts or (self,)


class Acked(NamedTuple):
    """None or Refused for each handle; how many messages of each topic are done."""

    results: list[Refused | None]
    topics: dict[str, int]


class Ack(NamedTuple):
    """→ Acked. Finishes deliveries of `group`; a handle that could not be read is its Refused."""

    group: str
    handles: tuple[Handle | Refused, ...]


class Change(NamedTuple):
    """One entry of ChangeInvisibleTime.

    `kind`: extend (`delay_ms` is the new lease), release (`delay_ms` until it is visible; None: the group's backoff by
    attempts; 0: at once), reject. `uncounted`: the attempt is given back. `reason`: kept with the message.
    """

    handle: Handle
    kind: str
    delay_ms: int | None = 0
    uncounted: bool = False
    reason: str = ""


class ChangeInvisibleTime(NamedTuple):
    """→ list of (visible ms, dead lettered) or Refused, one for each change, in order."""

    group: str
    changes: tuple[Change | Refused, ...]
