"""Layouts of topics at the name servers (layout.py): read from all, written to all, remembered while they are enough.

A topic of any type but FIFO gets its first layout from its route, at the first call that needs one. One of a FIFO topic
is written when the topic is created; without it nobody knows the order that message groups had: UNAVAILABLE. Name
servers that were replaced get back what this gateway remembers.
"""

from typing import NamedTuple

from popmq_remoting import Route
from popmq_remoting.requests import name_server
from popmq_server.cluster import layout, names
from popmq_server.cluster.brokers import Brokers
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import Layout
from popmq_server.cluster.remembered import Remembered
from popmq_server.errors import unavailable


class _Key(NamedTuple):
    name: str
    broker_name: str
    is_fifo: bool


def _key(topic: KnownTopic) -> _Key:
    return _Key(topic.name, topic.broker_name, topic.is_fifo)


class Layouts:
    """By the name that PopMQ has for a topic."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._known = Remembered[_Key, Layout](self._read)

    async def of(self, topic: KnownTopic) -> Layout:
        """Raises Refused UNAVAILABLE, TOPIC_NOT_FOUND."""
        return await self._known.get(_key(topic))

    async def number(self, topic: KnownTopic, broker: str, queue_id: int) -> int:
        """The number of a queue that a broker named. Raises Refused as `of`."""
        found = (await self.of(topic)).number(broker, queue_id)
        if found is None:  # added since
            found = (await self._known.anew(_key(topic))).number(broker, queue_id)
        if found is None:
            raise unavailable(f"the name servers do not know queue {queue_id} of topic {topic.name!r} at {broker} yet")
        return found

    async def write(self, topic: KnownTopic, wanted: Layout) -> None:
        """Writes it to all name servers. Raises Refused UNAVAILABLE if one did not take it."""
        await self._write(_key(topic), wanted)

    async def _write(self, key: "_Key", wanted: Layout) -> None:
        request = name_server.put_kv(layout.namespace(key.is_fifo), key.broker_name, wanted.text())
        await self._brokers.written(f"the layout of topic {key.name!r}", request)
        self._known.put(key, wanted)

    async def remove(self, name: str) -> None:
        """The topic is deleted. A name server that does not answer keeps it until a topic of this name is created."""
        for is_fifo in (False, True):
            key = _Key(name, names.broker_topic(name), is_fifo)
            request = name_server.delete_kv(layout.namespace(is_fifo), key.broker_name)
            await self._brokers.cluster.name_servers.tell_all(request, self._brokers.until_s())
            self._known.forget(key)

    async def stored(self, topic: KnownTopic) -> layout.Agreed | None:
        """What the name servers have; None: nothing. Raises Refused UNAVAILABLE if they differ, or none answers."""
        return await self._stored(_key(topic))

    async def _stored(self, key: "_Key") -> layout.Agreed | None:
        request = name_server.get_kv(layout.namespace(key.is_fifo), key.broker_name)
        answers = await self._brokers.cluster.name_servers.tell_all(request, self._brokers.until_s())
        return layout.agreed(key.name, layout.kept(key.name, answers))

    async def _read(self, key: "_Key") -> Layout:
        agreed = await self._stored(key)
        queues = queues_of(await self._brokers.route(key.name))
        known = self._known.known(key)
        if agreed is not None:
            wanted, everywhere = agreed.layout.appended(queues), agreed.everywhere and agreed.layout
        elif known is not None:
            wanted, everywhere = known.appended(queues), False
        elif key.is_fifo:
            raise layout.missing(key.name)
        else:
            wanted, everywhere = layout.of_route(queues), False
        if wanted != everywhere:
            await self._write(key, wanted)
        return wanted

    def close(self) -> None:
        """Ends what is being read."""
        self._known.close()


def queues_of(route: Route) -> dict[str, int]:
    """How many queues each broker has: those that can be read may be more than those that are written to."""
    return {broker: max(queues.read, queues.write) for broker, queues in route.queues.items()}
