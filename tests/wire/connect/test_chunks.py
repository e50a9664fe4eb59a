"""The HTTP port without a client of its own: bodies in very many chunks, pieces of answers, turns of the event loop."""

import asyncio
import contextlib
import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from popmq_http2 import Limits
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.protocols.connect import http1
from popmq_server.protocols.connect.http1 import Http1
from popmq_server.protocols.connect.port import HttpPort
from popmq_server.protocols.transport import ServedMethod

PATH = "/popmq.v1.Broker/Send"
HEAD = (
    f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\ntransfer-encoding: chunked\r\n\r\n"
).encode()
#: Chunks of two bytes each.
CHUNK, CHUNKS = b"2\r\nab\r\n", 10_000


class Pipe(asyncio.Transport):
    """A transport that keeps what is written, and whether it is read."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self.written, self.reads, self.closed = b"", True, False
        #: Called after each write: there is no room for more.
        self.full: Callable[[], None] | None = None

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        if self.full is not None:
            self.full()

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def port_of(asked: list[bytes], gate: asyncio.Event | None = None, answer: bytes = b"", **limits: int) -> HttpPort:
    """A port whose calls are kept in `asked`, and answered behind the gate."""

    async def echo(raw: bytes, _: object) -> bytes:
        asked.append(raw)
        if gate is not None:
            await gate.wait()
        return answer

    port = HttpPort(None, Limits(**limits))
    methods = pb.DESCRIPTOR.services_by_name["Broker"].methods_by_name
    port.register("popmq.v1.Broker", {"Send": ServedMethod(echo)}, methods)
    return port


def joined(port: HttpPort) -> tuple[Http1, Pipe]:
    connection, pipe = Http1(port), Pipe()
    connection.connection_made(pipe)
    return connection, pipe


def connected(asked: list[bytes]) -> tuple[Http1, Pipe]:
    """A connection whose calls are kept in `asked`."""
    return joined(port_of(asked))


@pytest.mark.mechanism("H.38")
async def test_other_connections_have_their_turn_between_the_chunks_of_one() -> None:
    asked: list[bytes] = []
    connection, pipe = connected(asked)
    connection.data_received(HEAD + CHUNK * CHUNKS + b"0\r\n\r\n")
    assert connection.held < 1_000
    turns = 0
    while not pipe.written:
        assert asked or not pipe.reads or connection.held == 2 * CHUNKS, "no further bytes are read meanwhile"
        await asyncio.sleep(0)
        turns += 1
    assert turns >= CHUNKS / 500
    assert asked == [b"ab" * CHUNKS]
    assert pipe.written.startswith(b"HTTP/1.1 200")
    assert pipe.reads
    connection.connection_lost(None)


async def test_a_connection_that_ends_between_its_turns_is_read_no_more() -> None:
    connection, pipe = connected([])
    connection.data_received(HEAD + CHUNK * CHUNKS)
    pipe.close()
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert (connection.held, pipe.reads) == (0, False)


@pytest.mark.mechanism("H.38")
async def test_a_body_holds_its_bytes_and_not_an_object_for_each_chunk() -> None:
    connection, _ = connected([])
    connection.data_received(HEAD)
    tracemalloc.start()
    for _ in range(CHUNKS // 100):
        connection.data_received(CHUNK * 100)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert connection.held == 2 * CHUNKS
    assert held < 6 * connection.held
    connection.connection_lost(None)


async def test_a_call_that_runs_is_not_told_that_it_was_refused_when_the_memory_is_full() -> None:
    """It may be carried out already: its client has to see that the outcome is not known."""
    asked: list[bytes] = []
    port = port_of(asked, asyncio.Event(), requests_bytes=100_000)
    (large, told), (small, _) = joined(port), joined(port)
    large.data_received(HEAD + b"%x\r\n" % 90_000 + bytes(90_000) + b"\r\n0\r\n\r\n")
    await asyncio.sleep(0)
    assert len(asked) == 1
    small.data_received(HEAD + b"%x\r\n" % 20_000 + bytes(20_000))
    assert (told.closed, told.written, large.held, small.held) == (True, b"", 0, 20_000)
    large.connection_lost(None)
    small.connection_lost(None)


async def test_what_comes_after_a_refusal_is_dropped_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "_DROPPED_BYTES", 100_000)
    (connection, pipe), (silent, unread) = connected([]), connected([])
    for one in (connection, silent):
        one.data_received(f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n".encode())
    assert pipe.written.startswith(b"HTTP/1.1 429")
    for _ in range(10):
        assert not pipe.closed
        connection.data_received(bytes(10_000))
    assert (pipe.closed, connection.held, pipe.written.count(b"HTTP/1.1")) == (True, 0, 1)
    silent._look()
    assert not unread.closed
    silent._since_s -= http1.LOOK_S
    silent._look()
    assert unread.closed
    for one in (connection, silent):
        one.connection_lost(None)


async def test_an_answer_is_written_piece_by_piece_as_its_client_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So its call is over once it was taken, over TLS too, and a slow client has the time to take it for each piece."""
    monkeypatch.setattr(http1, "_PIECE_BYTES", 1_000)
    answer, sizes = bytes(range(256)) * 40, list[int]()
    connection, pipe = joined(port_of([], answer=answer))
    pipe.full = connection.pause_writing
    connection.data_received(HEAD + b"2\r\nab\r\n0\r\n\r\n")
    await asyncio.sleep(0)
    while connection._task is not None:
        sizes.append(len(pipe.written))
        connection.resume_writing()
        await asyncio.sleep(0)
    assert pipe.written.endswith(answer)
    assert len(set(sizes)) > len(answer) // 1_000
    connection.connection_lost(None)


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_as_the_port_stops_is_closed(turns: int) -> None:
    """Whichever of the turns that asyncio needs for a new connection comes before the stop."""
    port, listening = port_of([]), socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    port.open(listening, None, is_shared=False, is_local=True)
    await port.start()
    with socket.create_connection(address, timeout=10) as late:
        for _ in range(turns):
            await asyncio.sleep(0)
        await port.stop(20)
        with contextlib.suppress(ConnectionResetError):  # what the loop had not accepted, the system refuses
            assert late.recv(4096) == b""


async def test_a_client_that_sends_its_next_requests_at_once_waits_until_they_were_taken() -> None:
    """With each answer as many bytes again were read, so that what waited grew without a bound."""
    asked: list[bytes] = []
    connection, pipe = connected(asked)
    request = HEAD + b"2\r\nab\r\n0\r\n\r\n"
    count = 2 * http1._AHEAD_BYTES // len(request)
    connection.data_received(request)
    connection.data_received(request * count)
    while len(asked) < count + 1:
        assert not pipe.reads
        await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert pipe.written.count(b"HTTP/1.1 200") == count + 1
    assert pipe.reads
    connection.connection_lost(None)
