"""Whether an answer arrived: a PING follows it, whose ACK comes after the client has read it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from popmq_http2 import Arrival, frames
from popmq_http2.frames import U32
from popmq_http2.server import arrivals
from popmq_http2.server.arrivals import PAYLOAD
from tests.http2.conftest import Echo, Serve
from tests.http2.frame_client import WAIT_S, Frame, FrameClient

Connect = Callable[..., Awaitable[FrameClient]]
CANCEL = 8


async def answered(client: FrameClient, stream_id: int, message: bytes = b"m") -> None:
    """Asks, and reads the whole answer."""
    client.ask(stream_id, "told", message)
    assert await client.status(stream_id) == "0"


async def asked(client: FrameClient) -> Frame:
    """The PING after an answer."""
    while (got := await client.until(frames.PING)).payload != PAYLOAD:
        pass
    return got


def acknowledge(client: FrameClient) -> None:
    client.send(frames.PING, frames.ACK, payload=PAYLOAD)


async def told(echo: Echo) -> tuple[bytes, Arrival]:
    return await asyncio.wait_for(echo.arrivals.get(), WAIT_S)


@pytest.mark.asyncio
async def test_an_answer_has_arrived_when_the_ping_after_it_is_answered(connect: Connect, echo: Echo) -> None:
    client = await connect()
    await answered(client, 1)
    await asked(client)
    assert echo.arrivals.empty()
    acknowledge(client)
    assert await told(echo) == (b"m", Arrival.ARRIVED)


@pytest.mark.asyncio
async def test_answers_that_end_while_a_ping_is_open_share_the_next_one(connect: Connect, echo: Echo) -> None:
    client = await connect()
    await answered(client, 1, b"a")
    await asked(client)
    await answered(client, 3, b"b")
    await answered(client, 5, b"c")
    acknowledge(client)
    assert await told(echo) == (b"a", Arrival.ARRIVED)
    await asked(client)
    acknowledge(client)
    assert [await told(echo), await told(echo)] == [(b"b", Arrival.ARRIVED), (b"c", Arrival.ARRIVED)]
    await client.alive()  # no third PING came before its answer
    assert echo.arrivals.empty()


@pytest.mark.asyncio
async def test_an_answer_is_lost_with_the_connection_before_its_ping_is_answered(connect: Connect, echo: Echo) -> None:
    client = await connect()
    await answered(client, 1, b"a")
    await answered(client, 3, b"b")
    client.close()
    assert [await told(echo), await told(echo)] == [(b"a", Arrival.LOST), (b"b", Arrival.LOST)]


@pytest.mark.asyncio
async def test_an_answer_is_refused_by_a_reset_before_its_ping_is_answered(connect: Connect, echo: Echo) -> None:
    client = await connect()
    for number, name in enumerate((b"a", b"b")):
        await answered(client, 2 * number + 1, name)
    for stream_id in (3, 1):
        client.send(frames.RST_STREAM, 0, stream_id, U32.pack(CANCEL))
    assert [await told(echo), await told(echo)] == [(b"b", Arrival.REFUSED), (b"a", Arrival.REFUSED)]
    acknowledge(client)
    await client.alive()
    assert echo.arrivals.empty()


@pytest.mark.asyncio
async def test_a_reset_without_an_error_after_the_answer_refuses_nothing(connect: Connect, echo: Echo) -> None:
    """Some clients close streams in this way that they have read to the end."""
    client = await connect()
    await answered(client, 1)
    client.send(frames.RST_STREAM, 0, 1, U32.pack(frames.NO_ERROR))
    acknowledge(client)
    assert await told(echo) == (b"m", Arrival.ARRIVED)


@pytest.mark.asyncio
@pytest.mark.parametrize("reset", [True, False])
async def test_an_answer_of_which_a_part_waits_for_the_window_has_not_arrived(
    connect: Connect, echo: Echo, reset: bool
) -> None:
    client, echo.times = await connect(), 70_000
    client.ask(1, "told", b"x")
    await client.until(frames.DATA)
    await client.alive()
    if reset:
        client.send(frames.RST_STREAM, 0, 1, U32.pack(CANCEL))
    else:
        client.close()
    assert await told(echo) == (b"x", Arrival.REFUSED if reset else Arrival.LOST)


@pytest.mark.asyncio
async def test_an_answer_that_is_not_read_before_its_deadline_is_refused(connect: Connect, echo: Echo) -> None:
    client, echo.times = await connect(), 70_000
    client.ask(1, "told", b"x", grpc_timeout="50m")
    assert await told(echo) == (b"x", Arrival.REFUSED)


@pytest.mark.asyncio
async def test_a_client_that_says_nothing_after_an_answer_is_disconnected_in_time(connect: Connect, echo: Echo) -> None:
    """It was heard of too short a time ago for the PING of a silent connection."""
    client = await connect(handshake_s=0.1, keepalive_s=WAIT_S, keepalive_timeout_s=0.05)
    await answered(client, 1)
    assert await told(echo) == (b"m", Arrival.LOST)


@pytest.mark.asyncio
async def test_a_server_that_stops_waits_for_the_answers_that_it_follows(serve: Serve, echo: Echo) -> None:
    server, port = await serve()
    client = await FrameClient.connect(port)
    await client.greet()
    await answered(client, 1)
    stopping = asyncio.create_task(server.stop(WAIT_S))
    await client.until(frames.GOAWAY)
    client.send(frames.PING, frames.ACK, payload=(await client.until(frames.PING)).payload)  # of the GOAWAY
    await client.until(frames.GOAWAY)
    acknowledge(client)
    assert await told(echo) == (b"m", Arrival.ARRIVED)
    await asyncio.wait_for(stopping, WAIT_S)
    client.close()


@pytest.mark.asyncio
async def test_a_client_that_answers_no_ping_is_disconnected_though_it_is_heard_of(
    connect: Connect, echo: Echo
) -> None:
    client = await connect(handshake_s=0.05, keepalive_s=WAIT_S, keepalive_timeout_s=0.5, stalled_s=0.2)
    await answered(client, 1)

    async def talk() -> None:
        client.send(frames.WINDOW_UPDATE, payload=U32.pack(1 << 30))
        for stream_id in itertools.count(3, 2):
            client.ask(stream_id, "say")
            await client.status(stream_id)

    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await asyncio.wait_for(talk(), WAIT_S)
    assert await told(echo) == (b"m", Arrival.LOST)


@pytest.mark.asyncio
async def test_the_answers_that_are_followed_are_bounded(
    connect: Connect, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "FOLLOWED_MAX", 1)
    client = await connect()
    for number, name in enumerate((b"a", b"b", b"c")):
        await answered(client, 2 * number + 1, name)
    assert await told(echo) == (b"c", Arrival.ARRIVED)
    client.close()
    assert [await told(echo), await told(echo)] == [(b"a", Arrival.LOST), (b"b", Arrival.LOST)]


@pytest.mark.asyncio
async def test_acknowledging_arrivals_costs_a_client_no_points(connect: Connect, echo: Echo) -> None:
    client = await connect(budget=20, budget_per_s=0)
    for number in range(100):
        await answered(client, 2 * number + 1)
        await asked(client)
        acknowledge(client)
        await told(echo)
    for _ in range(100):
        acknowledge(client)
    assert await client.gone() == frames.ENHANCE_YOUR_CALM
