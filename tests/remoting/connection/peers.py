"""A server that answers every request with its body, and a client of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.link import OnRequest
from popmq_remoting.connection.peer import Access, Peer
from popmq_remoting.requests import members
from popmq_remoting.wire.command import Request, Response
from popmq_remoting.wire.signature import Credentials
from tests.remoting.fake.server import Client, FakeServer, ok

#: The code of the request that is echoed; the code of a heartbeat is 34.
ECHO = 1
#: Seconds that a call has, unless it says.
CALL_S = 10.0


def beat() -> Request:
    return members.heartbeat("client-1")


def echo(client: Client, request: Request) -> Response:
    return ok(request.body)


class Pair(NamedTuple):
    server: FakeServer
    peer: Peer

    async def call(self, body: bytes = b"", within_s: float = CALL_S, code: int = ECHO) -> bytes:
        """The body of the answer, which is that of the request."""
        response = await self.peer.call(Request(code, {"a": "b"}, body), now_s() + within_s)
        return response.expect().body


def now_s() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def pair(
    heartbeat: Callable[[], Request] | None = beat,
    on_request: OnRequest | None = None,
    limits: PeerLimits | None = None,
    server_tls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    secrets: dict[str, str] | None = None,
    credentials: Credentials | None = None,
    probe: Request | None = None,
) -> AsyncIterator[Pair]:
    """Both of them, closed at the end."""
    server = FakeServer({ECHO: echo, 34: lambda client, request: ok()}, secrets)
    await server.start(server_tls)
    access = Access(limits or PeerLimits(), tls, server_name, credentials)
    peer = Peer(server.address, access, heartbeat, on_request, probe)
    try:
        yield Pair(server, peer)
    finally:
        await peer.close()
        server.running.set()
        await server.stop()
