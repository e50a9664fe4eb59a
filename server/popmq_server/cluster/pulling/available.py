"""WaitAvailable: how many messages a group has before it, and a wait until there are enough.

ready    Σ end − position of the group: what is leased counts as read, and retries are not in it
wait     popping/waits.py while there is none; with some, but too few, a look every PAUSE_S
"""

import asyncio

from popmq_server.clock import pause
from popmq_server.cluster import names
from popmq_server.cluster.catalog.positions import Positions, position
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.popping.waits import LineKey, Waits
from popmq_server.cluster.pulling.pulls import refuse_lite
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import Available, Position, Ready
from popmq_server.contract.deadline import remaining_s
from popmq_server.values import permission
from popmq_server.values.filters import filter as filters
from popmq_server.values.records import Group

PAUSE_S = 0.5


class Availability:
    """Counts the messages that a group has before it, and waits for them."""

    def __init__(self, shared: Shared, positions: Positions, waits: Waits) -> None:
        self._topics, self._groups, self._layouts = shared.topics, shared.groups, shared.layouts
        self._positions, self._waits = positions, waits
        self._loop = asyncio.get_running_loop()

    async def wait(self, command: Available, min_ready: int, wait_ms: int) -> Ready:
        """Raises Refused."""
        left_s = remaining_s()
        until_s = self._loop.time() + min(wait_ms / 1000, max(0.0, (left_s if left_s is not None else 1e9) - 0.5))
        topic = await self._topics.get(command.topic)
        group = await self._groups.get(command.group)
        refuse_lite(topic)
        permission.check_read(group, topic.settings)
        filters.make(*command.filter or ("", ""))
        places = (await self._layouts.of(topic)).places
        known = names.broker_group(group.name)
        brokers = sorted({place.broker for place in places})
        keys = [LineKey(broker, topic.broker_name, known, topic.is_fifo) for broker in brokers]
        told: LineKey | None = None
        while True:
            ready = await self._ready(command, topic, group, places)
            if told is not None:
                self._waits.looked(told, ready.ready, ready.ready)
            if ready.ready >= min_ready or self._loop.time() >= until_s or self._waits.is_closed:
                return ready
            if ready.ready:
                told = None
                await pause(min(PAUSE_S, until_s - self._loop.time()))
            elif (told := await self._waits.wait(keys, until_s)) is None:
                return ready

    async def _ready(
        self, command: Available, topic: KnownTopic, group: Group, places: tuple[QueuePlace, ...]
    ) -> Ready:
        ends = await self._positions.ends(topic, places)
        at = position(await self._positions.committed(topic, group.name, places), ends)
        if at is None:
            at = await self._positions.begin(topic, group, places)
        bounds = {queue: end.most for queue, end in enumerate(ends)}
        upto = bounds if command.upto is None else command.upto.queues
        ready = sum(max(0, min(end.most, upto.get(queue, 0)) - at[queue]) for queue, end in enumerate(ends))
        return Ready(ready, Position(bounds, 0), 0)
