"""Servers that are gone, silent, slow or not what they should be: each call ends, with the status that retries need."""

import asyncio
import contextlib
import errno
import os
import pathlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from unittest.mock import Mock

import pytest
import pytest_asyncio

from popmq_http2 import Code, Server
from popmq_http2.client.aio import AsyncChannel
from popmq_http2.client.call import CallFailed
from popmq_http2.client.stream import Tls as Shaken
from popmq_http2.client.target import Backoff, Options, tls_context
from popmq_http2.client.threads import Channel
from popmq_http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    U32,
    frame,
    settings,
)
from popmq_http2.hpack import encode
from popmq_server.clock import SystemClock
from popmq_server.protocols.access.certificate import DEVELOPMENT_KEY, development
from tests.http2.client.callers import Make, path
from tests.http2.client.conftest import QUICK
from tests.http2.client.scripted import HEAD, OK
from tests.http2.conftest import Echo, Serve

Played = Callable[..., Awaitable[int]]
Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


async def request(reader: Reader) -> int:
    """Reads up to the end of the next request; its stream."""
    while True:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == DATA and head[4] & END_STREAM:
            return int.from_bytes(head[5:], "big")


async def greet(reader: Reader, writer: Writer) -> None:
    writer.write(settings({}) + frame(SETTINGS, ACK, 0))
    await reader.readexactly(len(PREFACE))


def reply(stream_id: int, message: bytes) -> bytes:
    body = b"\0" + U32.pack(len(message)) + message
    return (
        frame(HEADERS, END_HEADERS, stream_id, encode(HEAD))
        + frame(DATA, 0, stream_id, body)
        + frame(HEADERS, END_HEADERS | END_STREAM, stream_id, encode(OK))
    )


async def answers(reader: Reader, writer: Writer) -> None:
    """A server that works."""
    await greet(reader, writer)
    while True:
        writer.write(reply(await request(reader), b"here"))


async def silent(reader: Reader, writer: Writer) -> None:
    await asyncio.Event().wait()


async def greets_only(reader: Reader, writer: Writer) -> None:
    await greet(reader, writer)
    await asyncio.Event().wait()


async def closes(reader: Reader, writer: Writer) -> None:
    await reader.read(9)


async def closes_in_a_call(reader: Reader, writer: Writer) -> None:
    await greet(reader, writer)
    await request(reader)


async def goes_away(reader: Reader, writer: Writer) -> None:
    """Says after the request came that it did not begin it."""
    await greet(reader, writer)
    await request(reader)
    writer.write(frame(GOAWAY, 0, 0, b"\0" * 8))
    await reader.read()


async def goes_away_at_once(reader: Reader, writer: Writer) -> None:
    writer.write(settings({}) + frame(GOAWAY, 0, 0, U32.pack(0) + U32.pack(11) + b"close some"))
    await reader.read()


async def speaks_http1(reader: Reader, writer: Writer) -> None:
    await reader.readexactly(len(PREFACE))
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def drips(reader: Reader, writer: Writer) -> None:
    """A server that works, a byte at a time."""
    await greet(reader, writer)
    for byte in reply(await request(reader), b"here"):
        writer.write(bytes((byte,)))
        await writer.drain()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.mechanism("H.18")
