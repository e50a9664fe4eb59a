"""Retry topics of groups that pull: what they sent back, in a topic of the gateways' with one queue on one master.

    %RETRY%bill+orders, as clients name it ─▶ popmq_retry_ and a hash, at a broker of the topic (names.py)

Made by the first message that is sent back, or the first pull that waits for one. Its entries are numbered by their
offset. Finished ones stay, as in any topic, and are left out: an entry is there from the group's position on.
"""

from typing import NamedTuple

from popmq_remoting.codes import Permission
from popmq_remoting.errors import RemotingError
from popmq_remoting.requests import topics
from popmq_remoting.requests.topics import TopicConfig
from popmq_server.cluster import names
from popmq_server.cluster.brokers import succeeded
from popmq_server.cluster.catalog.positions import Ends, Positions, position
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.refusals import NAME_SERVERS, Asked, refusal
from popmq_server.cluster.sending import message_groups
from popmq_server.cluster.shared import Shared
from popmq_server.errors import Refused, invalid
from popmq_server.values.ids import TopicId
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Topic


class RetryTopic(NamedTuple):
    """`itself`: named as clients do and as brokers do. `origin`: whose messages it has."""

    itself: KnownTopic
    group: Group
    origin: KnownTopic


class RetryTopics:
    """Makes and finds the retry topics of groups that pull."""

    def __init__(self, shared: Shared, positions: Positions) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._modes, self._positions = shared.layouts, shared.modes, positions
        #: Where one is that the name servers may not know yet.
        self._made: dict[str, QueuePlace] = {}

    async def named(self, name: str, group: str = "") -> RetryTopic:
        """The topic `%RETRY%group+topic`. `group`: of the request; "" = a reader without one.

        Raises Refused TOPIC_NOT_FOUND, INVALID_FIELD for another group, UNSUPPORTED for a group that pops: what it
        retries is in topics of the brokers, several for each topic.
        """
        names.broker_topic(name)
        own, _, topic = name.removeprefix(RETRY_PREFIX).partition("+")
        try:
            found = self.of(await self._groups.get(own), await self._topics.get(topic))
        except Refused as refused:
            if refused.code not in ("TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"):
                raise
            why = f"there is no topic {name!r}"
            raise Refused("TOPIC_NOT_FOUND", why, field="topic", action=refused.action) from None
        if group not in ("", own):
            raise invalid(
                f"{name!r} is the retry topic of group {own!r}, not of {group!r}",
                field="group",
                action=f"name the group {own!r}, or leave the group out",
            )
        if group:
            await self._modes.expect(found.origin, found.group, "PULL")
        elif not (await self._modes.of(found.origin, own)).pulls:
            raise Refused(
                "UNSUPPORTED",
                f"group {own!r} pops topic {topic!r}: what it retries is in topics of the brokers, in no single order",
                field="topic",
                action=f"see how many there are: popmq stats {topic} {own}",
            )
        return found

    def of(self, group: Group, origin: KnownTopic) -> RetryTopic:
        """The retry topic of a group in a topic."""
        name = f"{RETRY_PREFIX}{group.name}+{origin.name}"
        settings = Topic(TopicId(0), name, 1, True, 0, 0)
        return RetryTopic(KnownTopic(settings, names.retry_topic(group.name, origin.name)), group, origin)

    async def place(self, retry: RetryTopic) -> QueuePlace | None:
        """Where it is; None: nothing was sent back yet."""
        name = retry.itself.broker_name
        try:
            route = await self._brokers.cluster.route(name, self._brokers.until_s())
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS, retry.itself.name)) from error
        if route is None or not route.queues:
            return self._made.get(name)
        self._made.pop(name, None)
        return QueuePlace(min(route.queues), 0)

    async def made(self, retry: RetryTopic) -> QueuePlace:
        """The same; it is made at that broker of the topic that all gateways choose. Raises Refused UNAVAILABLE."""
        return await self.place(retry) or await self.make(retry)

    async def make(self, retry: RetryTopic) -> QueuePlace:
        """Makes it, also where its broker has it: that changes nothing."""
        name = retry.itself.broker_name
        brokers = sorted({place.broker for place in (await self._layouts.of(retry.origin)).places})
        broker = brokers[message_groups.queue_of(name, len(brokers))]
        config = TopicConfig(name, 1, 1, Permission.READ | Permission.WRITE, {})
        await self._brokers.call(Asked(broker, retry.itself.name), topics.create_topic(config), succeeded)
        self._brokers.cluster.doubt(name)
        made = self._made[name] = QueuePlace(broker, 0)
        return made

    async def begins(self, retry: RetryTopic, place: QueuePlace) -> tuple[int, Ends]:
        """The first unfinished entry, and the ends of the queue."""
        (committed,) = await self._positions.committed(retry.itself, retry.group.name, [place])
        (ends,) = await self._positions.ends(retry.itself, [place])
        (first,) = position([committed], [ends]) or [ends.least]
        return min(first, ends.most), ends

    async def finish(self, retry: RetryTopic, place: QueuePlace, below: int, field: str) -> int:
        """Finishes the entries below a number; returns how many. The first unfinished one never goes back."""
        first, ends = await self.begins(retry, place)
        if below > ends.most:
            raise invalid(
                f"the entries of {retry.itself.name!r} end at {ends.most}, before {below}",
                field=field,
                action=f"give an offset of at most {ends.most}",
            )
        if below > first:
            await self._positions.put(retry.itself, retry.group.name, {place: below})
        return max(0, below - first)
