"""What a hostile or broken client can make a connection do: nothing that lasts, and nothing to its neighbours."""

import asyncio
import socket
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from harness.attacks import GREETING
from popmq_http2 import Server, frames
from popmq_http2.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    HEADERS,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    U32,
    WINDOW_UPDATE,
)
from popmq_http2.hpack import encode, remembered
from tests.http2.conftest import Echo, Serve
from tests.http2.frame_client import FrameClient
from tests.http2.sequences import call
from tests.http2.wire import Wire

Connect = Callable[..., Awaitable[FrameClient]]


async def test_a_flood_of_resets_ends_the_connection(connect: Connect) -> None:
    client = await connect(budget=200, budget_per_s=1)
    for number in range(1, 1001, 2):
        client.ask(number)
        client.send(RST_STREAM, 0, number, U32.pack(CANCEL))
    assert await client.gone() == ENHANCE_YOUR_CALM


async def test_an_honest_client_may_cancel_for_as_long_as_it_works(connect: Connect) -> None:
    client = await connect(budget=100, budget_per_s=1)
    for number in range(1, 2001, 2):
        if number % 5 == 1:
            client.ask(number)
            client.send(RST_STREAM, 0, number, U32.pack(CANCEL))
        else:
            client.ask(number, "say")
            assert await client.status(number) == "0"
    await client.alive()


@pytest.mark.parametrize(
    ("kind", "flags", "payload"),
    [(PING, 0, b"12345678"), (SETTINGS, 0, b""), (WINDOW_UPDATE, 0, U32.pack(1)), (99, 0, b"")],
)
async def test_a_flood_of_frames_that_ask_for_nothing_ends_the_connection(
    connect: Connect, kind: int, flags: int, payload: bytes
) -> None:
    client = await connect(budget=200, budget_per_s=1)
    for _ in range(500):
        client.send(kind, flags, 0, payload)
    assert await client.gone() == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("data", [b"", b"\0"])
async def test_a_flood_of_empty_and_tiny_data_ends_the_connection(connect: Connect, data: bytes) -> None:
    client = await connect(budget=200, budget_per_s=1)
    client.open(1, "count")
    for _ in range(500):
        client.send(DATA, 0, 1, data)
    assert await client.gone() == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("piece", [b"", b"\0" * 5000])
async def test_a_header_block_without_end_ends_the_connection(connect: Connect, piece: bytes) -> None:
    client = await connect()
    client.send(HEADERS, 0, 1, client.head("say"))
    for _ in range(100):
        client.send(CONTINUATION, 0, 1, piece)
    assert await client.gone() == ENHANCE_YOUR_CALM


async def test_headers_that_are_larger_than_is_allowed_end_the_connection(connect: Connect) -> None:
    client = await connect(headers_bytes=2000)
    client.open(1, "say", large="x" * 3000)
    assert await client.gone() == ENHANCE_YOUR_CALM


async def test_calls_above_the_number_that_is_allowed_are_refused_and_the_others_go_on(
    connect: Connect, echo: Echo
) -> None:
    client = await connect(streams=2)
    for stream_id in (1, 3, 5):
        client.ask(stream_id)
    refused = await client.until(RST_STREAM)
    assert (refused.stream_id, U32.unpack(refused.payload)[0]) == (5, REFUSED_STREAM)
    echo.gate.set()
    assert [await client.status(1), await client.status(3)] == ["0", "0"]


@pytest.mark.mechanism("H.09")
async def test_a_handler_that_runs_on_after_its_reset_counts_among_the_calls(serve: Serve, echo: Echo) -> None:
    """Else resets would begin any number of them."""
    _, port = await serve(streams=1)
    client = await FrameClient.connect(port)
    await client.greet()
    client.ask(1)
    await echo.entered.acquire()
    client.send(RST_STREAM, 0, 1, U32.pack(CANCEL))
    client.ask(3)
    refused = await client.until(RST_STREAM, 3)
    assert U32.unpack(refused.payload)[0] == REFUSED_STREAM
    await echo.cancelled.acquire()
    await client.alive()
    client.ask(5, "say")
    assert await client.status(5) == "0"
    client.close()


async def test_a_call_that_is_reset_before_its_handler_begins_does_not_count_for_ever(serve: Serve) -> None:
    _, port = await serve(streams=1)
    client = await FrameClient.connect(port)
    await client.greet()
    for number in (1, 3, 5):
        whole: list[bytes] = []
        with pytest.MonkeyPatch.context() as patch:  # all frames in one piece, which the server reads at once
            patch.setattr(client, "write", whole.append)
            client.ask(number)
            client.send(RST_STREAM, 0, number, U32.pack(CANCEL))
        client.write(b"".join(whole))
        await client.alive()
    client.ask(7, "say")
    assert await client.status(7) == "0"
    client.close()


