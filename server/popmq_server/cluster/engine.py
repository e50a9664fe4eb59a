"""The cluster engine: the contract in front of an Apache RocketMQ 5 cluster. It keeps nothing that matters.

    Engine ─▶ a part for each family of operations, with its table of handlers (BY_…), all on the same Brokers
               Sends · Pops · Acks · …

Make and use it inside one event loop.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

from popmq_remoting import Cluster, Request, RequestCode, Response
from popmq_remoting.connection.link import OnRequest
from popmq_server.cluster import promises
from popmq_server.cluster.catalog.group_changes import BY_GROUP_CHANGES, GroupChanges
from popmq_server.cluster.catalog.positions import Positions
from popmq_server.cluster.catalog.topic_changes import BY_TOPIC_CHANGES, TopicChanges
from popmq_server.cluster.features import lacking
from popmq_server.cluster.inspecting.browse import BY_PAGES, Pages
from popmq_server.cluster.inspecting.look_up import BY_LOOK_UPS, LookUps
from popmq_server.cluster.inspecting.peek import BY_PEEKS, Peeks
from popmq_server.cluster.inspecting.redrive import BY_REDRIVES, Redrives
from popmq_server.cluster.members.clients import BY_CLIENTS, ClientLists
from popmq_server.cluster.members.locks import BY_LOCKS, Locks
from popmq_server.cluster.members.members import BY_MEMBERS, Members
from popmq_server.cluster.members.neighbours import Neighbours
from popmq_server.cluster.members.relays import BY_RELAYS, Relays
from popmq_server.cluster.numbers.listings import BY_LISTINGS, Listings
from popmq_server.cluster.operating.listed import BY_BROKERS, BrokerLists
from popmq_server.cluster.popping.acks import BY_ACKS, Acks
from popmq_server.cluster.popping.dead import DeadLetters
from popmq_server.cluster.popping.pops import Pops
from popmq_server.cluster.popping.sessions import BY_SESSION_LEASES, Heard, SessionLeases
from popmq_server.cluster.popping.starts import Starts
from popmq_server.cluster.pulling.available import Availability
from popmq_server.cluster.pulling.offsets import BY_OFFSETS, Offsets
from popmq_server.cluster.pulling.pulls import Pulls
from popmq_server.cluster.pulling.redelivery import Redelivery
from popmq_server.cluster.pulling.retry_topics import RetryTopics
from popmq_server.cluster.pulling.send_back import BY_SEND_BACKS, Leftovers, SendBacks
from popmq_server.cluster.sending.recalls import BY_RECALLS, Recalls
from popmq_server.cluster.sending.sends import BY_SENDS, Sends
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.cluster.transactions.checks import CheckStream, Producers
from popmq_server.cluster.transactions.ends import BY_ENDS, Ends
from popmq_server.contract.commands import Available, LookUp, Peek, Pop, Popped, Pull, Pulled, Ready, queries
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.engine import RoomForAnswers
from popmq_server.contract.operations import A, Command, Handled, Operation, Query
from popmq_server.errors import Refused
from popmq_server.options import MEMBER_CONNECTIONS

#: Queries whose answers have messages.
_READS = (Peek, LookUp, queries.Browse)

Handler = Callable[[Any], Coroutine[object, object, Any]]  # each class of operations has its own types


def _bound(part: object, handled: Handled[Any]) -> dict[type[Operation[object]], Handler]:
    """The handlers of a part, as the engine calls them."""
    handlers: dict[type[Operation[object]], Callable[..., Any]] = handled.handlers
    return {kind: functools.partial(handler, part) for kind, handler in handlers.items()}


def _bytes_of(rows: Iterable[tuple[Any, ...]]) -> int:
    """Of the messages of an answer; each row begins with its message."""
    return sum(len(row[0]) for row in rows)


class ClusterEngine:
    """`cluster`: connected, or not yet; closed by its owner. `name`: of the RocketMQ cluster.

    `members_max`: clients with member connections.
    """

    def __init__(
        self,
        cluster: Cluster,
        secrets: Secrets,
        now_ms: Callable[[], int],
        name: str = "",
        members_max: int = MEMBER_CONNECTIONS,
        room: RoomForAnswers | None = None,
    ) -> None:
        """`room`: of the answers with messages; None: without limits."""
        self._room = room
        self.shared = shared = Shared(cluster, secrets, now_ms, name)
        self.dead = dead = DeadLetters(shared.brokers, now_ms)
        self.sends = Sends(shared)
        positions = Positions(shared.brokers)
        self.pops = Pops(shared, dead, Starts(shared.topics, positions))
        self.acks = Acks(shared, self.pops.held, dead)
        retries = RetryTopics(shared, positions)
        redelivery = Redelivery(shared, retries)
        leftovers = Leftovers(shared, positions, retries, redelivery)
        self.pulls = Pulls(shared, positions, retries)
        self.listings = Listings(shared, retries, self.pops.waits)
        self._broker_lists = BrokerLists(shared)
        self._availability = Availability(shared, positions, self.pops.waits)
        self.producers = Producers(shared)
        locks = Locks(shared)
        self.members = Members(shared, locks, members_max)
        heard = Heard()
        self.neighbours = Neighbours(shared, heard.s_ago)
        self.session_leases = SessionLeases(shared, self.pops.held, heard, self.neighbours)
        relays = Relays(shared, self.members, self.neighbours)
        self._asked: dict[int, OnRequest] = {
            RequestCode.CHECK_TRANSACTION_STATE: self.producers.asked,
            RequestCode.GET_CONSUMER_RUNNING_INFO: relays.stack,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: relays.consume,
        }
        cluster.introduce(self.producers.heartbeat, self._answer)
        self.ends = Ends(shared)
        self._info = promises.info()
        catalog = shared.brokers, shared.topics, shared.groups, shared.layouts
        self._handlers = {
            **_bound(self.sends, BY_SENDS),
            **_bound(self.acks, BY_ACKS),
            **_bound(self.ends, BY_ENDS),
            **_bound(Recalls(shared), BY_RECALLS),
            **_bound(self.session_leases, BY_SESSION_LEASES),
            **_bound(self.members, BY_MEMBERS),
            **_bound(locks, BY_LOCKS),
            **_bound(relays, BY_RELAYS),
            **_bound(ClientLists(shared, self.members.sessions, self.producers), BY_CLIENTS),
            **_bound(Offsets(shared, positions, retries, leftovers), BY_OFFSETS),
            **_bound(Redrives(shared, positions, retries, redelivery), BY_REDRIVES),
            **_bound(Peeks(shared), BY_PEEKS),
            **_bound(LookUps(shared), BY_LOOK_UPS),
            **_bound(Pages(shared, retries), BY_PAGES),
            **_bound(SendBacks(shared, retries, redelivery, dead), BY_SEND_BACKS),
            **_bound(TopicChanges(*catalog), BY_TOPIC_CHANGES),
            **_bound(GroupChanges(*catalog, shared.now_ms), BY_GROUP_CHANGES),
            **_bound(self.listings, BY_LISTINGS),
            **_bound(self._broker_lists, BY_BROKERS),
        }

    def info(self) -> EngineInfo:
        return self._info

    async def learn(self) -> None:
        """What the cluster lacks, by the settings of all masters, for as long as this process runs.

        A broker that is another one later refuses what it lacks, and names its setting. Raises Refused until each has
        answered.
        """
        self._info = promises.info(lacking((await self.shared.brokers.facts()).values()))

    async def execute(self, command: Command[A]) -> A:
        return cast(A, await self._handlers[type(command)](command))

    async def ask(self, query: Query[A]) -> A:
        handler = self._handlers[type(query)]
        if self._room is None or not isinstance(query, _READS):
            return cast(A, await handler(query))
        self._room.check()
        answer = await handler(query)
        self._room.hold(_bytes_of(answer if isinstance(answer, list) else answer.rows))
        return cast(A, answer)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        if self._room is None:
            return await self.pops.pop(command, wait_ms)
        self._room.check()
        popped = await self.pops.pop(command, wait_ms)
        try:
            self._room.hold(_bytes_of(popped.rows))
        except Refused:
            self.pops.give_back(command, popped)
            raise
        return popped

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        if self._room is None:
            return await self.pulls.pull(command, wait_ms)
        self._room.check()
        pulled = await self.pulls.pull(command, wait_ms)
        self._room.hold(_bytes_of(pulled.rows))
        return pulled

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Ready:
        return await self._availability.wait(command, min_ready, wait_ms)

    async def join(self, client: str, topics: tuple[str, ...]) -> CheckStream:
        return await self.producers.join(client, topics)

    async def _answer(self, request: Request) -> Response | None:
        """The answer to a request that a broker sends to this gateway."""
        serve = self._asked.get(request.code)
        return await serve(request) if serve else None

    def parked(self) -> int:
        """Calls that wait for messages."""
        return self.pops.waits.count + self.pulls.parked

    def close_waits(self) -> None:
        """Answers calls that wait: the process stops."""
        self.pops.close_waits()
        self.pulls.close_waits()
        self.producers.close()

    async def close(self) -> None:
        """Lets what is under way end."""
        self.listings.close()
        self._broker_lists.close()
        self.session_leases.close()
        await asyncio.gather(self.sends.close(), self.pops.close(), self.acks.close())
        await self.shared.close()
