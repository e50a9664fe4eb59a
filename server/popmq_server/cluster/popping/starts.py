"""Where a group begins in a topic that it pops for the first time: its position is written before the first pop.

    Pop ─▶ begin, once for each group and topic ─▶ Positions: 14 of each queue ─▶ none: 30 or 29, and 15, of each queue

By themselves brokers would begin a group that wants the latest messages with the last one that is stored, or with the
first one of a young queue. They do begin one that wants all of them at the first, so that needs no position.
"""

import asyncio
import contextvars
import functools

from popmq_server.cluster.catalog.positions import Positions
from popmq_server.cluster.catalog.topics import KnownTopic, Topics
from popmq_server.cluster.layout import QueuePlace
from popmq_server.values.records import Group

#: A group, the time of its creation, and a topic.
_Key = tuple[str, int, str]


class Starts:
    """Begins groups in topics that they have not read, and remembers which ones have begun."""

    def __init__(self, topics: Topics, positions: Positions) -> None:
        self._topics, self._positions = topics, positions
        self._loop = asyncio.get_running_loop()
        #: By topic: one that is deleted, and made again, has no positions.
        self._begun: dict[str, set[_Key]] = {}
        topics.on_absence = self._absent
        self._beginning: dict[_Key, asyncio.Task[None]] = {}

    async def begin(self, topic: KnownTopic, group: Group) -> None:
        """Raises Refused UNAVAILABLE while a broker of the topic does not answer: it may know where the group is."""
        key = (group.name, group.created_ms, topic.name)
        if group.start_from == "EARLIEST" or key in self._begun.get(topic.name, ()):
            return
        task = self._beginning.get(key)
        if task is None:
            # Without the deadline of the call that happens to come first: others wait for it too.
            task = self._loop.create_task(self._begin(topic, group), context=contextvars.Context())
            self._beginning[key] = task
            task.add_done_callback(functools.partial(self._ended, key))
        await asyncio.shield(task)

    async def _begin(self, topic: KnownTopic, group: Group) -> None:
        route = await self._topics.route(topic.name)
        places = [
            QueuePlace(broker, id) for broker, queues in sorted(route.queues.items()) for id in range(queues.read)
        ]
        await self._positions.begin(topic, group, places)

    def _ended(self, key: _Key, task: asyncio.Task[None]) -> None:
        del self._beginning[key]
        if not task.cancelled() and task.exception() is None:
            self._begun.setdefault(key[2], set()).add(key)

    def _absent(self, topic: str) -> None:
        self._begun.pop(topic, None)