@pytest.mark.mechanism("H.10")
async def test_unread_requests_are_bounded_over_all_connections(serve: Serve, echo: Echo) -> None:
    _, port = await serve(requests_bytes=100_000, stream_window=80_000, connection_window=1 << 20)
    first, second = [await FrameClient.connect(port) for _ in range(2)]
    message = b"\0" + U32.pack(70_000) + b"x" * 70_000
    for client in (first, second):
        await client.greet()
        client.open(1, "deaf")
        for start in range(0, len(message), 16_000):
            client.send(DATA, 0, 1, message[start : start + 16_000])
        await client.alive()
    assert await first.status(1) == "8"  # RESOURCE_EXHAUSTED: it held most
    second.ask(3, "say", b"y")
    assert await second.status(3) == "0"
    first.close()
    second.close()


async def test_a_client_that_takes_no_answers_is_refused_further_ones(connect: Connect) -> None:
    client = await connect(unsent_bytes=1_000_000)
    for number in range(40):
        client.open(2 * number + 1, "say")
        body = b"\0" + U32.pack(60_000) + b"x" * 60_000
        for start in range(0, len(body), 16_000):
            last = END_STREAM if start + 16_000 >= len(body) else 0
            client.send(DATA, last, 2 * number + 1, body[start : start + 16_000])
    assert await client.status(79) == "8"


async def test_a_client_that_sends_nothing_after_connecting_is_disconnected(serve: Serve) -> None:
    _, port = await serve(handshake_s=0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1 << 20), 20)
    writer.close()


@pytest.mark.slow
async def test_a_client_that_answers_stays(connect: Connect) -> None:
    client = await connect(handshake_s=1.0, keepalive_s=0.05, keepalive_timeout_s=2.0)
    for _ in range(3):
        asked = await client.until(PING)
        client.send(PING, frames.ACK, 0, asked.payload)


@pytest.mark.slow
async def test_a_client_that_does_not_answer_goes(connect: Connect) -> None:
    client = await connect(handshake_s=1.0, keepalive_s=0.05, keepalive_timeout_s=0.1)
    await client.until(PING)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await client.until(frames.GOAWAY)  # which never comes


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        (b"GET /\r\nHost: x\r\n\r\n", PROTOCOL_ERROR),
        (b"\x16\x03\x01 the start of TLS", PROTOCOL_ERROR),
        (frames.PREFACE + frames.frame(PING, 0, 0, b"12345678"), PROTOCOL_ERROR),
    ],
)
async def test_a_connection_that_is_not_http2_is_refused(serve: Serve, mistake: bytes, code: int) -> None:
    _, port = await serve()
    client = await FrameClient.connect(port)
    client.write(mistake)
    assert await client.gone() == code
    client.close()


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"POST /popmq.v1.Messages/Send HTTP/1.0"])
async def test_a_request_of_http1_is_told_so_in_its_own_protocol(serve: Serve, request_line: bytes) -> None:
    _, port = await serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_line + b"\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert body.startswith(b"this port speaks gRPC, over HTTP/2 only")
    writer.close()


async def test_settings_come_before_the_goaway_to_a_client_that_has_said_nothing(serve: Serve) -> None:
    _, port = await serve(connections_per_address=1)
    first, second = await FrameClient.connect(port), await FrameClient.connect(port)
    assert (await second.read()).kind == frames.SETTINGS
    assert await second.gone() == frames.ENHANCE_YOUR_CALM
    await first.greet()
    first.close()
    second.close()


async def test_frames_may_come_one_byte_at_a_time(serve: Serve) -> None:
    _, port = await serve()
    client = await FrameClient.connect(port)
    raw = frames.PREFACE + frames.settings({}) + frames.frame(HEADERS, END_HEADERS, 1, client.head("say"))
    raw += frames.frame(DATA, 0, 1, b"\0" + U32.pack(3) + b"abc") + frames.frame(DATA, END_STREAM, 1)
    for byte in raw:
        client.write(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await client.until(DATA)).payload == b"\0\0\0\0\3abc"
    assert await client.status(1) == "0"
    client.close()


@pytest.mark.parametrize(
    "messages", [b"", b"\0\0\0\0\1a\0\0\0\0\1b", b"\0\0\0\0\5ab", b"\1\0\0\0\2zz", b"\7\0\0\0\2zz"]
)
async def test_a_unary_call_takes_one_whole_message(connect: Connect, messages: bytes) -> None:
    client = await connect()
    client.open(1, "say")
    client.send(DATA, END_STREAM, 1, messages)
    assert await client.status(1) == "13"  # INTERNAL
    await client.alive()


