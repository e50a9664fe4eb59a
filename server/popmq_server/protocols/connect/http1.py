"""One connection of HTTP/1.1: h11 knows the protocol, this one bounds what a client may cost.

    idle ── head ─▶ receiving ── whole ─▶ running ── answer taken ─▶ idle
      │               │ too large, too slow, without a key: an answer, then the end
      └── silent for IDLE_S: the end

While a call runs the socket is still read, since only so the end of a client is noticed; then its call is cancelled.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from typing import Any, Protocol

import h11

from popmq_http2 import Aborted, Code
from popmq_http2.elapsed import monotonic
from popmq_http2.server.addresses import address_of, auth_context, shown
from popmq_http2.transports import connected
from popmq_server.protocols.connect import password
from popmq_server.protocols.connect.answers import Answer, error
from popmq_server.protocols.connect.call import HttpCall
from popmq_server.protocols.connect.reading import BODY_BYTES, Asked, too_large

HEAD_BYTES = 32 << 10
_VERSIONS = (b"1.0", b"1.1")
log = logging.getLogger("popmq.protocols")

#: Events of a request, such as its chunks, that are taken before other connections have their turn.
_EVENTS_A_TURN = 200
#: Bytes of later requests that are read while a call runs; then the client waits until these have been taken.
_AHEAD_BYTES = 64 << 10
#: Bytes of an answer that are written at a time. asyncio's TLS takes any number, and only then says that it is full.
_PIECE_BYTES = 256 << 10
#: The rest of an answer that was written: an empty part of it would keep it in memory.
_NOTHING = memoryview(b"")
#: Bytes of a request that was answered before its end, which are read and dropped.
_DROPPED_BYTES = 2 * BODY_BYTES
#: Interval of the looks at a connection; a request has to grow by this many bytes from one to the next.
LOOK_S, PROGRESS_BYTES = 20.0, 16 << 10
#: After this time without a request, or without taking an answer, the connection ends.
IDLE_S, STALLED_S = 60.0, 120.0


class PortOfConnections(Protocol):
    """The part of HttpPort that a connection uses."""

    def joined(self, connection: "Http1") -> bool:
        """Counts a connection; whether its address may have it."""

    def left(self, connection: "Http1") -> None:
        """Removes it."""

    def keeps(self, connection: "Http1", size: int) -> None:
        """Counts bytes of a request that is being received; negative: they are given back. Ends the largest when all
        have too many.
        """

    def admits(self, asked: Asked, call: HttpCall) -> Answer | None:
        """Looks at the head of a request: an answer at once, or None. Raises Aborted without a key."""

    async def answer(self, asked: Asked, call: HttpCall) -> Answer:
        """Carries a whole request out."""

    def extras(self, asked: Asked) -> tuple[tuple[str, str], ...]:
        """Headers of each answer to this request."""


class Http1(asyncio.Protocol):
    """A connection, from its first byte to its end."""

    def __init__(self, port: PortOfConnections) -> None:
        self._port = port
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer = self.address = ""
        self._asked: Asked | None = None
        #: Whether the request is HEAD: its answer has no body.
        self._is_head = False
        #: The answer to a head, which waits for the end of its request.
        self._ready: Answer | None = None
        self._call: HttpCall | None = None
        #: Not a list: chunks of two bytes would be objects of forty.
        self._body = bytearray()
        #: Bytes of the request that is being received, and those at the last look.
        self.held = self._held_before = 0
        self._ahead = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since_s = monotonic()
        self._full: asyncio.Future[None] | None = None
        self._lost: list[Callable[[], Any]] = []
        self._leaving = False
        #: The rest of a large answer.
        self._unsent = _NOTHING
        #: Bytes that are still dropped after the last answer; 0: nothing is.
        self._drops = 0

    # ── Callbacks of asyncio ─────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = connected(transport)
        self._peer, self.address = shown(transport.get_extra_info("peername")), address_of(self._transport)
        self._timer = self._loop.call_later(LOOK_S, self._look)
        if not self._port.joined(self):
            why = "this address has too many connections: close some"
            self._write(error(Aborted(Code.RESOURCE_EXHAUSTED, why))._replace(closes=True))

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._drops:
            self._drops -= min(len(data), self._drops)
            if not self._drops:
                self._transport.close()
            return
        if self._task is not None:
            self._ahead += len(data)
            if self._ahead > _AHEAD_BYTES:
                self._transport.pause_reading()
        self._state.receive_data(data)
        self._read()

    def eof_received(self) -> bool:
        """Closes the connection: who sends no more takes no answers either."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        elif self._call is not None:
            self._call.over()
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._drop()
        self._port.left(self)
        for tell in self._lost:
            tell()

    def pause_writing(self) -> None:
        self._full, self._since_s = self._loop.create_future(), monotonic()

    def resume_writing(self) -> None:
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    # ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        """Takes what h11 has found, until a call runs or more bytes are needed; the rest in the next turn."""
        left = _EVENTS_A_TURN
        try:
            while self._task is None and self._transport is not None and not self._transport.is_closing():
                if not left:
                    self._transport.pause_reading()
                    self._loop.call_soon(self._go_on)
                    break
                left -= 1
                event = self._state.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED or self._drops:
                    self._ahead = 0
                    self._transport.resume_reading()
                    break
                self._take(event)
        except h11.RemoteProtocolError as problem:
            status = problem.error_status_hint
            self._refuse(error(Aborted(Code.INVALID_ARGUMENT, f"this is not HTTP/1.1: {problem}"), status))
        except Aborted as aborted:
            self._refuse(error(aborted))

    def _take(self, event: object) -> None:
        """One event of h11. Raises Aborted."""
        if isinstance(event, h11.Request):
            self._begin(event)
        elif isinstance(event, h11.Data):
            self._keep(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self._run()
        elif isinstance(event, h11.ConnectionClosed) and self._transport is not None:
            self._transport.close()

    def _go_on(self) -> None:
        """The next turn of a request with many events."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._read()

    def _begin(self, request: h11.Request) -> None:
        """The head of a request: whoever may not call is answered before the body is read. Raises Aborted."""
        self._is_head = request.method == b"HEAD"
        if request.http_version not in _VERSIONS:
            why = "this port speaks HTTP/1.1; the port of gRPC speaks HTTP/2"
            self._refuse(error(Aborted(Code.UNIMPLEMENTED, why), 505))
            return
        if len(request.target) + sum(len(name) + len(value) for name, value in request.headers) > HEAD_BYTES:
            self._refuse(error(Aborted(Code.INVALID_ARGUMENT, f"the head has more than {HEAD_BYTES} bytes"), 431))
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        headers = password.proved(headers, is_private=self._is_private())
        asked = Asked(request.method.decode("latin-1"), request.target.decode("latin-1"), headers, b"")
        path = asked.target.partition("?")[0]
        names = auth_context(self._transport)
        self._call = HttpCall(path, tuple(headers.items()), self._peer, names, self._lost.append)
        self._asked, self._held_before, self._since_s = asked, -PROGRESS_BYTES, monotonic()
        self._ready = self._port.admits(asked, self._call)
        if self._ready is not None and headers.keys() & {"content-length", "transfer-encoding"}:
            self._refuse(self._ready)
            return
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > BODY_BYTES:
            raise too_large()
        if self._state.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))

    def _is_private(self) -> bool:
        """Whether nobody else can read what the client sends: TLS, or a client on this machine."""
        if self._transport is None or self._transport.get_extra_info("ssl_object") is not None:
            return True
        if self._peer.startswith("ipv6:[::1]:"):  # whose address is only a network
            return True
        return self.address == "" or ipaddress.ip_address(self.address).is_loopback

    def _keep(self, data: bytes | bytearray) -> None:
        """Keeps bytes of a body. Raises Aborted."""
        self._body += data
        self.held += len(data)
        self._port.keeps(self, len(data))
        if self.held > BODY_BYTES:
            raise too_large()

    def _run(self) -> None:
        """Starts the call of a whole request, unless the head was answered."""
        if self._asked is not None and self._call is not None:
            self._asked = self._asked._replace(body=bytes(self._body))
            self._task = self._loop.create_task(self._answered(self._asked, self._call), name=self._call.path)

    async def _answered(self, asked: Asked, call: HttpCall) -> None:
        """Carries one call out, and waits until its answer is taken; then the next request is read."""
        ready, self._ready = self._ready, None
        try:
            self._write(ready or await self._port.answer(asked, call))
            while self._full is not None or self._unsent:
                await self._taken()
        except Exception:  # a bug of ours must not leave a connection without an answer
            log.exception("the connection of %s ends: the HTTP port failed", self._peer)
            self.abort()
        finally:
            call.over()
            self._task, self._call, self._asked = None, None, None
            self._drop()
        self._next()

    async def _taken(self) -> None:
        """Waits until the client has taken what was written, or else writes the next piece of an answer."""
        if self._full is not None:
            await self._full
        elif self._transport is not None and not self._transport.is_closing():
            piece, self._unsent = self._unsent[:_PIECE_BYTES], self._unsent[_PIECE_BYTES:] or _NOTHING
            self._transport.write(piece)
        else:
            self._unsent = _NOTHING

    def _next(self) -> None:
        """Reads the next request of the connection, if there may be one."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._leaving or self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            self._transport.close()
            return
        self._state.start_next_cycle()
        self._since_s, self._is_head = monotonic(), False
        self._read()

    def _refuse(self, answer: Answer) -> None:
        """Answers before the request is whole, and ends the connection."""
        if self._call is not None:
            self._call.over()
        self._drop()
        self._write(answer._replace(closes=True))
        self._asked = self._call = None

    def _drop(self) -> None:
        """Frees the body."""
        self._port.keeps(self, -self.held)
        self._body, self.held = bytearray(), 0

    # ── Answers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, answer: Answer) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        closes = answer.closes or self._leaving
        headers = [*answer.headers]
        if answer.kind:
            headers += [("content-type", answer.kind), ("content-length", str(len(answer.body)))]
        headers += self._port.extras(self._asked) if self._asked is not None else ()
        headers += [("connection", "close")] if closes else []
        if self._state.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._transport.close()
            return
        content = [] if self._is_head else [h11.Data(answer.body)]
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]  # an origin may have any bytes
        self._send(h11.Response(status_code=answer.status, headers=raw), *content, h11.EndOfMessage())
        if closes and not self._unsent:
            self._hang_up(self._transport)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        """Ends the connection; if its client still sends a request, once that client has read the answer.

        A socket that is closed while bytes come is reset, and most clients then see a broken connection only.
        """
        if self._state.their_state is not h11.SEND_BODY:
            transport.close()
            return
        self._drops, self._since_s = _DROPPED_BYTES, monotonic()
        transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()

    def _send(self, *events: h11.Event) -> None:
        assert self._transport
        raw = memoryview(b"".join(self._state.send(event) or b"" for event in events))
        self._unsent = raw[_PIECE_BYTES:] or _NOTHING
        self._transport.write(raw[:_PIECE_BYTES])

    # ── The end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        """Ends a connection whose client is silent, sends too slowly, or does not take its answer."""
        transport, waited_s = self._transport, monotonic() - self._since_s
        if transport is None:
            return
        self._timer = self._loop.call_later(LOOK_S, self._look)
        if self._full is not None:
            if waited_s >= STALLED_S:
                transport.abort()
        elif self._task is not None:
            return
        elif self._drops:
            if waited_s >= LOOK_S:
                transport.close()
        elif self._asked is None:
            if waited_s >= IDLE_S:
                transport.close()
        elif self.held - self._held_before < PROGRESS_BYTES:
            self._refuse(error(Aborted(Code.DEADLINE_EXCEEDED, "the rest of the request does not come"), 408))
        self._held_before = self.held

    def relieve(self) -> None:
        """Ends the request that is being received: all together hold too much.

        A call that runs may be carried out already, so that its client is not told that nothing was done.
        """
        if self._task is not None:
            self._drop()
            self.abort()
            return
        why = "the memory for requests is full, and this client holds most of it: send less at a time, and try later"
        self._refuse(error(Aborted(Code.RESOURCE_EXHAUSTED, why)))

    def go_away(self) -> None:
        """Ends the connection after the call that runs."""
        self._leaving = True
        # One of TLS that is closed a second time can no longer be aborted.
        if self._task is None and self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()
