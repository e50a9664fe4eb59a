"""What brokers count, remembered for as long as the asker allows, TURNS questions at a broker at once.

    topics     21 of each broker     the settings of all topics, which are read some at a time
    ends       202                   the first and next offset of each queue of a topic
    behind     208                   where a group is in each queue of each topic that it has read
    readers    300                   the groups that have read a topic

A list of 5,000 topics is 10,000 questions; asked some at a time, they leave the brokers and this process free for
sends. A broker that does not answer is left out: its numbers are missing.
"""

import asyncio
import operator
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from popmq_remoting import RemotingError, Request, Response, ResponseCode
from popmq_remoting.requests import bodies, groups, topics
from popmq_remoting.requests.topics import TopicConfig
from popmq_server.clock import pause
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, whole
from popmq_server.cluster.catalog.positions import Ends
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.remembered import Remembered
from popmq_server.errors import Refused

#: Questions that one broker is asked at once.
TURNS = 4
#: Seconds that numbers may be old: in a list, and of a topic or group that a query names.
LISTED_S, NAMED_S = 15.0, 1.0

T = TypeVar("T")


#: The settings of the topics of users by broker, by the names that PopMQ has for them, sorted.
TopicTable = dict[str, dict[str, TopicConfig]]
#: By the name that brokers have for a topic: the offset that a group reads next in each queue.
GroupTable = dict[str, dict[QueuePlace, int]]
#: One key for all topics.
_ALL = ""


class Counts:
    """Numbers that brokers keep, remembered for some seconds. Names are those of the brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._at: dict[str, list[str]] = {}
        self._topics = Remembered[str, TopicTable](self._read_topics)
        self._ends = Remembered[str, dict[QueuePlace, Ends]](self._read_ends)
        self._behind = Remembered[str, GroupTable](self._read_behind)

    async def topics(self) -> TopicTable:
        """All topics that are shown. Raises Refused."""
        return await self._topics.get(_ALL, LISTED_S)

    def forget_topics(self) -> None:
        """One was made, changed or deleted."""
        self._topics.forget(_ALL)

    async def ends(self, topic: str, within_s: float, at: Iterable[str] = ()) -> dict[QueuePlace, Ends]:
        """The ends of each queue whose broker answers; empty if there is no such topic. Raises Refused.

        `at`: the brokers that have it, as a caller has just learnt; none: as name servers say.
        """
        if brokers := sorted(at):
            self._at[topic] = brokers
        return await self._ends.get(topic, within_s)

    async def behind(self, group: str, within_s: float) -> GroupTable:
        """The positions of a group in each topic where it has one. Raises Refused."""
        return await self._behind.get(group, within_s)

    async def readers(self, topic: str) -> set[str]:
        """The groups that have a position in a topic. Raises Refused."""
        found = await self._of_each(await self._brokers.having(topic), groups.groups_of_topic(topic), _groups)
        return {group for listed in found.values() for group in listed}

    async def _read_topics(self, _: str) -> TopicTable:
        """Lets other calls run after each piece: thousands of topics take long."""
        masters = await self._brokers.masters()
        found = await self._of_each(masters, topics.all_topics(), topics.topic_pieces)
        of_servers = [*masters, await self._brokers.cluster_name()]
        table, refused = TopicTable(), None
        for broker, pieces in found.items():
            try:
                for some in pieces:
                    for name in names.shown_topics(some, of_servers):
                        table.setdefault(name, {})[broker] = some[names.broker_topic(name)]
                    await pause(0)
            except RemotingError as error:
                refused = refusal(error, Asked(broker))
        if refused is not None and not table:
            raise refused
        return dict(sorted(table.items(), key=operator.itemgetter(0)))

    async def _read_ends(self, topic: str) -> dict[QueuePlace, Ends]:
        at = self._at.pop(topic, None) or await self._brokers.having(topic)
        found = await self._of_each(at, topics.topic_stats(topic), _queues)
        return {
            QueuePlace(broker, queue_id): Ends(row["minOffset"], max(row["minOffset"], row["maxOffset"]))
            for broker, table in found.items()
            for (_, _, queue_id), row in table.items()
        }

    async def _read_behind(self, group: str) -> GroupTable:
        found = await self._of_each(await self._brokers.masters(), groups.group_stats(group), topics.queue_table)
        table: GroupTable = {}
        for broker, rows in found.items():
            for (topic, _, queue_id), row in rows.items():
                table.setdefault(topic, {})[QueuePlace(broker, queue_id)] = row["consumerOffset"]
        return table

    async def _of_each(self, brokers: Iterable[str], ask: Request, read: Callable[[Response], T]) -> dict[str, T]:
        """The answers of the brokers that answer. Raises Refused if there are brokers and none answers."""

        async def one(broker: str) -> T | Refused:
            async with self._turns.setdefault(broker, asyncio.Semaphore(TURNS)):
                try:
                    return await self._brokers.call(Asked(broker), ask, read)
                except Refused as refused:
                    return refused

        asked = list(brokers)
        answers = dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))
        found = {broker: answer for broker, answer in answers.items() if not isinstance(answer, Refused)}
        return found or whole(answers)

    def close(self) -> None:
        """Ends what is being read."""
        for each in (self._topics, self._ends, self._behind):
            each.close()


def _queues(answer: Response) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The rows of a topic; none if it was deleted a moment ago."""
    return topics.queue_table(answer) if answer.code != ResponseCode.TOPIC_NOT_EXIST else {}


def _groups(answer: Response) -> list[str]:
    return bodies.names(answer.expect(), "groupList")
