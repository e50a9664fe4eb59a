"""Clients that are alive: their sessions, the leases that last as long (session_lease.py), their queues and locks."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple

from popmq_server.contract.capabilities import QUEUE_LOCKS
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.commands.numbers import ClientNumbers
from popmq_server.contract.operations import LANE_ACK, Command, Query
from popmq_server.contract.rights import ADMIN, KNOWN, Needs, named_group, receives

#: How often a client sends heartbeats.
HEARTBEAT_MS = 30_000
#: How long a lock of a queue lasts. Clients trust it for half of this time and renew it every third.
LOCK_MS = 60_000
#: Of a client that reads all its topics in either consume mode.
EITHER: Mapping[str, str] = MappingProxyType({})


class ClientAnswer(NamedTuple):
    """What a client says to an operator's request. `code`: of apache.rocketmq.v2."""

    code: str
    text: str


class ShownMessage(NamedTuple):
    """A stored message that a client is shown. `data`: popmq.v1.Message."""

    topic: str
    data: bytes
    stored_ms: int
    queue: int
    offset: int


#: Asks a client whether it can handle a message, or, without one, for the stacks of its threads. Raises Refused.
AsksClient = Callable[[ShownMessage | None], Awaitable[ClientAnswer]]


class RenewSession(Command[int], Listed["RenewSession"], lane=LANE_ACK):
    """The client is alive: its session leases (Pop.session) go on → the number of leases that were moved.

    How long they last without another sign of life, and at all, is the engine's to decide.
    """

    client: str

    def needs(self) -> Needs:
        return KNOWN


class ReleaseSession(Command[int], Listed["ReleaseSession"], lane=LANE_ACK):
    """The client has ended: its leases end now → their number."""

    client: str

    def needs(self) -> Needs:
        return KNOWN


class Heartbeat(Command[int], Listed["Heartbeat"], lane=LANE_ACK):
    """Renews or ends the session of a client that reads `topics` for a group → the version of the group's assignments,
    0 unless `versioned`.

    `only`: the consume mode of each topic that the client reads in one mode alone. `goodbye`: the session ends.
    `asks`: asks the client, while the session lives, what operators at other gateways want to know.
    """

    group: str
    client: str
    topics: frozenset[str]
    goodbye: bool = False
    versioned: bool = True
    only: Mapping[str, str] = field(default_factory=lambda: EITHER)
    asks: AsksClient | None = field(default=None, compare=False)

    def needs(self) -> Needs:
        return tuple(need for topic in sorted(self.topics) or [""] for need in receives(topic, self.group))


class Assignment(NamedTuple):
    """The queues that a client reads.

    `known` False: keep the current queues. `all`: pop without naming queues. Otherwise exactly `queues`.
    """

    known: bool
    all: bool
    queues: tuple[int, ...]
    mode: str = "POP"


class AssignmentOf(Query[Assignment], Listed["AssignmentOf"]):
    """The queues assigned to a client; `strategy` applies where its group pulls. `broadcast`: it reads all of them."""

    topic: str
    group: str
    client: str
    strategy: str = ""
    broadcast: bool = False

    def needs(self) -> Needs:
        return receives(self.topic, self.group)


class LockQueues(Command[list[int]], Listed["LockQueues"], lane=LANE_ACK, entries="queues", capability=QUEUE_LOCKS):
    """Locks or renews queues for a client → all that it holds now."""

    topic: str
    group: str
    client: str
    queues: tuple[int, ...]

    def needs(self) -> Needs:
        return receives(self.topic, self.group)


class UnlockQueues(Command[None], Listed["UnlockQueues"], lane=LANE_ACK, entries="queues", capability=QUEUE_LOCKS):
    """Unlocks queues of a client; an empty `queues`: all of its own."""

    topic: str
    group: str
    client: str
    queues: tuple[int, ...]

    def needs(self) -> Needs:
        return receives(self.topic, self.group)


class AskClient(Query[ClientAnswer], Listed["AskClient"]):
    """Asks a client that is connected elsewhere: for the stacks of its threads, or whether it can handle the message at
    this place of a topic. Raises Refused CLIENT_NOT_FOUND, as every engine does whose clients are all connected here.
    """

    client: str
    topic: str = ""
    queue: int = 0
    offset: int = 0

    def needs(self) -> Needs:
        return ADMIN


class Clients(Query[ClientNumbers], Listed["Clients"]):
    """Consumers with a session, and streams of producers, of one group or all.

    At most `rows_max` (0 = all) of the consumers after `behind`, a (group, client), by name. Streams, which have no
    group, come after the last of all consumers.
    """

    group: str
    behind: tuple[str, str] = ("", "")
    rows_max: int = 0

    def needs(self) -> Needs:
        return named_group(self.group)
