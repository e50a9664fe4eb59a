"""Calls to brokers and name servers, by all parts of this engine: in time, and refused in the contract's words.

    call        one broker, and what its answer says
    as_reader   the same, in the name of the gateways' own group
    tried       as call, for a caller that goes on after an error: it raises RemotingError
    of_each     several brokers at once, each with its answer or its refusal
    everywhere  a change on all masters, or UNAVAILABLE with those that are left
    written     a change at all name servers, or UNAVAILABLE with those that are left

A call ends 200 ms before its client's deadline, or by three quarters of a short one, so that the client hears why.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from popmq_remoting import CALLS, Cluster, RemotingError, Request, Response, ResponseCode, Route
from popmq_remoting.errors import BrokerRefused
from popmq_remoting.requests import groups, name_server, topics
from popmq_remoting.requests.groups import GroupConfig
from popmq_server.clock import pause
from popmq_server.cluster import names
from popmq_server.cluster.features import Facts, Features
from popmq_server.cluster.refusals import NAME_SERVERS, Asked, lacks_group, refusal
from popmq_server.contract.deadline import remaining_s
from popmq_server.errors import Refused, topic_not_found, unavailable

#: Seconds before the client's deadline at which a call ends, and its length if the client names no deadline.
MARGIN_S, CALL_S = 0.2, 10.0
#: Of a short deadline, the part at most that is left for the answer's way back.
MARGIN_SHARE = 0.25
#: Requests of one call that are under way together, and those of them that begin in one turn of the event loop.
LANES, ITEMS_A_TURN = 32, 16
#: Codes by which a broker says that the route, or its own part in it, is another by now.
_MOVED = frozenset(
    (
        *(ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION, ResponseCode.NOT_LEADER),
        *(ResponseCode.GO_AWAY, ResponseCode.INVALID_PARAMETER),
    )
)

T = TypeVar("T")


def succeeded(answer: Response) -> None:
    """Reads an answer that has no content. Raises BrokerRefused unless it is OK."""
    answer.expect()


class Brokers:
    """`cluster`: the client of this process. `name`: of the RocketMQ cluster, where name servers know several."""

    def __init__(self, cluster: Cluster, name: str = "") -> None:
        self.cluster, self._name = cluster, name
        self.features = Features(cluster)
        #: Called when a broker lacks a group that was looked up before.
        self.lacks_group: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()

    def until_s(self, wait_ms: int = 0) -> float:
        """When a call has to end, by the event loop's clock. `wait_ms`: how long it may be parked beside."""
        left_s = remaining_s()
        now_s = self._loop.time()
        most_s = CALL_S + wait_ms / 1000
        if left_s is None:
            return now_s + most_s
        margin_s = min(MARGIN_S, left_s * MARGIN_SHARE)
        return now_s + min(most_s, left_s - margin_s)

    def now_ms(self, broker: str) -> int:
        """The time at a broker."""
        return self.cluster.clock(broker).now_ms()

    async def call(
        self, asked: Asked, request: Request, read: Callable[[Response], T], *, wait_ms: int = 0, purpose: str = CALLS
    ) -> T:
        """What `read` makes of the answer of the master of `asked.broker`. Raises Refused."""
        try:
            return await self.tried(asked, request, read, self.until_s(wait_ms), purpose)
        except RemotingError as error:
            raise refusal(error, asked) from error

    async def tried(
        self, asked: Asked, request: Request, read: Callable[[Response], T], until_s: float, purpose: str = CALLS
    ) -> T:
        """As `call`, but raises RemotingError: for callers that treat an error of the broker in a way of their own."""
        try:
            await self.features.expect_served(asked.broker, until_s)
            return read(await self.cluster.call(asked.broker, request, until_s, purpose))
        except RemotingError as error:
            if isinstance(error, BrokerRefused) and error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                self.lacks_group()
            elif asked.topic:
                self._doubt(names.broker_topic(asked.topic), asked.broker, error)
            raise

    async def as_reader(
        self, asked: Asked, request: Request, read: Callable[[Response], T], *, wait_ms: int = 0, purpose: str = CALLS
    ) -> T:
        """As `call`, of a request that names the group of readers, which is made at a broker that lacks it."""
        try:
            return await self.call(asked, request, read, wait_ms=wait_ms, purpose=purpose)
        except Refused as refused:
            if not lacks_group(refused):
                raise
        reader = groups.create_group(GroupConfig(names.READER_GROUP))
        await self.call(Asked(asked.broker), reader, succeeded)
        return await self.call(asked, request, read, wait_ms=wait_ms, purpose=purpose)

    def _doubt(self, topic: str, broker: str, error: RemotingError) -> None:
        if isinstance(error, BrokerRefused):
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                self.cluster.broker_lacks(topic, broker)
            elif error.code in _MOVED:
                self.cluster.doubt(topic)
        else:
            self.cluster.doubt(topic)

    async def of_each(
        self, brokers: Iterable[str], ask: Callable[[str], Request], read: Callable[[Response], T], asked: Asked
    ) -> dict[str, T | Refused]:
        """Asks several brokers at once. `asked.broker` is of no account."""
        names = list(brokers)

        async def one(broker: str) -> T | Refused:
            try:
                return await self.call(asked._replace(broker=broker), ask(broker), read)
            except Refused as refused:
                return refused

        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))

    async def everywhere(self, ask: Callable[[str], Request], asked: Asked) -> None:
        """A change on every master. Raises Refused: its own if all refuse, else which brokers are left.

        What some have done stays done: the same call again reaches the others.
        """
        whole(await self.of_each(await self.masters(), ask, succeeded, asked))

    async def remove_topic(self, topic: str) -> None:
        """Deletes it on every master, then its routes. `topic`: as brokers call it. Raises Refused."""
        shown = names.shown(topic)
        await self.everywhere(lambda _: topics.delete_topic(topic), Asked("", shown))
        request = name_server.delete_topic(topic, await self.cluster_name())
        await self.written(f"the end of topic {shown!r}", request)
        for broker in await self.masters():
            self.cluster.broker_lacks(topic, broker)

    async def written(self, what: str, request: Request) -> None:
        """A change at every name server: each has a file of its own. Raises Refused UNAVAILABLE; `what`: for people."""
        answers = await self.cluster.name_servers.tell_all(request, self.until_s())
        left = [f"{address}: {why}" for address, answer in answers.items() if (why := _why_not(answer))]
        if left:
            raise unavailable(f"{what} is not written at name server {'; '.join(left)}")

    async def cluster_name(self) -> str:
        """The name of the cluster. Raises Refused UNAVAILABLE if name servers know no such one, none, or several."""
        return self._one(await self._all(anew=False))

    async def _all(self, anew: bool) -> Route:
        asking = self.cluster.brokers_anew if anew else self.cluster.brokers
        try:
            return await asking(self.until_s())
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS)) from error

    def _one(self, route: Route) -> str:
        known = sorted({broker.cluster for broker in route.brokers.values()})
        if not known:
            raise unavailable("the name servers know no broker yet")
        if self._name in known or (not self._name and len(known) < 2):
            return self._name or "".join(known)
        refused = unavailable(f"the name servers know {', '.join(known)}, not {self._name or 'one'}")
        refused.action = "the operator names the cluster: --cluster NAME"
        raise refused

    async def masters(self, *, anew: bool = False) -> list[str]:
        """The names of all brokers of the cluster, sorted; `anew`: asked for now. Raises Refused."""
        route = await self._all(anew)
        self._one(route)
        return sorted(self.members(route))

    async def facts(self) -> dict[str, Facts]:
        """Version and settings of each master. Raises Refused if one does not answer."""
        until_s = self.until_s()
        found = {}
        for broker in await self.masters():
            try:
                found[broker] = await self.features.of(broker, until_s)
            except RemotingError as error:
                raise refusal(error, Asked(broker)) from error
            except TimeoutError:
                raise unavailable(f"broker {broker} does not say which version it has") from None
        return found

    async def all_topics(self) -> frozenset[str]:
        """The topics of all brokers of the cluster, as brokers call them. Raises Refused UNAVAILABLE."""
        request = name_server.topics_of_cluster(await self.cluster_name())
        try:
            answer = await self.cluster.name_servers.ask(request, self.until_s())
            return frozenset(name_server.topics(answer))
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS)) from error

    def members(self, route: Route) -> list[str]:
        """The brokers of a route that belong to the cluster."""
        return [name for name, broker in route.brokers.items() if self._name in ("", broker.cluster)]

    async def route(self, topic: str, field: str = "topic") -> Route:
        """Where a topic is. `topic`: as PopMQ calls it. Raises Refused INVALID_FIELD, TOPIC_NOT_FOUND, UNAVAILABLE."""
        route = await self._asked(topic, self.cluster.route(names.broker_topic(topic, field), self.until_s()))
        if route is None or not route.queues:
            raise topic_not_found(topic, field)
        if route.is_static:
            raise Refused(
                "UNSUPPORTED",
                f"topic {topic!r} is a static topic of RocketMQ, which gateways do not serve",
                action="use a topic without logical queues",
            )
        return route

    async def having(self, topic: str) -> list[str]:
        """The brokers that have a topic, sorted; `topic`: as brokers call it. Raises Refused UNAVAILABLE."""
        route = await self._asked(topic, self.cluster.route(topic, self.until_s()))
        return sorted(route.queues) if route else []

    async def route_anew(self, topic: str) -> Route | None:
        """As `route`, but name servers are asked now. None: there is no such topic. Raises Refused UNAVAILABLE."""
        return await self._asked(topic, self.cluster.route_anew(names.broker_topic(topic), self.until_s()))

    async def _asked(self, topic: str, asking: Awaitable[Route | None]) -> Route | None:
        try:
            return await asking
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS, topic)) from error


