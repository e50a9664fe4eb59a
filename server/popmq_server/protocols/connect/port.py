"""The port: listens, bounds all connections together, knows the web pages that may call, and stops."""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from google.protobuf.descriptor import MethodDescriptor

from popmq_http2 import Aborted, Code, Limits
from popmq_http2.server.addresses import Addresses
from popmq_http2.server.listening import Listening
from popmq_server.clock import pause
from popmq_server.protocols.connect.answers import Answer, error
from popmq_server.protocols.connect.call import HttpCall
from popmq_server.protocols.connect.http1 import Http1
from popmq_server.protocols.connect.reading import Asked
from popmq_server.protocols.connect.unary import Unary
from popmq_server.protocols.transport import ServedMethod

if TYPE_CHECKING:
    from popmq_server.protocols.authentication import Authentication

HTTP_ALPN = ["http/1.1"]
_BACKLOG, _ACCEPTED_AT_ONCE = 1024, 32
#: What a web page may send beside what every page may, and for how many seconds a browser remembers it.
_HEADERS = "authorization, connect-protocol-version, connect-timeout-ms, content-type, x-mq-date-time, x-request-id"
_REMEMBERED_S = 7_200


class HttpPort:
    """One port of HTTP/1.1. Make it inside the event loop.

    `origins`: of the web pages that may call, as `https://shop.example`; "*": of all.
    """

    def __init__(
        self,
        authentication: "Authentication | None",
        limits: Limits,
        origins: Sequence[str] = (),
    ) -> None:
        self._unary = Unary(authentication)
        self._limits, self._addresses = limits, Addresses(limits)
        self._origins = frozenset(origins)
        self._is_local = False
        self._connections: set[Http1] = set()
        self._held = 0
        self._listeners: list[tuple[asyncio.Server, Listening]] = []
        self._opened: list[tuple[socket.socket, ssl.SSLContext | None, bool]] = []
        self._quiet = asyncio.Event()
        self._quiet.set()

    def register(
        self, service: str, methods: Mapping[str, ServedMethod], described: Mapping[str, MethodDescriptor]
    ) -> None:
        """Adds the methods of a service."""
        self._unary.register(service, methods, described)

    def open(self, listening: socket.socket, tls: ssl.SSLContext | None, *, is_shared: bool, is_local: bool) -> None:
        """Takes a listening socket, served from `start` on. `is_shared`: other processes accept from it too.

        `is_local`: only this machine reaches the port. Then it must be called by a name of this machine, or a web page
        could reach it by a name of its own, for which it gives this machine's address.
        """
        self._is_local = is_local
        self._opened.append((listening, tls, is_shared))

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._opened:
            bound, tls, is_shared = self._opened.pop(0)
            most = 0 if tls is None else 2 * self._limits.connections_per_address
            guarded, backlog = Listening(bound, most), 1 if is_shared else _ACCEPTED_AT_ONCE
            timeout_s = None if tls is None else self._limits.handshake_s
            made = loop.create_server(
                lambda: Http1(self), sock=guarded, ssl=tls, backlog=backlog, ssl_handshake_timeout=timeout_s
            )
            self._listeners.append((await made, guarded))
            guarded.listen(_BACKLOG)

    async def stop(self, grace_s: float) -> None:
        """Takes no more connections, lets running calls end for at most `grace_s`, then closes everything."""
        for bound, _, _ in self._opened:
            bound.close()
        for _, guarded in self._listeners:
            guarded.refuses = True
        for _ in range(2):  # asyncio needs two turns from an accepted socket to its connection
            await pause(0)
        for listener, _ in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.go_away()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._quiet.wait()
        for connection in list(self._connections):
            connection.abort()
        await pause(0)
        self._unary.close()

    # ── For connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def joined(self, connection: Http1) -> bool:
        self._connections.add(connection)
        self._quiet.clear()
        return self._addresses.join(connection.address)

    def left(self, connection: Http1) -> None:
        self._addresses.leave(connection.address)
        self._connections.discard(connection)
        if not self._connections:
            self._quiet.set()

    def keeps(self, connection: Http1, size: int) -> None:
        self._held += size
        if size > 0 and self._held > self._limits.requests_bytes:
            max(self._connections, key=lambda one: one.held).relieve()

    def admits(self, asked: Asked, call: HttpCall) -> Answer | None:
        origin = asked.headers.get("origin")
        if self._is_local and not _is_own_name(asked.headers.get("host", "")):
            why = "this port serves programs of this machine: call it by its address, or as localhost"
            return error(Aborted(Code.PERMISSION_DENIED, why), 421)
        if origin is not None and not self._origins & {"*", origin}:
            why = f"web pages of {origin[:200]} may not call: the operator names them with --http-origins"
            return error(Aborted(Code.PERMISSION_DENIED, why))
        if asked.verb == "OPTIONS" and origin is not None:
            allowed = ("access-control-allow-methods", "POST, GET"), ("access-control-allow-headers", _HEADERS)
            return Answer(204, "", b"", (*allowed, ("access-control-max-age", str(_REMEMBERED_S))))
        self._unary.may_send(call)
        return None

    async def answer(self, asked: Asked, call: HttpCall) -> Answer:
        return await self._unary.answer(asked, call)

    def extras(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        origin = asked.headers.get("origin")
        if origin is None or not self._origins & {"*", origin}:
            return ()
        return ("access-control-allow-origin", origin), ("vary", "origin")


def _is_own_name(host: str) -> bool:
    """Whether the header Host is an address, or localhost: no other name is sure to be one of this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.removeprefix("[").removesuffix("]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