async def test_no_server_is_unavailable_and_not_asked_again_before_the_pause_is_over(caller: Make) -> None:
    port = free_port()
    channel = caller(port, None, Options(backoff_first_s=60.0, backoff_max_s=60.0))
    outcome = await channel.unary("say", b"x")
    assert outcome.code is Code.UNAVAILABLE
    assert "Connection refused" in outcome.message
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.setblocking(False)
        assert await channel.unary("say", b"x") == outcome
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("error", [UnicodeError, RuntimeError])
async def test_a_name_that_cannot_be_resolved_is_unavailable(
    caller: Make, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The last call ends by an attempt of its own: none that failed is taken for one that is under way."""
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=error("said by the test")))
    channel = caller("foo..bar:1", None, Options(backoff_first_s=0.0))
    for _ in range(2):
        outcome = await channel.unary("say", b"x", (), 5.0)
        assert outcome.code is Code.UNAVAILABLE
        assert "said by the test" in outcome.message


async def test_an_address_that_is_silent_leaves_time_for_the_next_one(
    caller: Make, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = await played(answers)
    with socket.create_server(("127.0.0.2", port), backlog=0), contextlib.ExitStack() as open_:
        for _ in range(3):  # the queue of new connections is full: the system drops what else comes
            filling = open_.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(("127.0.0.2", port))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *rest, **more: found if b"two" in host else real(host, *rest, **more)
        )
        outcome = await caller(f"two.test:{port}", None, Options(connect_s=0.4)).unary("say", b"x")
    assert outcome.answers == (b"here",)


async def test_a_server_that_comes_up_is_found_after_the_pause(caller: Make, echo: Echo) -> None:
    port = free_port()
    channel = caller(port, None, QUICK)
    assert (await channel.unary("say", b"x")).code is Code.UNAVAILABLE
    server = Server(echo.methods().get)
    await server.listen("127.0.0.1", port)
    while (outcome := await channel.unary("say", b"x")).code is Code.UNAVAILABLE:
        pass
    assert outcome.answers == (b"x",)
    await server.stop(0)


@pytest.mark.mechanism("H.19")
@pytest.mark.parametrize(
    ("play", "text"),
    [
        (silent, "no sign of life"),
        (greets_only, "no sign of life"),
        (closes, "Socket closed"),
        (speaks_http1, "not SETTINGS"),
        (goes_away_at_once, "close some"),
    ],
)
async def test_a_peer_that_is_not_a_grpc_server_or_falls_silent_is_unavailable_with_the_reason(
    caller: Make, played: Played, play: object, text: str
) -> None:
    outcome = await caller(await played(play), None, QUICK).unary("say", b"x")
    assert outcome.code is Code.UNAVAILABLE
    assert text in outcome.message


async def test_a_connection_that_breaks_in_a_call_is_unavailable_and_the_next_call_makes_another(
    caller: Make, played: Played
) -> None:
    channel = caller(await played(closes_in_a_call, answers))
    assert (await channel.unary("say", b"x")).code is Code.UNAVAILABLE
    assert (await channel.unary("say", b"x")).answers == (b"here",)


async def test_a_call_that_the_server_did_not_begin_goes_to_another_connection(caller: Make, played: Played) -> None:
    channel = caller(await played(goes_away, answers))
    assert (await channel.unary("say", b"x")).answers == (b"here",)


async def test_a_server_that_never_begins_a_call_is_asked_twice_and_no_more(caller: Make, played: Played) -> None:
    channel = caller(await played(goes_away))
    assert (await channel.unary("say", b"x")).code is Code.UNAVAILABLE


async def answers_pings_first(reader: Reader, writer: Writer) -> None:
    """A server that lets the client ask three times whether it is there."""
    await greet(reader, writer)
    stream_id, asked = await request(reader), 0
    while asked < 3:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == PING:
            writer.write(frame(PING, ACK, 0, payload))
            asked += 1
    writer.write(reply(stream_id, b"here"))
    await reader.read()


async def test_a_server_that_answers_pings_may_take_its_time(caller: Make, played: Played) -> None:
    outcome = await caller(await played(answers_pings_first), None, QUICK).unary("say", b"x")
    assert outcome.answers == (b"here",)


async def test_an_answer_that_drips_is_an_answer(caller: Make, played: Played) -> None:
    assert (await caller(await played(drips)).unary("say", b"x")).answers == (b"here",)


async def test_a_deadline_holds_while_connecting(caller: Make, played: Played) -> None:
    outcome = await caller(await played(silent)).unary("say", b"x", (), 0.05)
    assert outcome.code is Code.DEADLINE_EXCEEDED


@pytest.mark.slow
async def test_a_server_that_reads_nothing_holds_up_one_call_and_no_caller(caller: Make, played: Played) -> None:
    """The request is larger than what the sockets take: its deadline ends it."""

    async def wide(reader: Reader, writer: Writer) -> None:
        writer.write(settings({4: (1 << 31) - 1}) + frame(8, 0, 0, U32.pack((1 << 31) - 1 - 65_535)))
        await asyncio.Event().wait()

    channel = caller(await played(wide))
    large, small = await asyncio.gather(
        channel.unary("say", b"x" * (30 << 20), (), 0.3), channel.unary("say", b"x", (), 0.3)
    )
    assert (large.code, small.code) == (Code.DEADLINE_EXCEEDED, Code.DEADLINE_EXCEEDED)


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Tls:
    """A certificate for this machine, and servers with it."""

    def __init__(self, folder: pathlib.Path) -> None:
        certificate = development(folder, ("127.0.0.1",), SystemClock())
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.files = certificate.cert, folder / DEVELOPMENT_KEY
        self.context.load_cert_chain(*self.files)
        self.context.set_alpn_protocols(["h2"])
        self.ca = certificate.cert.read_text()


@pytest_asyncio.fixture
async def tls(tmp_path: pathlib.Path) -> AsyncIterator[Tls]:
    yield Tls(tmp_path)


async def test_calls_and_large_messages_pass_through_tls(caller: Make, serve: Serve, tls: Tls) -> None:
    server, _ = await serve()
    port = await server.listen("127.0.0.1", 0, tls.context)
    channel = caller(port, tls_context(tls.ca))
    message = bytes(range(256)) * 40_000
    for _ in range(2):
        assert (await channel.unary("say", message)).answers == (message,)
    small = await asyncio.gather(*(channel.unary("say", b"%d" % number) for number in range(100)))
    assert [outcome.answers[0] for outcome in small] == [b"%d" % number for number in range(100)]


async def test_a_certificate_that_is_not_trusted_or_of_another_host_is_reported(
    caller: Make, serve: Serve, tls: Tls
) -> None:
    server, _ = await serve()
    port = await server.listen("127.0.0.1", 0, tls.context)
    untrusted = await caller(port, tls_context()).unary("say", b"x")
    assert untrusted.code is Code.UNAVAILABLE
    assert "CERTIFICATE_VERIFY_FAILED" in untrusted.message
    bound = await server.listen("127.0.0.2", 0, tls.context)
    other = await caller(f"127.0.0.2:{bound}", tls_context(tls.ca)).unary("say", b"x")
    assert other.code is Code.UNAVAILABLE
    assert "mismatch" in other.message


async def test_a_tls_server_without_http2_is_reported(caller: Make, played: Played, tls: Tls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls.files)
    outcome = await caller(await played(silent, ssl=context), tls_context(tls.ca)).unary("say", b"x")
    assert outcome.code is Code.UNAVAILABLE
    assert "ALPN" in outcome.message


@pytest.mark.mechanism("H.22")
async def test_a_stop_ends_connections_of_tls_clients_that_do_not_answer(serve: Serve, tls: Tls) -> None:
    server, _ = await serve()
    port = await server.listen("127.0.0.1", 0, tls.context)
    connected = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 20)
    shaken = Shaken(tls_context(tls.ca), "127.0.0.1")
    await asyncio.to_thread(shaken.shake, connected)
    connected.sendall(shaken.wrapped(PREFACE + settings({})))
    await asyncio.to_thread(connected.recv, 1000)
    await server.stop(0)
    connected.settimeout(5)
    while connected.recv(1000):  # in the event loop's own thread: nothing but the stop itself can have closed it
        pass
    connected.close()


async def test_tls_and_none_meet_and_both_ends_report_it(caller: Make, serve: Serve, tls: Tls) -> None:
    server, plain = await serve()
    port = await server.listen("127.0.0.1", 0, tls.context)
    without = await caller(port).unary("say", b"x")
    assert (without.code, "Socket closed" in without.message) == (Code.UNAVAILABLE, True)
    assert (await caller(plain, tls_context(tls.ca)).unary("say", b"x")).code is Code.UNAVAILABLE


def test_pauses_grow_to_their_limit_and_begin_again() -> None:
    backoff = Backoff(Options(backoff_first_s=1.0, backoff_max_s=3.0))
    for rounds in range(2):
        for pause in (1.0, 1.6, 2.56, 3.0, 3.0):
            assert 0.8 * pause <= backoff.failed() <= 1.2 * pause, rounds
        backoff.succeeded()


# ── A process without threads or descriptors ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("missing", ["socket.socketpair", "threading.Thread.start"])
def test_a_connection_that_cannot_start_is_unavailable_and_the_next_call_makes_another(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    channel = Channel(f"127.0.0.1:{free_port()}", None, Options(backoff_first_s=0.0))
    before = sorted(os.listdir("/dev/fd"))
    with monkeypatch.context() as broken:
        broken.setattr(missing, Mock(side_effect=OSError(errno.EMFILE, "said by the test")))
        with pytest.raises(CallFailed, match="cannot connect: Too many open files") as refused:
            channel.unary("/t.Echo/say", b"x").result()
    assert refused.value.code is Code.UNAVAILABLE
    assert sorted(os.listdir("/dev/fd")) == before
    with pytest.raises(CallFailed, match="cannot connect: Connection refused"):
        channel.unary("/t.Echo/say", b"x").result()
    channel.close()


@pytest.mark.parametrize("begins", ["socket.socketpair", "threading.Thread.start"])
def test_after_an_interrupt_while_a_connection_begins_the_next_call_makes_another(
    monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    channel = Channel(f"127.0.0.1:{free_port()}", None, Options(backoff_first_s=0.0))
    with monkeypatch.context() as interrupted:
        interrupted.setattr(begins, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            channel.unary("/t.Echo/say", b"x")
    with pytest.raises(CallFailed, match="cannot connect: Connection refused"):
        channel.unary("/t.Echo/say", b"x", (), 10.0).result()
    channel.close()
    for link in channel._links:  # of the thread that did not begin: the channel cannot know that
        link.close_waker()


async def test_a_program_that_has_cancelled_all_tasks_can_call_once_more(played: Played) -> None:
    """An attempt to connect is a task too: a call after it makes another."""
    channel = AsyncChannel(f"127.0.0.1:{await played(answers)}", None, Options(backoff_first_s=0.0))
    first = channel.unary(path("say"), b"x", (), 20.0)
    assert channel._attempt is not None
    channel._attempt.cancel()
    with pytest.raises(CallFailed, match="cancelled"):
        await first.result()
    assert await channel.unary(path("say"), b"x", (), 20.0).result() == b"here"
    await channel.close()
