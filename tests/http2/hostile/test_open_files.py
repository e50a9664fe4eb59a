"""A process that has no file left for a new connection closes it, and serves those that it has."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import ssl
from collections.abc import Iterator

import pytest

from popmq_http2.server import listening
from popmq_http2.server.listening import Listening
from tests.http2.conftest import Serve

#: Nothing here takes so long.
LATE_S = 10
CLIENTS = 40


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Sockets of clients, made while there were files for them."""
    made = [socket.socket() for _ in range(CLIENTS)]
    for one in made:
        one.setblocking(False)
    yield made
    for one in made:
        one.close()


@pytest.fixture
def no_files(sockets: list[socket.socket]) -> Iterator[None]:
    """The process can open no further file."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


async def test_connections_beyond_the_limit_of_open_files_are_closed_with_one_line_in_the_log(
    serve: Serve, sockets: list[socket.socket], caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    _, port = await serve()
    request.getfixturevalue("no_files")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LATE_S):
        for one in sockets:
            await loop.sock_connect(one, ("127.0.0.1", port))
        assert {await loop.sock_recv(one, 100) for one in sockets} == {b""}
    assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == ["popmq_http2"]


async def test_an_address_cannot_have_any_number_of_connections_whose_tls_is_not_agreed_on(
    serve: Serve, sockets: list[socket.socket]
) -> None:
    """They are known to their protocol only after the handshake, for which they have 20 s."""
    server, _ = await serve(connections_per_address=2)
    port = await server.listen("127.0.0.1", 0, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LATE_S):
        for one in sockets[:10]:
            await loop.sock_connect(one, ("127.0.0.1", port))
        first, *others = sockets[:4]
        assert [await loop.sock_recv(one, 1) for one in sockets[4:10]] == [b""] * 6
        for one in others:
            with pytest.raises(BlockingIOError):
                one.recv(1)
        first.send(b"no TLS at all, so that it ends")
        while await loop.sock_recv(first, 100):
            pass
        await loop.sock_connect(sockets[10], ("127.0.0.1", port))
        await loop.sock_connect(sockets[11], ("127.0.0.1", port))
        assert await loop.sock_recv(sockets[11], 1) == b""
        with pytest.raises(BlockingIOError):
            sockets[10].recv(1)


def test_addresses_without_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_ADDRESSES_MAX", 3)
    with Listening(socket.create_server(("127.0.0.1", 0)), 1) as port, socket.socket() as kept:
        assert port._admits(kept, ("10.0.0.1", 1))
        for number in range(2, 20):
            with socket.socket() as other:
                assert port._admits(other, (f"10.0.0.{number}", 1))
        assert not port._admits(other, ("10.0.0.1", 2))
        assert len(port._accepted) <= 3


def test_a_port_whose_reserve_another_thread_took_ends_the_turn_and_has_a_reserve_again_later(
    sockets: list[socket.socket], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    others: list[int] = []

    def taken() -> None:
        with contextlib.suppress(OSError):
            others.append(os.dup(0))

    with Listening(socket.create_server(("127.0.0.1", 0))) as port:
        port.setblocking(False)
        for one in sockets[:2]:
            one.connect_ex(port.getsockname())
        request.getfixturevalue("no_files")
        with monkeypatch.context() as patched:
            patched.setattr(listening, "_reserve", taken)
            with pytest.raises(BlockingIOError):
                port.accept()
            with pytest.raises(OSError, match="Too many open files"):
                port.accept()
            with pytest.raises(BlockingIOError):
                port.accept()
        for file in others:
            os.close(file)
        with pytest.raises(BlockingIOError):
            port.accept()
        assert sockets[1].recv(1) == b"", "the file that is free again is the reserve"
