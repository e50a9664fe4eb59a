"""Locks of queues: for a client, for 60 s, in the memory of each queue's broker (41, 42).

They are locks of `popmq_lock_` and the group: while a group itself holds one, its broker moves what is sent to
`%RETRY%group` to the dead letters. What was locked here is remembered for its time, for the answers and for a goodbye.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterable

from popmq_remoting.requests import members
from popmq_remoting.requests.members import BrokerQueue
from popmq_server.cluster import names
from popmq_server.cluster.brokers import succeeded, whole
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import Layout
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import LockQueues, UnlockQueues
from popmq_server.contract.commands.sessions import LOCK_MS
from popmq_server.errors import Refused

#: (group, topic, client)
_Holder = tuple[str, str, str]


class Locks:
    """Locks queues at their brokers."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts = shared.layouts
        self._loop = asyncio.get_running_loop()
        #: When each lock is over; who locked the longest ago first.
        self._held: OrderedDict[_Holder, dict[int, float]] = OrderedDict()

    async def lock(self, asked: LockQueues) -> list[int]:
        """All that the client has locked here and that last. Raises Refused if no broker of the queues answers."""
        topic, layout = await self._named(asked)
        by_broker = _by_broker(topic, layout, asked.queues)
        group = names.lock_group(names.broker_group(asked.group))
        until_s = self._loop.time() + LOCK_MS / 1000
        answers = await self._brokers.of_each(
            by_broker,
            lambda broker: members.lock_queues(group, asked.client, by_broker[broker]),
            members.locked,
            Asked("", asked.topic, asked.group),
        )
        if all(isinstance(answer, Refused) for answer in answers.values()):
            whole(answers)
        holder = asked.group, asked.topic, asked.client
        locked = {each for answer in answers.values() if not isinstance(answer, Refused) for each in answer}
        numbers = {layout.number(each.broker, each.queue_id) for each in locked}
        held = {queue: over_s for queue, over_s in self._lasting(holder).items() if queue not in asked.queues}
        held |= {queue: until_s for queue in asked.queues if queue in numbers}
        self._held[holder] = held
        self._held.move_to_end(holder)
        self._forget_over()
        return sorted(held)

    async def unlock(self, asked: UnlockQueues) -> None:
        """Without queues all of the topic's: brokers unlock only what this client holds. Raises Refused."""
        topic, layout = await self._named(asked)
        queues = asked.queues or range(len(layout))
        by_broker = _by_broker(topic, layout, queues)
        group = names.lock_group(names.broker_group(asked.group))
        answers = await self._brokers.of_each(
            by_broker,
            lambda broker: members.unlock_queues(group, asked.client, by_broker[broker]),
            succeeded,
            Asked("", asked.topic, asked.group),
        )
        holder = asked.group, asked.topic, asked.client
        self._held[holder] = {each: over_s for each, over_s in self._lasting(holder).items() if each not in queues}
        whole(answers)

    async def leave(self, group: str, client: str) -> None:
        """Unlocks what a client locked here, so that its successors need not wait."""
        for holder in [each for each in self._held if (each[0], each[2]) == (group, client)]:
            if queues := tuple(self._lasting(holder)):
                with contextlib.suppress(Refused):  # they end by themselves
                    await self.unlock(UnlockQueues(holder[1], group, client, queues))
            self._held.pop(holder, None)

    async def _named(self, asked: LockQueues | UnlockQueues) -> tuple[KnownTopic, Layout]:
        topic = await self._topics.get(asked.topic)
        await self._groups.get(asked.group)
        return topic, await self._layouts.of(topic)

    def _lasting(self, holder: _Holder) -> dict[int, float]:
        now_s = self._loop.time()
        return {queue: over_s for queue, over_s in self._held.get(holder, {}).items() if over_s > now_s}

    def _forget_over(self) -> None:
        while self._held and not self._lasting(next(iter(self._held))):
            self._held.popitem(last=False)


def _by_broker(topic: KnownTopic, layout: Layout, queues: Iterable[int]) -> dict[str, list[BrokerQueue]]:
    """Raises Refused INVALID_FIELD for a queue that the topic does not have."""
    found: dict[str, list[BrokerQueue]] = {}
    for index, queue in enumerate(queues):
        place = layout.place(topic.name, queue, f"queues[{index}]")
        found.setdefault(place.broker, []).append(BrokerQueue(topic.broker_name, place.broker, place.queue_id))
    return found


BY_LOCKS = LockQueues.awaited_by(Locks.lock) | UnlockQueues.awaited_by(Locks.unlock)
