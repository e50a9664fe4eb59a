"""Calls of grpcio's client: all four kinds, deadlines, cancellation, metadata, gzip, sizes, the end of the server."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from popmq_http2 import Server, frames
from popmq_http2.frames import U32
from tests.http2.conftest import Echo, Serve
from tests.http2.frame_client import WAIT_S, FrameClient

MIB = 1 << 20


@pytest_asyncio.fixture
async def served(serve: Serve) -> tuple[Server, int]:
    return await serve(message_bytes=20 * MIB)


@pytest_asyncio.fixture
async def channel(served: tuple[Server, int]) -> AsyncIterator[Any]:
    options = (("grpc.max_receive_message_length", -1),)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served[1]}", options) as channel:
        yield channel


def unary(channel: Any, name: str) -> Any:
    return channel.unary_unary(f"/t.Echo/{name}")


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 65_535, 3 * MIB, 20 * MIB])
async def test_a_message_of_any_size_comes_back_as_it_was(channel: Any, size: int) -> None:
    message = bytes(number % 251 for number in range(min(size, 1000))) * (size // 1000 + 1)
    assert await unary(channel, "say")(message[:size]) == message[:size]


async def test_a_message_that_is_too_large_is_refused_and_the_connection_goes_on(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(channel, "say")(b"x" * (20 * MIB + 1))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await unary(channel, "say")(b"next") == b"next"


async def test_many_calls_at_a_time_get_their_own_answers(channel: Any) -> None:
    messages = [b"%d" % number for number in range(500)]
    assert await asyncio.gather(*(unary(channel, "say")(message) for message in messages)) == messages


async def test_streams_of_all_kinds(channel: Any) -> None:
    many = [message async for message in channel.unary_stream("/t.Echo/many")(b"x")]
    assert many == [b"%d x" % number for number in range(34)]
    assert await channel.stream_unary("/t.Echo/count")(iter([b"a"] * 1000)) == b"1000"
    large = [bytes([number]) * MIB for number in range(8)]
    back = channel.stream_stream("/t.Echo/back")(iter(large))
    assert dict(list(await back.initial_metadata())) == {"hello": "there"}
    assert [message async for message in back] == large


async def test_metadata_goes_both_ways_bytes_included(channel: Any, echo: Echo) -> None:
    call = unary(channel, "say")(b"x", metadata=(("who", "me"), ("raw-bin", b"\0\xfe\xff")))
    assert await call == b"x"
    assert dict(list(await call.trailing_metadata())) == {"seen": "yes", "seen-bin": b"\0\xff"}
    assert (echo.metadata["who"], echo.metadata["raw-bin"]) == ("me", b"\0\xfe\xff")
    assert echo.ended == ["/t.Echo/say"]


async def test_compressed_requests_are_taken(channel: Any) -> None:
    message = b"again and " * 10_000
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        assert await unary(channel, "say")(message, compression=compression) == message


async def test_a_refusal_carries_its_code_message_and_metadata(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(channel, "fail")(b"x")
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == "ßo not"
    assert ("why-bin", b"\x01") in tuple(refused.value.trailing_metadata())


async def test_a_handler_that_raises_ends_its_call_and_no_other(channel: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(channel, "fail")(b"")
    assert refused.value.code() is grpc.StatusCode.UNKNOWN
    assert "a bug" not in (refused.value.details() or "")
    assert "the handler of /t.Echo/fail raised" in caplog.text
    assert await unary(channel, "say")(b"next") == b"next"


async def test_metadata_that_cannot_be_sent_end_the_call_with_internal(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(channel, "fail")(b"metadata")
    assert refused.value.code() is grpc.StatusCode.INTERNAL


async def test_an_unknown_method_is_unimplemented(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await unary(channel, "nothing")(b"x" * MIB)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_deadline_cancels_the_handler(channel: Any, echo: Echo) -> None:
    call = unary(channel, "wait")(b"x", timeout=1)  # enough for a loaded machine to bring the call to its handler
    await echo.entered.acquire()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(echo.cancelled.acquire(), 20)


async def test_a_caller_who_goes_away_cancels_the_handler(channel: Any, echo: Echo) -> None:
    call = unary(channel, "wait")(b"x")
    await echo.entered.acquire()
    call.cancel()
    await asyncio.wait_for(echo.cancelled.acquire(), 20)


async def test_a_client_that_reads_nothing_stops_the_handler_that_writes_to_it(channel: Any, echo: Echo) -> None:
    call = channel.unary_stream("/t.Echo/endless")(b"x" * 100_000)
    assert len(await call.read()) == 100_000
    written = 0
    while await _soon(echo.entered.acquire()):
        written += 1
    assert written < 600  # some 60 MB: the windows of client and server, and what sockets take
    call.cancel()
    await asyncio.wait_for(echo.cancelled.acquire(), 20)


async def test_a_handler_hears_its_client_while_it_writes_a_large_message(channel: Any, echo: Echo) -> None:
    """Its writer waits until the client has taken enough, and its reader for the next message, at the same time."""
    echo.times = 600_000
    call = channel.stream_stream("/t.Echo/talk")()
    await call.write(b"a")
    assert len(await asyncio.wait_for(call.read(), 20)) == 600_000
    echo.times = 1
    for said in (b"b", b"c"):
        await call.write(said)
        assert await asyncio.wait_for(call.read(), 20) == said
    await call.write(b"bye")
    assert await asyncio.wait_for(call.read(), 20) is grpc.aio.EOF


async def _soon(waiting: Any) -> bool:
    try:
        await asyncio.wait_for(waiting, 1)
    except TimeoutError:
        return False
    return True


async def test_a_stop_lets_running_calls_end_and_takes_no_new_ones(serve: Serve, echo: Echo) -> None:
    server, port = await serve()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        running = asyncio.ensure_future(unary(channel, "wait")(b"last"))
        await echo.entered.acquire()
        stopping = asyncio.ensure_future(server.stop(20))
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(channel, "say")(b"new")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        echo.gate.set()
        assert await running == b"last"
        await stopping


@pytest.mark.mechanism("H.32")
async def test_a_call_that_was_sent_before_its_client_knew_of_the_stop_is_served(serve: Serve) -> None:
    """grpcio repeats a call above the last stream of a GOAWAY at once, on this connection, and may lose it for good."""
    server, port = await serve()
    client = await FrameClient.connect(port)
    await client.greet()
    stopping = asyncio.create_task(server.stop(WAIT_S))
    first = await client.until(frames.GOAWAY)
    assert U32.unpack_from(first.payload)[0] == frames.WINDOW_MAX
    client.ask(1, "say")
    assert await client.status(1) == "0"
    client.send(frames.PING, frames.ACK, payload=b"going...")
    second = await client.until(frames.GOAWAY)
    assert U32.unpack_from(second.payload)[0] == 1
    await asyncio.wait_for(stopping, WAIT_S)
    client.close()


async def test_a_call_after_the_last_of_a_stop_is_refused_so_that_its_client_repeats_it(
    serve: Serve, echo: Echo
) -> None:
    server, port = await serve()
    client = await FrameClient.connect(port)
    await client.greet()
    client.ask(1, "wait")
    await echo.entered.acquire()
    stopping = asyncio.create_task(server.stop(WAIT_S))
    client.send(frames.PING, frames.ACK, payload=(await client.until(frames.PING)).payload)
    await client.until(frames.GOAWAY)
    client.ask(3, "say")
    assert U32.unpack((await client.until(frames.RST_STREAM, 3)).payload)[0] == frames.REFUSED_STREAM
    echo.gate.set()
    assert await client.status(1) == "0"
    await asyncio.wait_for(stopping, WAIT_S)
    client.close()


async def test_a_stop_waits_for_no_client_that_has_reset_its_last_call(serve: Serve, echo: Echo) -> None:
    server, port = await serve()
    client = await FrameClient.connect(port)
    await client.greet()
    client.ask(1, "wait")
    await echo.entered.acquire()
    stopping = asyncio.create_task(server.stop(3_600.0))
    client.send(frames.PING, frames.ACK, payload=(await client.until(frames.PING)).payload)
    await client.until(frames.GOAWAY)
    client.send(frames.RST_STREAM, 0, 1, U32.pack(frames.CANCEL))
    await asyncio.wait_for(stopping, WAIT_S)
    client.close()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_as_the_server_stops_is_closed(serve: Serve, turns: int) -> None:
    """Whichever of the turns that asyncio needs for a new connection comes before the stop."""
    server, port = await serve()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop(20)
        with contextlib.suppress(ConnectionResetError):  # what the loop had not accepted, the system refuses
            while late.recv(4096):
                pass


async def test_a_stop_without_grace_ends_running_calls(served: tuple[Server, int], channel: Any, echo: Echo) -> None:
    running = asyncio.ensure_future(unary(channel, "wait")(b"x"))
    await echo.entered.acquire()
    await served[0].stop(0)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await running
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
