"""Calls through both channels, to our server and to grpcio's, with grpcio's client as the one to compare with."""

import asyncio
import socket
from typing import Any

import pytest

from popmq_http2 import Code, Server
from popmq_http2.client.target import Target, target
from tests.http2.client.callers import Grpcio, Make
from tests.http2.conftest import Echo, Serve

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 16_379, 65_535, 3 * MIB, 20 * MIB])
async def test_a_message_of_any_size_comes_back_as_it_was(caller: Make, echo_port: int, size: int) -> None:
    message = (bytes(number % 251 for number in range(min(size, 1000))) * (size // 1000 + 1))[:size]
    outcome = await caller(echo_port).unary("say", message)
    assert (outcome.code, outcome.answers) == (Code.OK, (message,))


async def test_many_calls_at_a_time_get_their_own_answers(caller: Make, echo_port: int) -> None:
    channel, messages = caller(echo_port), [b"%d" % number for number in range(300)]
    outcomes = await asyncio.gather(*(channel.unary("say", message) for message in messages))
    assert [outcome.answers[0] for outcome in outcomes] == messages


async def test_streams_of_both_kinds(caller: Make, echo_port: int) -> None:
    channel = caller(echo_port)
    assert (await channel.stream("many", [b"x"])).answers == tuple(b"%d x" % number for number in range(34))
    large = [bytes([number]) * MIB for number in range(8)]
    assert list((await channel.stream("back", large, one=False)).answers) == large


CASES: dict[str, tuple[Any, ...]] = {
    "an answer": ("say", b"x", (("who", "me"), ("raw-bin", b"\0\xfe\xff")), 20.0),
    "a refusal": ("fail", b"x", (), None),
    "an unknown method": ("nothing", b"x" * MIB, (), None),
    "a deadline": ("wait", b"x", (), 0.05),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_call_ends_as_with_grpcios_client(
    caller: Make, echo_port: int, case: tuple[Any, ...], request: pytest.FixtureRequest
) -> None:
    oracle = Grpcio(f"127.0.0.1:{echo_port}")
    theirs, ours = await oracle.unary(*case), await caller(echo_port).unary(*case)
    await oracle.close()
    if theirs.code is Code.DEADLINE_EXCEEDED:  # its text is the client's own
        theirs = theirs._replace(message=ours.message, trailers=ours.trailers)
    assert ours == theirs


async def test_a_deadline_and_a_cancelled_call_reach_the_handler(caller: Make, echo_port: int, echo: Echo) -> None:
    channel = caller(echo_port)
    ending = asyncio.ensure_future(channel.unary("wait", b"x", (), 1.0))  # time to reach its handler on a busy machine
    await echo.entered.acquire()
    assert (await ending).code is Code.DEADLINE_EXCEEDED
    await asyncio.wait_for(echo.cancelled.acquire(), 20)
    waiting = asyncio.ensure_future(channel.unary("wait", b"x"))
    await echo.entered.acquire()
    waiting.cancel()
    await asyncio.wait_for(echo.cancelled.acquire(), 20)


async def test_a_server_that_stops_lets_calls_end_and_the_next_goes_to_its_successor(
    caller: Make, serve: Serve, echo: Echo
) -> None:
    server, port = await serve()
    channel = caller(port)
    running = asyncio.ensure_future(channel.unary("wait", b"last"))
    await echo.entered.acquire()
    stopping = asyncio.ensure_future(server.stop(20))
    for _ in range(4):  # then its port is free
        await asyncio.sleep(0)
    successor = Server(echo.methods().get)
    listening = socket.create_server(("127.0.0.1", port))
    await successor.serve(listening)
    assert (await channel.unary("say", b"new")).answers == (b"new",)
    echo.gate.set()
    assert (await running).answers == (b"last",)
    await stopping
    await successor.stop(0)


async def test_a_closed_channel_ends_its_calls_and_takes_no_more(caller: Make, serve: Serve, echo: Echo) -> None:
    channel = caller((await serve())[1])
    running = asyncio.ensure_future(channel.unary("wait", b"x"))
    await echo.entered.acquire()
    await channel.close()
    assert (await running).code is Code.CANCELLED
    assert (await channel.unary("say", b"x")).code is Code.CANCELLED
    await asyncio.wait_for(echo.cancelled.acquire(), 20)


async def test_a_unix_socket_and_names_are_addresses(caller: Make, serve: Serve, tmp_path: Any) -> None:
    server, port = await serve()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    await server.serve(listening)
    for where in (f"unix:{tmp_path}/s", f"localhost:{port}", f"dns:///127.0.0.1:{port}", f"ipv4:127.0.0.1:{port}"):
        assert (await caller(where).unary("say", b"x")).answers == (b"x",), where


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("host:1", Target("host", "1", "", "host:1")),
        ("host", Target("host", "443", "", "host")),
        ("[::1]:8081", Target("::1", "8081", "", "[::1]:8081")),
        ("ipv6:[::1]:8081", Target("::1", "8081", "", "[::1]:8081")),
        ("::1", Target("::1", "443", "", "::1")),
        ("dns://1.1.1.1/host:5", Target("host", "5", "", "host:5")),
        ("unix:///a/b", Target("", "", "/a/b", "localhost")),
        ("unix:a", Target("", "", "a", "localhost")),
    ],
)
def test_addresses_are_read_as_grpc_writes_them(text: str, meant: Target) -> None:
    assert target(text) == meant


@pytest.mark.parametrize("text", ["", ":1", "host:port", "host:70000", "unix:"])
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|names no socket"):
        target(text)
