"""Mechanisms of the reference on the client's side that no other test names. Ids are those of mechanisms.md."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC, Connect


class Counted:
    """A plain TCP relay in front of a broker, which counts connections."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._target = host, int(port)
        self.connections = 0
        self._relays: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Counted:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Returns when no socket is open any more: one that outlives its loop is a warning in some later test."""
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        relay = asyncio.current_task()
        assert relay
        self._relays.add(relay)
        upstream, downstream = await asyncio.open_connection(*self._target)
        try:
            await asyncio.gather(self._copy(reader, downstream), self._copy(upstream, writer))
        finally:
            for end in (downstream, writer):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        target.close()


@pytest.mark.mechanism("S3.15")
@pytest.mark.slow
async def test_producers_and_consumers_of_a_client_share_one_connection(
    connect: Connect, client: Any, popmq_broker: Broker, guard: Any
) -> None:
    """Waiting consumers, heartbeats and sends are calls on one connection, made once."""
    await client.groups.create("audit")
    async with Counted(popmq_broker.endpoint) as relay:
        shared = connect(relay.endpoint)
        consumers = [shared.consume(TOPIC, group) for group in (GROUP, "audit")]
        waiting = [asyncio.ensure_future(consumer.__anext__()) for consumer in consumers]
        await asyncio.gather(*(shared.send(TOPIC, b"x") for _ in range(10)))
        for delivery in await asyncio.gather(*waiting):
            async with guard(delivery):
                assert delivery.body == b"x"
        for consumer in consumers:
            await consumer.close()
        assert relay.connections == 1
        await shared.close()
