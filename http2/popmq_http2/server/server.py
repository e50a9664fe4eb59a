"""A gRPC server: methods by their full names, ports, tasks of the handlers, and shutdown.

    async def echo(request: bytes, call: Call) -> bytes: ...

    server = Server({"/demo.Echo/Say": unary(echo)}.get)
    port = await server.listen("127.0.0.1", 0)
    await server.stop(grace_s=5)

Handlers take and return bytes: the server does not look into messages. A handler that raises Aborted (or awaits
`call.abort`) ends its call with that status; any other exception is logged and ends it with UNKNOWN.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from popmq_http2.deadlines import Deadlines
from popmq_http2.inbox import Buffered
from popmq_http2.limits import Limits
from popmq_http2.server.addresses import Addresses
from popmq_http2.server.call import Call, Method
from popmq_http2.server.connection import Connection
from popmq_http2.server.listening import Listening
from popmq_http2.server.streams import expire
from popmq_http2.server.turns import AddressTurns
from popmq_http2.status import QUOTED_MAX, Aborted, Code
from popmq_http2.transports import ReceiveBuffer

log = logging.getLogger("popmq_http2")

#: Connections that the operating system queues until we accept them, and those accepted in one turn of the event loop:
#: asyncio has one number for both, and a thousand new connections at once hold up the open ones for 0.1 s.
_BACKLOG, _ACCEPTED_AT_ONCE = 1024, 32
#: Memory of the task and the handler of a stream, which runs from the start; other calls wait for their request.
STREAM_BYTES = 4_000


def unary(handler: Callable[[bytes, Call], Awaitable[bytes]]) -> Method:
    """One message in, one out."""
    return Method(handler)


def server_streaming(handler: Callable[[bytes, Call], AsyncIterator[bytes] | Awaitable[None]]) -> Method:
    """One message in, many out."""
    return Method(handler, streams_out=True)


def client_streaming(handler: Callable[[Call], Awaitable[bytes]]) -> Method:
    """Many messages in, one out."""
    return Method(handler, streams_in=True)


def bidirectional(handler: Callable[[Call], AsyncIterator[bytes] | Awaitable[None]]) -> Method:
    """Many messages in, many out."""
    return Method(handler, streams_in=True, streams_out=True)


class Server:
    """All connections of all ports. Make and use it inside one event loop."""

    def __init__(
        self,
        find: Callable[[str], Method | None],
        limits: Limits | None = None,
        check: Callable[[Call], None] | None = None,
    ) -> None:
        """`find`: returns the method of a path, or None.

        `check`: raises Aborted for a call of a caller that may make none. It is asked before the handler begins, and
        only about calls of connections that take much room (Limits.unproved_bytes).
        """
        self.limits = limits or Limits()
        self.buffered = Buffered()
        self.received = ReceiveBuffer()
        self.addresses = Addresses(self.limits)
        self.turns = AddressTurns()
        self._find = find
        self.check = check
        self._deadlines: Deadlines[Call] = Deadlines(expire)
        self._loop = asyncio.get_running_loop()
        self._listeners: list[asyncio.Server] = []
        self._listening: list[Listening] = []
        self._connections: dict[Connection, None] = {}  # in their order: a set's differs from process to process
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.stopping = False

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Opens a port and returns it. Raises OSError. `tls` needs "h2" among its ALPN protocols."""
        bound = socket.create_server((host, port), backlog=_BACKLOG)
        opened: int = bound.getsockname()[1]
        await self.serve(bound, tls)
        return opened

    async def serve(
        self, listening: socket.socket, tls: ssl.SSLContext | None = None, *, is_shared: bool = False
    ) -> None:
        """Serves on a listening socket, which is detached.

        `is_shared`: other processes accept from it too, so this one takes one connection at a time: while it does, the
        others take theirs.
        """
        guarded = Listening(listening, 0 if tls is None else 2 * self.limits.connections_per_address)
        options: dict[str, Any] = {} if tls is None else {"ssl_handshake_timeout": self.limits.handshake_s}
        listener = await self._loop.create_server(
            lambda: Connection(self), sock=guarded, ssl=tls, backlog=1 if is_shared else _ACCEPTED_AT_ONCE, **options
        )
        guarded.listen(_BACKLOG)
        self._listening.append(guarded)
        self._listeners.append(listener)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, gives running calls at most `grace_s` seconds, then closes everything."""
        self.stopping = True
        for guarded in self._listening:
            guarded.refuses = True
        for _ in range(2):  # asyncio needs two turns from an accepted socket to its connection
            await asyncio.sleep(0)
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.go_away()
        try:
            async with asyncio.timeout(grace_s):
                await self._quiet.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.end_calls()
            await asyncio.sleep(0)
            # A client that does not take its last bytes, or does not answer the end of TLS, keeps no socket open.
            for connection in list(self._connections):
                connection.abort()
        await asyncio.sleep(0)

    # ── For connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def joined(self, connection: Connection) -> None:
        """Registers a new connection; `stop` will end it."""
        self._connections[connection] = None
        self._quiet.clear()

    def left(self, connection: Connection) -> None:
        """Removes an ended connection; the last one ends the wait of `stop`."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._quiet.set()

    def relieve(self) -> None:
        """Ends the largest requests of the connection that holds most, of the address whose connections do.

        So a client that fills the memory for requests does not shut out the others; a new request is refused only when
        no other holds more.
        """
        held: Counter[str] = Counter()
        for connection in self._connections:
            held[connection.address] += connection.held
        if held:
            address = max(held, key=held.__getitem__)
            of_address = (one for one in self._connections if one.address == address)
            max(of_address, key=lambda one: one.held).relieve()

    def opened(self, call: Call) -> None:
        """Starts a new call: its deadline, and its handler once the request is there."""
        method = self._find(call.head.path)
        if method is None:
            call.end(Code.UNIMPLEMENTED, f"there is no method {call.path[:QUOTED_MAX]}")
            return
        call.method = method
        if call.head.timeout_s is not None:
            call.deadline = self._deadlines.add(call, call.head.timeout_s)
        if method.streams_in:
            call.inbox.grow(STREAM_BYTES)
            self._start(call, method)
        elif call.inbox.ended:
            self.fed(call)

    def fed(self, call: Call) -> None:
        """Handles new messages of a call, or their end."""
        method = call.method
        if call.task is not None:
            call.wake()
        elif method is not None and call.inbox.ended and call.ending is None:
            if len(call.inbox.messages) == 1:
                self._start(call, method)
            else:
                call.end(Code.INTERNAL, f"{call.path} takes one message, {len(call.inbox.messages)} came")

    def _start(self, call: Call, method: Method) -> None:
        """Starts the handler in its own task, which a deadline or a reset cancels."""
        call.task = self._loop.create_task(self._run(call, method), name=call.head.path)
        call.running.count += 1

    async def _run(self, call: Call, method: Method) -> None:
        """Runs one handler and ends its call with the outcome."""
        call.entered = True
        try:
            asked = (call,) if method.streams_in else (call.inbox.take(), call)
            if not method.streams_out:
                call.answer(await method.handler(*asked))
            else:
                await _stream(call, method.handler(*asked))
                call.end(Code.OK, "")
        except Aborted as aborted:
            call.end(aborted.code, aborted.message, aborted.metadata)
        except asyncio.CancelledError:
            call.end(Code.CANCELLED, "the call was cancelled")
        except Exception as error:
            log.exception("the handler of %s raised", call.path)
            call.end(Code.UNKNOWN, f"the handler raised {type(error).__name__}")
        finally:
            call.running.count -= 1


async def _stream(call: Call, answer: Any) -> None:
    """Writes what an async generator yields; a coroutine writes by itself."""
    if not hasattr(answer, "__anext__"):
        await answer
        return
    try:
        async for message in answer:
            await call.write(message)
    finally:
        await answer.aclose()