async def test_the_end_of_a_stream_may_come_in_a_frame_of_its_own(connect: Connect) -> None:
    """Java's clients do this."""
    client = await connect()
    client.open(1, "say")
    client.send(DATA, 0, 1, b"\0" + U32.pack(1) + b"a")
    client.send(DATA, END_STREAM, 1, b"")
    assert await client.status(1) == "0"


async def test_a_reader_with_a_small_table_is_not_asked_to_remember(connect: Connect) -> None:
    client = await connect()
    client.send(SETTINGS, 0, 0, frames.SETTING.pack(frames.HEADER_TABLE_SIZE, 0))
    client.decoder.max_allowed_table_size = 0
    for stream_id in (1, 3, 5):
        client.ask(stream_id, "say")
        assert await client.status(stream_id) == "0"


@pytest.mark.mechanism("H.14")
async def test_a_known_header_block_is_read_again_after_the_table_has_changed(connect: Connect) -> None:
    """Its bytes name an entry of the table: another entry there makes it another call."""
    client = await connect()
    path, newest = b"/t.Echo/say", b"\xbe"
    common = encode([(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"t"), (b"te", b"trailers")])
    common += encode([(b"content-type", b"application/grpc")])
    message = b"\0" + U32.pack(1) + b"x"
    for stream_id, block in ((1, remembered(b":path", path) + common), (3, newest + common)):
        client.send(HEADERS, END_HEADERS, stream_id, block)
        client.send(DATA, END_STREAM, stream_id, message)
        assert await client.status(stream_id) == "0"
    client.send(HEADERS, END_HEADERS, 5, remembered(b":path", b"/t.Echo/none") + common)
    client.send(DATA, END_STREAM, 5, message)
    client.send(HEADERS, END_HEADERS, 7, newest + common)
    client.send(DATA, END_STREAM, 7, message)
    assert [await client.status(5), await client.status(7)] == ["12", "12"]  # UNIMPLEMENTED


async def test_a_large_answer_does_not_hold_up_a_small_one(connect: Connect) -> None:
    client = await connect()
    client.send(WINDOW_UPDATE, 0, 0, U32.pack(1 << 30))
    client.open(1, "say")
    body = b"\0" + U32.pack(900_000) + b"x" * 900_000
    for start in range(0, len(body), 16_000):
        client.send(DATA, END_STREAM if start + 16_000 >= len(body) else 0, 1, body[start : start + 16_000])
    client.ask(3, "say")
    assert await client.status(3) == "0"  # the first one waits for its own window
    client.send(WINDOW_UPDATE, 0, 1, U32.pack(1 << 20))
    assert await client.status(1) == "0"


@pytest.mark.mechanism("H.15")
async def test_an_answer_does_not_wait_for_the_acknowledgement_of_an_earlier_one(serve: Serve) -> None:
    """Without TCP_NODELAY it waits up to 40 ms for the client's delayed ACK, when a frame left shortly before."""
    server, port = await serve()
    client = await FrameClient.connect(port)
    await client.greet()
    await client.alive()
    (connection,) = server._connections
    assert connection._transport is not None
    accepted = connection._transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    client.close()


@pytest.mark.parametrize(("payload", "code"), [(b"\0\0\0", FRAME_SIZE_ERROR), (U32.pack(9) + b"\x10", PROTOCOL_ERROR)])
async def test_an_invalid_priority_of_a_stream_that_is_not_open_ends_the_connection(
    connect: Connect, payload: bytes, code: int
) -> None:
    """A reset must not name a stream that nobody has opened (RFC 9113, section 6.4)."""
    client = await connect()
    client.open(9)
    client.send(PRIORITY, 0, 9, payload)
    assert U32.unpack((await client.until(RST_STREAM, 9)).payload) == (code,)
    client.send(PRIORITY, 0, 11, payload.replace(U32.pack(9), U32.pack(11)))
    assert await client.gone() == code


@pytest.mark.mechanism("H.36")
async def test_a_large_answer_that_is_not_taken_is_in_memory_once(echo: Echo) -> None:
    echo.times = 8 << 20
    wire = Wire(Server(echo.methods().get))
    wire.feed(GREETING)
    wire.read()
    tracemalloc.start()
    try:
        wire.feed(call(1, method=b"told") + frames.frame(DATA, END_STREAM, 1, b"\0" + U32.pack(1) + b"x"))
        for _ in range(3):
            await asyncio.sleep(0)
            wire.read()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held > echo.times
    assert peak < 1.2 * echo.times
    wire.close()
