"""What can be asked of the engine: one frozen class for each command, and for each answer that has a shape.

Commands carry names and plain numbers, checked against the limits by whoever makes them (api/); the engine checks what
needs its state. All times are ms. Answers of entries are values or `Refused` objects, in the order of the request.
"""

from typing import Any, NamedTuple

from popmq_server.errors import Refused
from popmq_server.message import Handle, Outgoing


class Send(NamedTuple):
    """→ Sent. Stores messages in one queue, in order.

    `entries`: for each message of the request, in its order, the checked message or why it is refused.
    `producer_id`, `request_number`: both or neither; a number seen in the last 10 minutes is answered as it was.
    `bytes`: of all messages, counted against what may wait for the writer.
    """

    topic: str
    entries: tuple[Outgoing | Refused, ...]
    producer_id: str = ""
    request_number: int = 0
    bytes: int = 0


class Sent(NamedTuple):
    """`first` is the offset of the first stored message; the stored ones follow each other in `queue`."""

    queue: int
    first: int
    duplicate: bool


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

    `queues`: empty = all, with the start rotated. `max_bytes`: soft, one message is always allowed. `invisible_ms`: 0 =
    the group's own. `attempt_id`: with `client_id` names this try, so that a repeat gets the same messages.
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


class Popped(NamedTuple):
    """What a Pop leased; empty `rows` lease nothing.

    `rows`: (message bytes, stored ms, queue, offset, attempt, member); a handle is made of (ck_id, member, nonce).
    `rest`: messages that the visited queues still have. `replay`: the answer to an attempt id or token that was known.
    `sealed`: with a token (messages sealed at first, end, stolen, lost).
    """

    rows: list[tuple[bytes, int, int, int, int, int]]
    ck_id: int
    nonce: int
    popped_ms: int
    due_ms: int
    rest: int
    replay: bool = False
    sealed: tuple[int, bool, int, int] | None = None


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


class AttachOwner(NamedTuple):
    """→ (generation, acked epoch, queues of the topic).

    `topic`, `start`: fix the group's position there, if it has none; "" = no topic. `create_group`: with default
    settings, when there is none.
    """

    group: str
    owner: str
    lease_ms: int
    topic: str = ""
    start: tuple[str, int] | None = None
    create_group: bool = False


class RenewOwner(NamedTuple):
    """→ (open tokens, bound messages, lease until ms). Moves the lease of all that the owner holds."""

    group: str
    owner: str
    generation: int
    lease_ms: int


class AckUpTo(NamedTuple):
    """→ (messages finished by this call, acked epoch, messages finished of each topic)."""

    group: str
    owner: str
    generation: int
    epoch: int


class ReleaseOwner(NamedTuple):
    """→ messages made visible. `generation` 0: whatever it is."""

    group: str
    owner: str
    generation: int = 0


class Available(NamedTuple):
    """→ (ready as far as `upto` goes, Position now). Takes no lease; fixes the start position, as a Pop does."""

    topic: str
    group: str
    upto: Position | None = None


class CreateTopic(NamedTuple):
    """→ (Topic, whether it existed). `by_age`, `keep_ms`: retention."""

    name: str
    queues: int
    by_age: bool
    keep_ms: int


class UpdateTopic(NamedTuple):
    """→ Topic. `queues` 0 and `retention` None: as they were; `retention` is (by age, keep ms)."""

    name: str
    queues: int
    retention: tuple[bool, int] | None


class DeleteTopic(NamedTuple):
    """→ None."""

    name: str


class CreateGroup(NamedTuple):
    """→ (Group, whether it existed).

    `delays_ms`: backoff before attempt 2, 3, …, the last repeats. `share_number`: 0 = everybody reads every queue.
    `start_from`: EARLIEST, LATEST or TIMESTAMP (`start_ms`), where the group begins in a topic that it names first.
    `exclusive_owner`: what an owner's token holds is not popped by others after its lease.
    """

    name: str
    max_attempts: int
    delays_ms: tuple[int, ...]
    invisible_ms: int
    share_number: int
    start_from: str
    start_ms: int
    exclusive_owner: bool


class UpdateGroup(NamedTuple):
    """→ Group. `changes` are fields of state.Group."""

    name: str
    changes: dict[str, Any]


class DeleteGroup(NamedTuple):
    """→ None."""

    name: str


class Look(NamedTuple):
    """A question that changes nothing → what stats.py's function of this name answers."""

    what: str
    arguments: tuple[Any, ...] = ()


#: Taken first: what frees, then what stores, then what hands out, so that waiting Pops never delay an Ack.
LANE_ACK, LANE_SEND, LANE_POP = 0, 1, 2
LANES: dict[type, int] = {Send: LANE_SEND, Pop: LANE_POP}
#: What needs room on the disk, refused first when it is full.
NEEDS_ROOM = (Send, Pop, CreateTopic, CreateGroup, AttachOwner)
