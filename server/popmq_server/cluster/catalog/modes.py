"""Consume modes: whether a group pops or pulls a topic, as all brokers have it (401), read from them together (402).

Where nothing was set, a group pops: RocketMQ itself would say PULL for every group of which it knows nothing.
"""

from popmq_remoting.requests import groups
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, whole
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.remembered import Remembered
from popmq_server.errors import Refused
from popmq_server.values.records import Group, Subscription

#: One key for all modes.
_ALL = "all"
#: (topic, group) as brokers call them.
_Pair = tuple[str, str]


class Modes:
    """Of the groups of the cluster in its topics."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._known = Remembered[str, dict[_Pair, Subscription]](self._read)

    async def of(self, topic: KnownTopic, group: str) -> Subscription:
        """Mode and share number. `group`: as PopMQ calls it. Raises Refused UNAVAILABLE."""
        return (await self.each()).get((topic.broker_name, names.broker_group(group)), Subscription())

    async def each(self) -> dict[_Pair, Subscription]:
        """Where one was set. Raises Refused UNAVAILABLE."""
        return await self._known.get(_ALL)

    async def of_name(self, topic: str, group: str) -> Subscription:
        """The same of a topic that need not exist. Both as PopMQ calls them. Raises Refused INVALID_FIELD too."""
        known = await self._known.get(_ALL)
        return known.get((names.broker_topic(topic, "topics"), names.broker_group(group)), Subscription())

    async def expect(self, topic: KnownTopic, group: Group, mode: str) -> Subscription:
        """The same. Raises Refused WRONG_CONSUME_MODE if the group reads the topic in the other mode."""
        found = await self.of(topic, group.name)
        if found.mode != mode:
            raise Refused(
                "WRONG_CONSUME_MODE",
                f"group {group.name!r} reads topic {topic.name!r} by {found.mode}, this request needs {mode}",
                field="group",
                action=f"read it by {found.mode}, or switch the group: "
                f"popmq mode {topic.name} {group.name} {mode.lower()}",
            )
        return found

    async def set(self, topic: KnownTopic, group: str, mode: str, share_number: int) -> Subscription:
        """Sets it on every master. Raises Refused UNAVAILABLE with those that are left."""
        known = names.broker_group(group)
        await self._brokers.everywhere(
            lambda _: groups.set_request_mode(known, topic.broker_name, mode, share_number), Asked("", group=group)
        )
        self._known.forget(_ALL)
        return Subscription(mode=mode, share_number=share_number)

    async def _read(self, _: str) -> dict[_Pair, Subscription]:
        """From all masters that answer: a change reaches every one, or its caller repeats it."""
        masters = await self._brokers.masters()
        answers = await self._brokers.of_each(
            masters, lambda _: groups.all_request_modes(), groups.request_modes, Asked("")
        )
        answered = [table for table in answers.values() if not isinstance(table, Refused)]
        if not answered:
            whole(answers)
        return {
            pair: Subscription(mode=mode, share_number=share)
            for table in reversed(answered)
            for pair, (mode, share) in table.items()
        }

    def close(self) -> None:
        """Ends what is being read."""
        self._known.close()
