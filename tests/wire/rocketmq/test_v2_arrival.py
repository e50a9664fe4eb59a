"""apache.rocketmq.v2: a delivery under a session lease that was written and does not arrive comes back.

A push consumer that draws a new attempt id for each receive never asks for it again, and its calls renew the lease.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from popmq_http2 import frames
from popmq_http2.frames import U32
from popmq_http2.server.arrivals import PAYLOAD
from popmq_http2.server.connection import Connection
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.options import TRANSPORT
from tests.http2.frame_client import FrameClient
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import PREFIX, V2, bodies, code, message, resource
from tests.wire.stubs import GROUP, Stubs

pytestmark = pytest.mark.skipif(TRANSPORT == "grpcio", reason="grpcio does not tell what arrived")
SECOND = 1_000
CANCEL = 8


class Lossy(FrameClient):
    """The connection of one receive, of the client of `v2`."""

    async def receive(self, v2: V2, **fields: Any) -> None:
        """Asks for messages with auto_renew and reads the whole answer, to the PING after it."""
        pairs = [(":method", "POST"), (":scheme", "http"), (":path", f"{PREFIX}ReceiveMessage"), (":authority", "t")]
        pairs += [("content-type", "application/grpc"), ("te", "trailers"), *v2.headers]
        request = v2.receive_request(auto_renew=True, **fields).SerializeToString()
        self.send(frames.HEADERS, frames.END_HEADERS, 1, self.encoder.encode(pairs))
        self.send(frames.DATA, frames.END_STREAM, 1, b"\0" + U32.pack(len(request)) + request)
        while (await self.until(frames.PING)).payload != PAYLOAD:
            pass

    async def acknowledge(self) -> None:
        self.send(frames.PING, frames.ACK, payload=PAYLOAD)
        await self.alive()


async def lossy(v2: V2) -> Lossy:
    client = await Lossy.connect(int(v2.endpoint.rpartition(":")[2]))
    await client.greet()
    return client


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def beat(v2: V2) -> None:
    v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Parked:
    """Counts the connections whose end the broker has handled."""
    counter, connection_lost = Parked(), Connection.connection_lost

    def counted(self: Connection, error: Exception | None) -> None:
        connection_lost(self, error)
        counter.add()

    monkeypatch.setattr(Connection, "connection_lost", counted)
    return counter


@pytest.mark.promise("uncounted")
def test_a_delivery_lost_with_its_connection_comes_back_at_once_uncounted(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"a"), message(b"b"))

    async def scenario() -> None:
        client = await lossy(v2)
        await client.receive(v2, attempt_id="first")
        client.close()

    run(scenario())
    beat(v2)
    found = v2.receive(poll_ms=10 * SECOND, auto_renew=True, attempt_id="second").messages
    found += v2.receive(auto_renew=True, attempt_id="third").messages
    assert sorted((one.body, one.system_properties.delivery_attempt) for one in found) == [(b"a", 1), (b"b", 1)]


def test_a_lost_delivery_of_a_fifo_topic_frees_its_message_group(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(type="FIFO")
    stubs.create_group(fifo=True)
    for body in (b"a", b"b"):
        v2.send(message(body, message_type=pb.FIFO, message_group="g"))

    async def scenario() -> None:
        client = await lossy(v2)
        await client.receive(v2, batch_size=1)
        client.close()

    run(scenario())
    assert bodies(v2.receive(poll_ms=10 * SECOND, auto_renew=True)) == [b"a", b"b"]


def test_a_delivery_that_arrived_outlives_its_connection(shop: Stubs, v2: V2, clock: FakeClock, lost: Parked) -> None:
    v2.send(message())

    async def scenario() -> None:
        client = await lossy(v2)
        await client.receive(v2)
        await client.acknowledge()
        client.close()

    run(scenario())
    lost.wait_for(1)
    clock.advance(SECOND)
    assert code(v2, auto_renew=True) == "MESSAGE_NOT_FOUND"


def test_a_lost_delivery_is_left_to_the_repeat_of_its_attempt(shop: Stubs, v2: V2, lost: Parked) -> None:
    """The client noticed the end of its connection before the broker did."""
    v2.send(message())

    async def scenario() -> None:
        client = await lossy(v2)
        await client.receive(v2, attempt_id="try")
        found.extend(v2.receive(auto_renew=True, attempt_id="try").messages)
        client.close()

    found: list[pb.Message] = []
    run(scenario())
    lost.wait_for(1)
    assert code(v2, auto_renew=True) == "MESSAGE_NOT_FOUND"
    assert v2.ack(*found).status.code == pb.OK


def test_an_answer_that_the_client_gives_up_comes_back_after_a_pause_and_its_largest_message_counts(
    shop: Stubs, v2: V2, clock: FakeClock
) -> None:
    """Its deadline passed while the answer was under way; or a message is too large for it, and must end some day."""
    v2.send(message(b"a"), message(b"b" * 1000), message(b"c"))

    async def scenario() -> None:
        client = await lossy(v2)
        await client.receive(v2)
        client.send(frames.RST_STREAM, 0, 1, U32.pack(CANCEL))
        await client.acknowledge()
        client.close()

    run(scenario())
    assert code(v2, auto_renew=True) == "MESSAGE_NOT_FOUND"
    clock.advance(SECOND)
    found = v2.receive(poll_ms=10 * SECOND, auto_renew=True).messages
    assert sorted((one.body[:1], one.system_properties.delivery_attempt) for one in found) == [
        (b"a", 1),
        (b"b", 2),
        (b"c", 1),
    ]
