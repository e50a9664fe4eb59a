"""Peek: what a group would get next, of all brokers (200052), in the order of its storing.

    a broker's messages, PEEKED at most ─┐
    another one's                        ├─▶ merged by store time ─▶ the filter's, without what is not for this group
    …                                    ┘

Brokers know no filter here, and show the retries of a group under their own topic only now and then: they are left out.
"""

import asyncio

from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.requests import popping
from popmq_server.cluster import names
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.pulling.pulls import refuse_lite
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import Peek, ReadRow
from popmq_server.values.filters import filter as filters

#: Messages of one broker, as of one pop.
PEEKED = popping.MESSAGES_MAX


class Peeks:
    """Reads the next messages of a group without a lease."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts = shared.layouts

    async def peek(self, query: Peek) -> list[ReadRow]:
        """Raises Refused; UNAVAILABLE if a broker does not answer, whose messages might be the next."""
        topic = await self._topics.get(query.topic)
        group = await self._groups.get(query.group)
        refuse_lite(topic)
        wanted = filters.make(*query.filter or ("", ""))
        route = await self._topics.route(query.topic)
        known = names.broker_group(group.name)
        brokers = [broker for broker, queues in sorted(route.queues.items()) if queues.is_readable]
        request = popping.peek(topic.broker_name, known, PEEKED)
        answers = await asyncio.gather(
            *(
                self._brokers.call(Asked(broker, topic.name, group.name), request, popping.messages)
                for broker in brokers
            )
        )
        found = [(broker, message) for broker, each in zip(brokers, answers, strict=True) for message in each]
        found.sort(key=lambda pair: (pair[1].stored_ms, pair[0], pair[1].queue_id, pair[1].queue_offset))
        rows, bytes_left = list[ReadRow](), query.bytes_max
        for broker, message in found:
            said = properties.read(message.properties)
            data = message_bytes(message, said)
            theirs = message.topic != topic.broker_name or own.is_for_another(said, group.name)
            if theirs or not wanted.matches(data):
                continue
            if len(rows) == query.messages_max or (rows and len(data) > bytes_left):
                break
            bytes_left -= len(data)
            rows.append(await self._row(topic, broker, message, data))
        return rows

    async def _row(self, topic: KnownTopic, broker: str, message: StoredMessage, data: bytes) -> ReadRow:
        number = await self._layouts.number(topic, broker, message.queue_id)
        return data, message.stored_ms, number, message.queue_offset, message.reconsume_times + 1


BY_PEEKS = Peek.awaited_by(Peeks.peek)
