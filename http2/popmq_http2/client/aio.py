"""The channel for asyncio: all calls of an event loop's turn leave with one write.

await unary, write ─▶ Calling ─▶ at the end of the turn: one write        data_received ─▶ calls are over

Everything runs in the event loop in which the channel was made; nothing here may be called from another thread. TLS
and the buffers of the sockets are asyncio's own. The calls' deadlines share timers (deadlines.py), because almost all
calls end before theirs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from popmq_http2.client.call import CANCELLED, LATE, CallFailed, ClientCall, Status, Streaming
from popmq_http2.client.calling import Attempt, Calling
from popmq_http2.client.stream import NOT_HTTP2
from popmq_http2.client.target import Address, Options, addresses, attempt_failed, target
from popmq_http2.deadlines import Deadlines, Moment
from popmq_http2.status import Code, Metadata
from popmq_http2.transports import ReceiveBuffer, connected

if TYPE_CHECKING:
    import ssl

#: Seconds that closing waits for the server to end TLS, too.
_CLOSE_S = 0.5


class AsyncUnaryCall(ClientCall):
    """A call with one request and one answer, which one task awaits."""

    __slots__ = ("_channel", "_future", "moment")

    def __init__(
        self, channel: AsyncChannel, path: str, request: bytes, metadata: Metadata, timeout_s: float | None
    ) -> None:
        super().__init__(path, metadata, timeout_s, request=request)
        self._channel = channel
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.moment: Moment[ClientCall] | None = None

    def over(self) -> None:
        """Wakes the task. It may have been cancelled, and then no longer waits."""
        if self.moment is not None:
            self.moment.leave(self)
        if not self._future.done():
            self._future.set_result(None)

    def cancel(self) -> None:
        """Ends the call with CANCELLED, unless it is over."""
        self._channel.cancel(self, CANCELLED)

    async def result(self) -> bytes:
        """Waits for the answer. Raises CallFailed; cancelling the task cancels the call."""
        try:
            await self._future
        finally:
            if self.status is None:
                self.cancel()
        return self.answer()


class AsyncStreamCall(Streaming):
    """A stream of answers that one task reads."""

    __slots__ = ("_bell", "_channel")

    def __init__(self, channel: AsyncChannel, path: str, metadata: Metadata, request: bytes | None) -> None:
        self._bell = asyncio.Event()
        super().__init__(path, metadata, request, self._bell)
        self._channel = channel

    def cancel(self) -> None:
        """Ends the call with CANCELLED, unless it is over."""
        self._channel.cancel(self, CANCELLED)

    def write(self, message: bytes) -> None:
        """Sends a message; has no effect once the call is over."""
        if self.status is None:
            self.say(message)
            if self.connection is not None:
                self.connection.send(self)
                self._channel.flush_soon()

    def close(self) -> None:
        """Ends the call; drops what has not been read."""
        self.cancel()
        self.free()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The messages, until the stream ends. Raises CallFailed."""
        while True:
            message = self.take()
            if message is not None:
                if self.connection is not None:
                    self.connection.taken(self)
                    self._channel.flush_soon()
                yield message
            elif self.status is None:
                self._bell.clear()
                await self._bell.wait()
            elif self.status.code is Code.OK:
                return
            else:
                raise CallFailed(self.status)


