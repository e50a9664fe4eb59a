"""PopMQ through its Python SDK, which joins sends of several tasks into one request."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import popmq
from bench.peers.drivers.legs import LEASE_S, Options
from popmq_server.embedded_broker import EmbeddedBroker

GROUP = "bench"
#: Seconds that a pop waits for a message.
WAIT_S = 1.0


class PopMQ:
    """Tasks that share an AsyncClient."""

    def __init__(self, options: Options) -> None:
        self._options, self._topic = options, options.topic

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with popmq.AsyncClient(self._options.endpoint) as self._client:
            yield

    async def prepare(self, topics: Sequence[str]) -> None:
        for topic in topics:
            await self._client.topics.create(topic)
        await self._client.groups.create(GROUP)

    async def send(self) -> int:
        messages = [popmq.Message(text) for text in self._options.texts()]
        await self._client.send(self._topic, messages if len(messages) > 1 else messages[0])
        return len(messages)

    async def receive(self) -> int:
        most = self._options.batch
        deliveries = await self._client.pop(self._topic, GROUP, max_messages=most, invisible=LEASE_S, wait=WAIT_S)
        if deliveries:
            await self._client.ack(deliveries)
        return len(deliveries)


class EmbeddedPopMQ(PopMQ):
    """The same, with the broker in this process: the endpoint is its data folder."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        with EmbeddedBroker(Path(self._options.endpoint)) as broker:
            self._options = replace(self._options, endpoint=broker.endpoint)
            async with super().opened():
                yield
