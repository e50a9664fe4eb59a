"""Commands on owners, and on the number of ready messages: see owner.py.

`reach`: what the caller may receive; it has to cover every topic of the owner.
"""

from typing import NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, command
from popmq_server.contract.commands.messages import Position
from popmq_server.values.reach import EVERYWHERE, Reach


@command(LANE_ACK, needs_room=True)
class AttachOwner(NamedTuple):
    """→ (generation, acked epoch, queues of the topic).

    `topic`, `start`: fix the group's position there, if it has none; "" = no topic. `create_group`: create a missing
    group with default settings. `may_create`: whether the caller may do so.
    """

    group: str
    owner: str
    lease_ms: int
    topic: str = ""
    start: tuple[str, int] | None = None
    create_group: bool = False
    may_create: bool = True
    reach: Reach = EVERYWHERE


@command(LANE_ACK)
class RenewOwner(NamedTuple):
    """→ (open tokens, bound messages, lease until ms). Extends the lease on everything that the owner holds."""

    group: str
    owner: str
    generation: int
    lease_ms: int
    reach: Reach = EVERYWHERE


@command(LANE_ACK)
class AckUpTo(NamedTuple):
    """→ (messages finished by this call, acked epoch, finished messages of each topic, torn messages)."""

    group: str
    owner: str
    generation: int
    epoch: int
    reach: Reach = EVERYWHERE


@command(LANE_ACK)
class ReleaseOwner(NamedTuple):
    """→ messages made visible. `generation` 0: any."""

    group: str
    owner: str
    generation: int = 0
    reach: Reach = EVERYWHERE


@command(LANE_ACK)
class Available(NamedTuple):
    """→ (ready as far as `upto` goes, Position now, topic id). Leases nothing; binds the group, as a Pop does.

    `filter`: refused if a Pop with it would be.
    """

    topic: str
    group: str
    upto: Position | None = None
    filter: tuple[str, str] | None = None
