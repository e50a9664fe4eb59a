"""Commands on owners, and on the number of ready messages: see owner.py.

`reach`: what the caller may receive; it has to cover every topic of the owner.
"""

from dataclasses import replace
from typing import NamedTuple, Self

from popmq_server.contract.capabilities import OWNERS, WAIT_AVAILABLE
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.messages import Position
from popmq_server.contract.operations import LANE_ACK, Command
from popmq_server.contract.rights import Caller, Needs, receives, receives_from
from popmq_server.values.reach import EVERYWHERE, Reach


class Attached(NamedTuple):
    """`generation`: of the owner from now on. `queues`: of the topic that was named, else 0."""

    generation: int
    acked_epoch: int
    queues: int


class OwnerRenewed(NamedTuple):
    """What the owner holds: its open tokens, the messages bound to them, and until when."""

    tokens: int
    messages: int
    lease_until_ms: int


class AckedUpTo(NamedTuple):
    """`acked`: messages finished by this call; `topics`: their number in each topic. `torn`: messages that are gone."""

    acked: int
    acked_epoch: int
    topics: dict[str, int]
    torn: int


class Ready(NamedTuple):
    """The deliverable messages of a group, as far as `upto` goes, and its position now."""

    ready: int
    position: Position
    topic_id: int


class AttachOwner(Command[Attached], Listed["AttachOwner"], lane=LANE_ACK, needs_room=True, capability=OWNERS):
    """Creates an owner, or takes it over.

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

    def needs(self) -> Needs:
        return receives(self.topic, self.group)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach, may_create=caller.may_create(self.group))


class RenewOwner(Command[OwnerRenewed], Listed["RenewOwner"], lane=LANE_ACK, capability=OWNERS):
    """Extends the lease on everything that the owner holds."""

    group: str
    owner: str
    generation: int
    lease_ms: int
    reach: Reach = EVERYWHERE

    def needs(self) -> Needs:
        return receives_from(self.group)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach)


class AckUpTo(Command[AckedUpTo], Listed["AckUpTo"], lane=LANE_ACK, capability=OWNERS):
    """Finishes all messages of the owner's tokens up to an epoch."""

    group: str
    owner: str
    generation: int
    epoch: int
    reach: Reach = EVERYWHERE

    def needs(self) -> Needs:
        return receives_from(self.group)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach)


class ReleaseOwner(Command[int], Listed["ReleaseOwner"], lane=LANE_ACK, capability=OWNERS):
    """Ends the owner's lease now → the number of messages made visible. `generation` 0: any."""

    group: str
    owner: str
    generation: int = 0
    reach: Reach = EVERYWHERE

    def needs(self) -> Needs:
        return receives_from(self.group, or_admin=True)

    def narrowed(self, caller: Caller) -> Self:
        return replace(self, reach=caller.reach_or_admin())


class Available(Command[Ready], Listed["Available"], lane=LANE_ACK, capability=WAIT_AVAILABLE):
    """Counts deliverable messages. Leases nothing; binds the group, as a Pop does.

    `filter`: refused if a Pop with it would be.
    """

    topic: str
    group: str
    upto: Position | None = None
    filter: tuple[str, str] | None = None

    def needs(self) -> Needs:
        return receives(self.topic, self.group)
