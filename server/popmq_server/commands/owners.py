"""What can be asked of owners, and about what is there: see owner.py, stats.py."""

from typing import Any, NamedTuple

from popmq_server.commands.messages import Position


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


class Look(NamedTuple):
    """A question that changes nothing → what stats.py's function of this name answers."""

    what: str
    arguments: tuple[Any, ...] = ()
