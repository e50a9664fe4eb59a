"""What can be asked of the engine: one frozen class for each command, and for each answer that has a shape.

Commands carry names and plain numbers, checked against the limits by whoever makes them (api/); the engine checks what
needs its state. All times are ms. Answers of entries are values or `Refused` objects, in the order of the request.
"""

from typing import Any, NamedTuple

from popmq_server.errors import Refused
from popmq_server.message import Handle, Outgoing


class Send(NamedTuple):
    """→ Sent. `entries` holds a checked message or why it is refused."""

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
    """The next offset of each queue, and the next entry of the retry topic."""

    queues: dict[int, int]
    retry: int


class PopToken(NamedTuple):
    """A sealed token: see owner.py."""

    owner: str
    generation: int
    epoch: int
    part: int
    chunk: int
    share: int
    upto: Position | None


class Pop(NamedTuple):
    """→ Popped. `queues` empty = all."""

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
    """`rows`: (message bytes, stored ms, queue, offset, attempt, member). `sealed`: (count, end, stolen, lost)."""

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
    """→ Acked."""

    group: str
    handles: tuple[Handle | Refused, ...]


class Change(NamedTuple):
    """One entry of ChangeInvisibleTime. `kind`: extend, release, reject. `delay_ms` None: the group's backoff."""

    handle: Handle
    kind: str
    delay_ms: int | None = 0
    uncounted: bool = False
    reason: str = ""


class ChangeInvisibleTime(NamedTuple):
    """→ list of (visible ms, dead lettered) or Refused."""

    group: str
    changes: tuple[Change | Refused, ...]


class AttachOwner(NamedTuple):
    """→ (generation, acked epoch, queues of the topic)."""

    group: str
    owner: str
    lease_ms: int
    topic: str = ""
    start: tuple[str, int] | None = None
    create_group: bool = False


class RenewOwner(NamedTuple):
    """→ (open tokens, bound messages, lease until ms)."""

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
    """→ (ready as far as `upto` goes, Position now)."""

    topic: str
    group: str
    upto: Position | None = None


class CreateTopic(NamedTuple):
    """→ (Topic, whether it existed)."""

    name: str
    queues: int
    by_age: bool
    keep_ms: int


class UpdateTopic(NamedTuple):
    """→ Topic. Zero or None: as it was."""

    name: str
    queues: int
    retention: tuple[bool, int] | None


class DeleteTopic(NamedTuple):
    """→ None."""

    name: str


class CreateGroup(NamedTuple):
    """→ (Group, whether it existed)."""

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