def _why_not(answer: Response | Exception) -> str:
    """Why a name server has not done what it was told; "": it has."""
    if isinstance(answer, Exception):
        return str(answer) or type(answer).__name__
    return f"it answered {answer.code}: {answer.remark or 'no remark'}" if answer.code else ""


def whole(answers: Mapping[str, T | Refused]) -> dict[str, T]:
    """The answers of all brokers. Raises Refused if one of them refused; it names the brokers that did nothing."""
    refusals = {broker: answer for broker, answer in answers.items() if isinstance(answer, Refused)}
    if not refusals:
        return {broker: answer for broker, answer in answers.items() if not isinstance(answer, Refused)}
    first = next(iter(refusals.values()))
    if len(refusals) == len(answers):
        raise first
    left = "; ".join(f"{broker}: {refused.message}" for broker, refused in sorted(refusals.items()))
    refused = unavailable(f"done at {len(answers) - len(refusals)} of {len(answers)} brokers; left are {left}")
    refused.action = f"make the same call again, which does the rest; {first.action}"
    raise refused


async def in_lanes(items: Sequence[T], one: Callable[[T], Awaitable[None]]) -> None:
    """Runs `one` for each item, LANES of them at once.

    One that is answered from memory does not wait, so at most ITEMS_A_TURN begin in a turn of the event loop: a list of
    5,000 topics would else hold up all other calls.
    """
    loop, left = asyncio.get_running_loop(), ITEMS_A_TURN

    def next_turn() -> None:
        nonlocal left
        left = ITEMS_A_TURN

    async def lane(start: int) -> None:
        nonlocal left
        for item in items[start::LANES]:
            while not left:
                await pause(0)
            left -= 1
            if not left:
                loop.call_soon(next_turn)
            await one(item)

    await asyncio.gather(*(lane(start) for start in range(min(LANES, len(items)))))
