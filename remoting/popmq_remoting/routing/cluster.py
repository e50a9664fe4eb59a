"""A cluster: name servers, brokers, and what is known about both.

    route(topic)  ─▶ RouteMemory ── not fresh ──▶ NameServers
    call(broker)  ─▶ last known address of its master ─▶ Peer (one for each address and purpose)

A stale route is used while a new one is asked for; only one that is unknown, or in doubt, is waited for. Routes that
are known keep serving while no name server answers.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from popmq_remoting.codes import ResponseCode
from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.link import OnRequest
from popmq_remoting.connection.peer import Access, Peer, PeerNumbers
from popmq_remoting.connection.tls import ClusterTls
from popmq_remoting.errors import ConnectionLost, DeadlineOver, RemotingError, Unreachable
from popmq_remoting.requests import members, name_server
from popmq_remoting.routing.broker_clock import BrokerClock
from popmq_remoting.routing.name_servers import NameServers
from popmq_remoting.routing.route import MASTER, Route, read_cluster, read_route
from popmq_remoting.routing.route_memory import LIST_S, RouteMemory
from popmq_remoting.wire.command import Request, Response
from popmq_remoting.wire.signature import Credentials

#: Purposes of connections. Long polls have one of their own, so that no other answer waits behind theirs.
CALLS, WAITS = "calls", "waits"
#: Seconds to ask name servers: all callers that wait share one question, whatever their deadlines.
_ASK_S = 3.0
#: Seconds that a call waits for a new answer of name servers if it could use an old one.
_DOUBT_WAIT_S = 1.0
#: The key of the route to all brokers, among the topics of the memory.
_ALL = ""


@dataclass(frozen=True)
class ClusterSettings:
    """`name_servers`: host:port of each. `client_id` names this process to brokers."""

    name_servers: Sequence[str]
    client_id: str
    credentials: Credentials | None = None
    tls: ClusterTls = field(default_factory=ClusterTls)
    limits: PeerLimits = field(default_factory=PeerLimits)


class Called(NamedTuple):
    """A call of a broker that has ended, for whoever counts them."""

    broker: str
    purpose: str
    outcome: Response | RemotingError
    seconds: float


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Cluster:
    """Make it in the event loop that uses it. `on_request`: serves what brokers ask.

    `heartbeat`: what this client tells each broker about its groups; by default that it has none.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        on_request: OnRequest | None = None,
        heartbeat: Callable[[], Request] | None = None,
        now_ms: Callable[[], int] = _wall_ms,
        draw: Callable[[], float] = random.random,
        observe: Callable[[Called], None] = lambda called: None,
    ) -> None:
        """`observe` is told of each `call`. Raises BadFormat for an address, OSError for a file of TLS."""
        self._access = Access(settings.limits, settings.tls.context(), settings.tls.server_name, settings.credentials)
        self._on_request = on_request
        self.client_id = settings.client_id
        self._heartbeat = heartbeat or self._no_groups
        self._now_ms = now_ms
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._memory = RouteMemory(draw)
        self._asking: dict[str, asyncio.Task[Route | None]] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        #: The brokers that the name servers listed last.
        self._listed: set[str] = set()
        self._peers: dict[tuple[str, str], Peer] = {}
        self._clocks: dict[str, BrokerClock] = {}
        probe = name_server.get_kv("", "")
        plain = [Peer(address, self._access, probe=probe) for address in settings.name_servers]
        self.name_servers = NameServers(plain)

    def introduce(self, heartbeat: Callable[[], Request], on_request: OnRequest) -> None:
        """Both as of the constructor, for who is made after this client. Before its first call."""
        self._heartbeat, self._on_request = heartbeat, on_request

    # ── Routes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def route(self, topic: str, until_s: float) -> Route | None:
        """Where a topic is; None if there is no such topic. Raises RemotingError if nothing is known, and none answers.

        `until_s`: by the event loop's clock, as everywhere here.
        """
        return await self._looked_up(topic, until_s)

    async def route_anew(self, topic: str, until_s: float) -> Route | None:
        """As `route`, but name servers are asked, however fresh it is: the caller has just changed the topic."""
        return await self._answered(self._memory.route(topic), self._refresh(topic), until_s)

    async def brokers(self, until_s: float) -> Route:
        """All brokers of the cluster. Raises RemotingError as `route`."""
        return await self._looked_up(_ALL, until_s) or Route()

    async def brokers_anew(self, until_s: float) -> Route:
        """The same, but name servers are asked, however fresh it is. Raises RemotingError as `route`."""
        return await self.route_anew(_ALL, until_s) or Route()

    def doubt(self, topic: str) -> None:
        """An answer showed that the route may be wrong: the next call waits for a new one."""
        self._memory.doubt(topic)

    def broker_lacks(self, topic: str, broker: str) -> None:
        """A broker answered that it has no such topic: the only word that is believed at once."""
        self._memory.lacks(topic, broker)

    async def _looked_up(self, topic: str, until_s: float) -> Route | None:
        now_s = self._loop.time()
        known = self._memory.route(topic)
        if self._memory.is_fresh(topic, now_s):
            return known
        task = self._refresh(topic)
        if known is not None:
            if not self._memory.is_doubted(topic):
                return known
            until_s = min(until_s, now_s + _DOUBT_WAIT_S)
        return await self._answered(known, task, until_s)

    async def _answered(self, known: Route | None, task: asyncio.Task[Route | None], until_s: float) -> Route | None:
        """The new answer, or what is known without one."""
        await asyncio.wait([task], timeout=max(0.0, until_s - self._loop.time()))
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        if known is not None:
            return known
        error = task.exception() if task.done() and not task.cancelled() else None
        raise error or Unreachable("no name server answered before the deadline")

    def _refresh(self, topic: str) -> asyncio.Task[Route | None]:
        """Asks the name servers, once for all that wait."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = self._loop.create_task(self._ask(topic))
            task.add_done_callback(lambda done: self._asked(topic, done))
        return task

    async def _ask(self, topic: str) -> Route | None:
        request = name_server.route(topic) if topic else name_server.cluster_info()
        answer = await self.name_servers.ask(request, self._loop.time() + _ASK_S)
        found: Route | None = None
        if answer.code != ResponseCode.TOPIC_NOT_EXIST:
            answer.expect()
            found = read_route(answer.body) if topic else read_cluster(answer.body)
        if found is not None and not found.brokers:
            found = None  # of a name server that no broker has told anything yet
        if topic == _ALL and found is not None:
            if found.brokers.keys() - self._listed:
                self._memory.renew(self._loop.time())
            self._listed = {*found.brokers}
        route = self._memory.learn(topic, found, self._loop.time(), LIST_S if topic == _ALL else None)
        if route is not None and found is not None:
            for name in found.brokers:  # the route may have older addresses of others
                self._moved(name, dict(route.brokers[name].addresses))
        return route

    def _moved(self, name: str, addresses: dict[int, str]) -> None:
        """Forgets the clock of a broker whose address changed: another master has another clock."""
        if name in self._clocks and self._addresses.get(name, {}).get(MASTER) != addresses.get(MASTER):
            self._clocks[name].forget()
        self._addresses[name] = addresses

    def _asked(self, topic: str, task: asyncio.Task[Route | None]) -> None:
        del self._asking[topic]
        # The exception is looked at here: whoever asked may have gone, or had a stale route.
        if not task.cancelled() and task.exception() is not None:
            self._memory.put_off(topic, self._loop.time())

    # ── Brokers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(
        self, broker: str, request: Request, until_s: float, purpose: str = CALLS, broker_id: int = MASTER
    ) -> Response:
        """What the broker answered. Raises RemotingError as Peer.call, Unreachable if its address is not known."""
        began_s = self._loop.time()
        try:
            peer = self.peer(await self.address(broker, until_s, broker_id), purpose)
            answer = await peer.call(request, until_s)
        except RemotingError as error:
            self._observe(Called(broker, purpose, error, self._loop.time() - began_s))
            if isinstance(error, Unreachable | ConnectionLost | DeadlineOver):
                self._memory.doubt(_ALL)
            raise
        self._observe(Called(broker, purpose, answer, self._loop.time() - began_s))
        return answer

    def is_silent(self, broker: str) -> bool:
        """Whether its master lets calls wait now: it may stand still. What others can do is better asked of them."""
        peer = self._peers.get((self._addresses.get(broker, {}).get(MASTER, ""), CALLS))
        return peer is not None and peer.is_silent

    async def address(self, broker: str, until_s: float, broker_id: int = MASTER) -> str:
        """Its last known address, also when routes miss it by now. Raises RemotingError."""
        if not self._memory.is_fresh(_ALL, self._loop.time()):
            self._refresh(_ALL)
        if broker not in self._addresses:
            await self.brokers(until_s)
        address = self._addresses.get(broker, {}).get(broker_id)
        if address is None:
            raise Unreachable(f"no name server knows an address of broker {broker} with id {broker_id}")
        return address

    def peer(self, address: str, purpose: str = CALLS, heartbeat: Callable[[], Request] | None = None) -> Peer:
        """The connection to an address for a purpose. `heartbeat`: of a member, whose purpose has its name."""
        peer = self._peers.get((address, purpose))
        if peer is None:
            beat = heartbeat or (self._heartbeat if purpose == CALLS else self._no_groups)
            parks = purpose == WAITS
            peer = self._peers[address, purpose] = Peer(address, self._access, beat, self._on_request, parks=parks)
        return peer

    async def close_peer(self, address: str, purpose: str) -> None:
        """Ends a connection that is not needed any longer."""
        peer = self._peers.pop((address, purpose), None)
        if peer is not None:
            await peer.close()

    def sign_with(self, credentials: Credentials | None) -> None:
        """Signs what is sent from now on as this user."""
        self._access.credentials = credentials

    def clock(self, broker: str) -> BrokerClock:
        """The clock of a broker's master; learnt anew when its address changes."""
        clock = self._clocks.get(broker)
        if clock is None:
            clock = self._clocks[broker] = BrokerClock(self._now_ms)
        return clock

    def names(self) -> dict[str, str]:
        """The broker at each address that is known."""
        return {address: name for name, ids in self._addresses.items() for address in ids.values()}

    def heard_s_ago(self) -> float | None:
        """Seconds since name servers said last which brokers there are; None: they never did."""
        heard_s = self._memory.learnt_s(_ALL)
        return None if heard_s is None else self._loop.time() - heard_s

    def numbers(self) -> dict[tuple[str, str], PeerNumbers]:
        """The state of each connection to brokers, by address and purpose."""
        return {key: peer.numbers() for key, peer in self._peers.items()}

    async def close(self) -> None:
        """Ends all connections, and the calls that are under way."""
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*(peer.close() for peer in self._peers.values()), self.name_servers.close())

    def _no_groups(self) -> Request:
        return members.heartbeat(self.client_id)