class AsyncChannel:
    """Calls to one server, in one event loop. Connects at the first call, and again when the connection was lost."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, options: Options | None = None) -> None:
        """`where`: host:port, or as target.py says. Make it in the event loop. Raises ValueError."""
        self.options = options or Options()
        self.received = ReceiveBuffer()
        self._where = target(where)
        self._tls = tls
        self._calling = Calling(self._where, "http" if tls is None else "https", self.options, self._connect)
        self._loop = asyncio.get_running_loop()
        self._deadlines: Deadlines[ClientCall] = Deadlines(lambda call: self.cancel(call, LATE))
        self._links: list[Link] = []
        self._attempt: asyncio.Task[None] | None = None
        self._scheduled = False

    def unary(
        self, path: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None
    ) -> AsyncUnaryCall:
        """Begins a call: its `result` waits."""
        call = AsyncUnaryCall(self, path, request, metadata, timeout_s)
        if timeout_s is not None:
            call.moment = self._deadlines.add(call, timeout_s)
        self._calling.open(call)
        self.flush_soon()
        return call

    def stream(self, path: str, request: bytes | None, metadata: Metadata = ()) -> AsyncStreamCall:
        """Begins a call with a stream of answers. `request`: the only one; None: requests follow by `write`."""
        call = AsyncStreamCall(self, path, metadata, request)
        self._calling.open(call)
        self.flush_soon()
        return call

    def cancel(self, call: ClientCall, status: Status) -> None:
        """Ends a call that is not over."""
        self._calling.cancel(call, status)
        self.flush_soon()

    async def close(self) -> None:
        """Ends all calls with CANCELLED, and the connections."""
        self._calling.close()
        if self._attempt is not None:
            self._attempt.cancel()
        for link in list(self._links):
            link.connection.close(CANCELLED)
        self._flush()
        # An event loop that closes before its connections (TLS ends in several steps) warns, or fails as uvloop's does.
        if self._links:
            await asyncio.wait([link.gone for link in self._links], timeout=_CLOSE_S)
        if left := list(self._links):
            for link in left:
                link.abort()
            await asyncio.wait([link.gone for link in left], timeout=_CLOSE_S)
        await asyncio.sleep(0)

    # ── For connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def flush_soon(self) -> None:
        """Schedules a flush at the end of the event loop's turn."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def joined(self, link: Link) -> None:
        """A connection was made."""
        self._links.append(link)
        self.flush_soon()

    def left(self, link: Link) -> None:
        """A connection is gone."""
        if link in self._links:
            self._links.remove(link)
        self.flush_soon()

    def _flush(self) -> None:
        """Lets each connection send. A call that a lost connection returns schedules the next flush itself."""
        self._scheduled = False
        for link in list(self._links):
            link.send()

    def _connect(self) -> None:
        """Starts an attempt. The task is kept, or the event loop might forget it."""
        self._attempt = self._loop.create_task(self._connected())
        self._attempt.add_done_callback(self._attempted)

    def _attempted(self, attempt: asyncio.Task[None]) -> None:
        """A program that ends may cancel all tasks, and then close its clients: their calls must not wait for this."""
        if attempt.cancelled():
            self._calling.failed("cannot connect: the attempt was cancelled")

    async def _connected(self) -> None:
        """One attempt to connect."""
        # Once an attempt has a connection, that checks whether the server's SETTINGS arrive (Link._look).
        try:
            async with asyncio.timeout(self.options.connect_s):
                await self._opened(lambda: Link(self, self._calling))
        except TimeoutError:
            self._calling.failed("cannot connect: the server gave no sign of life")
        except NotImplementedError:
            loop = f"{type(self._loop).__module__}.{type(self._loop).__qualname__}"
            self._calling.failed(f"the event loop {loop} has no connections of this kind (TLS, or a unix socket)")
        except Exception as error:
            self._calling.failed(attempt_failed(error))

    async def _opened(self, make: Callable[[], Link]) -> None:
        """Connects to the first address that answers; each has its share of the time. Raises the last OSError."""
        until = self._loop.time() + self.options.connect_s
        last: OSError = OSError(f"{self._where.authority} has no address")
        found = await self._addresses()
        for index, (_, address) in enumerate(found):
            try:
                async with asyncio.timeout((until - self._loop.time()) / (len(found) - index)):
                    return await self._open(make, address)
            except OSError as error:  # TimeoutError is one
                last = error
        raise last

    async def _addresses(self) -> list[Address]:
        """Returns the addresses of the target. A name is resolved by the system, in a thread."""
        try:
            return addresses(self._where, socket.AI_NUMERICHOST)
        except OSError:
            return await asyncio.to_thread(addresses, self._where)

    async def _open(self, make: Callable[[], Link], address: Any) -> None:
        tls, name = self._tls, self._where.host or self._where.authority
        server = None if tls is None else name
        if self._where.path:
            await self._loop.create_unix_connection(make, address, ssl=tls, server_hostname=server)
        else:
            host, port, *scope = address
            host = f"{host}%{scope[1]}" if scope and scope[1] else host
            await self._loop.create_connection(make, host, port, ssl=tls, server_hostname=server)


class Link(asyncio.BufferedProtocol):
    """One connection: passes bytes on, and notices a server that no longer answers."""

    def __init__(self, channel: AsyncChannel, calling: Calling) -> None:
        self._channel = channel
        self._attempt = Attempt(calling)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.connection = self._attempt.connection
        #: Done when the transport is closed.
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def abort(self) -> None:
        """Closes the transport without waiting for the server."""
        if self._transport is not None:
            self._transport.abort()

    def send(self) -> None:
        """Sends the connection's pending bytes; closes it once it is finished."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        raw = self.connection.take()
        if raw:
            transport.write(raw)
        if self.connection.finished:
            transport.close()

    # ── Callbacks of asyncio ─────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, and TLS agreed on."""
        self._transport = connected(transport)
        self._transport.set_write_buffer_limits(1 << 20)
        layer = transport.get_extra_info("ssl_object")
        if layer is not None and layer.selected_alpn_protocol() != "h2":
            self._attempt.lost(NOT_HTTP2)
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self._channel.options.connect_s, self._look)
        self._channel.joined(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next read, which all connections of the channel share."""
        return self._channel.received.memory

    def buffer_updated(self, nbytes: int) -> None:
        """Handles the frames of a read."""
        data = self._channel.received.copy(nbytes)
        self._heard_s = self._loop.time()
        self.connection.feed(data)
        self._attempt.heard()
        self._channel.flush_soon()

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the calls. The server may have carried them out, so none is repeated here."""
        self._attempt.lost("Socket closed" if error is None else f"Socket closed: {error}")
        if self._timer is not None:
            self._timer.cancel()
        self._channel.left(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def _look(self) -> None:
        """Called by the timer: checks that the server has begun, and is alive while calls are under way."""
        options, connection = self._channel.options, self.connection
        wait_s = options.keepalive_timeout_s if connection.asked else options.keepalive_s
        left_s = wait_s - (self._loop.time() - self._heard_s)
        if not self._attempt.known or (connection.asked and left_s <= 0):
            self._attempt.lost("the server gave no sign of life")
            if self._transport is not None:
                self._transport.abort()
            return
        if left_s <= 0:
            left_s = options.keepalive_s
            if connection.busy:
                connection.ping()
                left_s = options.keepalive_timeout_s
                self._channel.flush_soon()
        self._timer = self._loop.call_later(max(left_s, 0.001), self._look)
