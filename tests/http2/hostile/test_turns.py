"""What one connection, or many new ones, may take of a turn of the event loop while others wait: counted, not timed."""

import asyncio
import contextlib
import itertools
import socket
import tracemalloc

import pytest

from harness.attacks import ATTACKS, GREETING, head
from popmq_http2 import Limits, Server
from popmq_http2.budget import TURN_POINTS
from popmq_http2.frames import END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, frame
from popmq_http2.server.connection import Connection
from popmq_http2.server.turns import CALLS_AT_ONCE
from popmq_http2.transports import RECEIVE_BYTES
from tests.http2.conftest import Echo
from tests.http2.wire import Wire

PINGS = 1_000
#: Connections that only open calls, and how many each has sent. What is paid by other points would wait too.
OPENING, OPENS = 20, 1_000
OPENED = b"".join(frame(HEADERS, END_HEADERS, number, head(b"/t.Echo/say")) for number in range(1, 2 * OPENS, 2))


def opened(server: Server) -> int:
    """Open calls of all connections."""
    return sum(len(connection._streams.calls) for connection in server._connections)


def opening(server: Server) -> list[Wire]:
    """Connections of one address that send calls, all in one turn."""
    wires = [Wire(server) for _ in range(OPENING)]
    for wire in wires:
        wire.feed(GREETING)
    for wire in wires:
        wire.feed(OPENED)
    return wires


def greeted(echo: Echo, limits: Limits | None = None) -> Wire:
    wire = Wire(Server(echo.methods().get, limits))
    wire.feed(GREETING)
    wire.read()
    return wire


@pytest.mark.mechanism("H.24", "H.27")
async def test_a_connection_spends_the_points_of_a_turn_and_goes_on_in_the_next(echo: Echo) -> None:
    wire = greeted(echo)
    wire.feed(frame(PING, 0, 0, bytes(8)) * PINGS)
    answered = []
    for _ in range(PINGS // TURN_POINTS + 1):
        answered.append(sum(each.kind == PING for each in wire.read()))
        wire.connection.go_on()
    assert max(answered) <= TURN_POINTS + 1
    assert sum(answered) == PINGS
    assert not wire.paused
    wire.close()


@pytest.mark.mechanism("H.24")
async def test_a_read_full_of_headers_is_decoded_in_many_turns(echo: Echo) -> None:
    wire = greeted(echo)
    flood = b"".join(itertools.islice(ATTACKS["header_flood"](b"/t.Echo/deaf"), 100))[:RECEIVE_BYTES]
    wire.feed(flood)
    assert wire.connection._streams.last_id <= 13, "calls with 200 headers cost 35 points each"
    assert wire.paused
    wire.close()


@pytest.mark.mechanism("H.27")
async def test_a_call_behind_a_flood_of_its_connection_is_answered_when_its_turn_comes(echo: Echo) -> None:
    wire = greeted(echo)
    wire.feed(frame(PING, 0, 0, bytes(8)) * PINGS + frame(HEADERS, END_HEADERS | END_STREAM, 1, head(b"/t.Echo/none")))
    assert wire.paused
    assert not wire.connection._streams.calls
    await wire.reading.wait()
    assert wire.connection._streams.last_id == 1
    wire.close()


@pytest.mark.mechanism("H.25")
async def test_a_connection_that_ends_while_its_frames_wait_handles_no_more_of_them(echo: Echo) -> None:
    wire = greeted(echo)
    pings = frame(PING, 0, 0, bytes(8)) * (TURN_POINTS + 10)
    wire.feed(pings + frame(HEADERS, END_HEADERS | END_STREAM, 1, head(b"/t.Echo/say")))
    wire.close()
    wire.connection.go_on()
    assert not wire.connection._streams.last_id


@pytest.mark.mechanism("H.23")
async def test_a_message_that_expands_more_than_its_connection_can_pay_is_not_unpacked(echo: Echo) -> None:
    wire = greeted(echo, Limits(budget=1_000, budget_per_s=0))
    bomb = next(iter(ATTACKS["compression_bomb"](b"/t.Echo/say")))
    tracemalloc.start()
    try:
        wire.feed(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert any(each.kind == GOAWAY for each in wire.read())
    assert peak < 20 * len(bomb), "20 KiB that expand to 20 MiB"


@pytest.mark.mechanism("H.26")
async def test_new_connections_are_accepted_some_at_a_time(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand at once would hold up the open ones for a tenth of a second."""
    made, made_in_turn = 0, [0]
    connection_made = Connection.connection_made

    def counted(self: Connection, transport: asyncio.BaseTransport) -> None:
        nonlocal made
        made += 1
        made_in_turn[-1] += 1
        connection_made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", counted)
    server = Server(echo.methods().get)
    port = await server.listen("127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]  # the loop does not run meanwhile
    while made < len(clients):
        await asyncio.sleep(0)
        made_in_turn.append(0)
    assert max(made_in_turn) <= 40
    for client in clients:
        client.close()
    await server.stop(0)


async def test_a_connection_that_ends_while_it_gives_way_is_read_to_its_end(echo: Echo) -> None:
    """TLS that is paused does not close: its socket would stay until the time for a handshake is over."""
    wire = greeted(echo, Limits(budget=2 * TURN_POINTS, budget_per_s=0))
    wire.feed(frame(PING, 0, 0, bytes(8)) * PINGS)
    assert wire.paused
    while not wire.closing:
        wire.connection.go_on()
    assert not wire.paused


@pytest.mark.mechanism("H.35")
async def test_all_connections_together_open_a_bounded_number_of_calls_in_one_turn(echo: Echo) -> None:
    server = Server(echo.methods().get)
    wires = opening(server)
    assert opened(server) == CALLS_AT_ONCE
    counts = [opened(server)]
    while counts[-1] < OPENING * OPENS:
        await asyncio.sleep(0)
        counts.append(opened(server))
    in_turn = [after - before for before, after in itertools.pairwise(counts)]
    assert max(in_turn) <= 2 * CALLS_AT_ONCE, "what is left of a turn after this test's own step, and the next one"
    for wire in wires:
        await wire.reading.wait()
        wire.close()
    assert not server.turns._lines


@pytest.mark.mechanism("H.35")
async def test_a_call_of_another_address_waits_for_one_turn_whoever_is_in_line(echo: Echo) -> None:
    server = Server(echo.methods().get)
    wires = opening(server)
    other = Wire(server, "192.0.2.9")
    other.connection.data_received(GREETING + frame(HEADERS, END_HEADERS, 1, head(b"/t.Echo/say")))
    assert other.paused
    for _ in range(2):
        await asyncio.sleep(0)
    assert other.connection._streams.last_id == 1
    assert opened(server) <= 3 * CALLS_AT_ONCE
    for wire in (*wires, other):
        wire.close()


@pytest.mark.mechanism("H.35")
async def test_a_new_connection_is_greeted_while_others_open_calls_as_fast_as_they_can(echo: Echo) -> None:
    server = Server(echo.methods().get)
    port = await server.listen("127.0.0.1", 0)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(OPENING)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(server._connections) == OPENING
    for client in clients:
        client.sendall(GREETING + OPENED)
    new = socket.create_connection(("127.0.0.1", port))  # the loop does not run meanwhile
    new.sendall(GREETING)
    new.setblocking(False)
    greeting = b""
    while not greeting:
        await asyncio.sleep(0)
        with contextlib.suppress(BlockingIOError):
            greeting = new.recv(9)
    assert opened(server) <= 6 * CALLS_AT_ONCE, "accepted, connected and greeted in the next turns"
    for client in (*clients, new):
        client.close()
    await server.stop(0)
