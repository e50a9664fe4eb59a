"""One connection: received bytes, frames that concern the connection as a whole, keepalive, and its end.

A violation of the protocol ends the stream (StreamFault) or the connection (ConnectionFault), as RFC 9113 requires for
each case; where it leaves the choice, the connection ends. Frames that ask for work without giving any cost points of
the budget, and so does every violation.

    open ── go_away: GOAWAY 2^31 - 1, PING ─▶ PING answered: GOAWAY with the last stream ─▶ last call ends ─▶ closed
      └──── a fault: GOAWAY with its code ────────────────────────────────────────────────────────────────────▶

Calls that come before the PING is answered are served: their client had not read the GOAWAY. It must not have to repeat
them, because grpcio repeats them on this connection at once, and then loses some: these never end, whatever their
deadline.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Protocol

from popmq_http2 import frames
from popmq_http2.budget import TURN_POINTS, Budget, Flood
from popmq_http2.elapsed import monotonic
from popmq_http2.frame_reader import FrameReader
from popmq_http2.frames import U32, ConnectionFault, StreamFault, frame, read_settings, settings
from popmq_http2.server.addresses import Addresses, address_of, shown
from popmq_http2.server.call import Call
from popmq_http2.server.outlet import Outlet
from popmq_http2.server.streams import ServerOfStreams, Streams
from popmq_http2.status import Code
from popmq_http2.transports import ReceiveBuffer, connected

log = logging.getLogger("popmq_http2")

#: The payloads of our own PINGs.
_KEEPALIVE, _GOING = b"keepaliv", b"going..."
#: The first line of a request of HTTP/1, and the answer to it: curl and browsers show no frame of HTTP/2.
_HTTP1 = re.compile(rb"[A-Z]+ [^\r\n]* HTTP/1\.[01]\r?\n")
_WHY = b"this port speaks gRPC, over HTTP/2 only: send requests of HTTP/1.1 to the port that the server has for them\n"
_TO_HTTP1 = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_WHY), _WHY)
)
#: One point of the budget pays for this many bytes of SETTINGS, or calls whose windows they change.
_SETTINGS_BYTES, _CALLS_PER_POINT = 64, 50
#: Most bytes of small requests that are ended at once: 700 calls.
_RELIEVED_BYTES = 1 << 20


class ServerOfConnections(ServerOfStreams, Protocol):
    """The part of Server that a connection uses."""

    received: ReceiveBuffer
    addresses: Addresses
    stopping: bool

    def joined(self, connection: Connection) -> None:
        """Registers a new connection."""

    def left(self, connection: Connection) -> None:
        """Removes an ended connection."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection: callbacks of asyncio, a handler for each type of frame, and the end.

    One timer, at the keepalive intervals, checks whether the client has begun, is alive, and takes what it asked for.
    """

    def __init__(self, server: ServerOfConnections) -> None:
        self._server = server
        self._limits = server.limits
        self._received = server.received
        self._budget = Budget(self._limits)
        self._outlet = Outlet(self._limits, self._budget, self._closed)
        self._streams = Streams(server, self._budget, self._outlet)
        take = {
            frames.DATA: self._streams.on_data,
            frames.HEADERS: self._on_headers,
            frames.PRIORITY: self._on_priority,
            frames.RST_STREAM: self._streams.on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window,
        }
        self._reader = FrameReader(self._limits, self._budget, take, self._streams.on_block, self._streams.reset)
        self._transport: asyncio.Transport | None = None
        self.address = ""
        self._greeted = self._agreed = self._gives_way = self._leaving = False
        self._heard_s = monotonic()
        self._asked_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> int:
        """Bytes of requests that no handler has taken, and of large headers."""
        return self._budget.held

    # ── Callbacks of asyncio ─────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        limits, self._transport = self._limits, connected(transport)
        self._outlet.connect(self._transport, shown(transport.get_extra_info("peername")))
        self._server.joined(self)
        self.address = address_of(self._transport)
        if not self._server.addresses.join(self.address):
            most = limits.connections_per_address
            why = f"an address may have {most} connections: close some"
            self._break(ConnectionFault(frames.ENHANCE_YOUR_CALM, why))
            return
        self._budget.start(self._server.addresses.points(self.address))
        self._timer = asyncio.get_running_loop().call_later(limits.handshake_s, self._look)
        if self._server.stopping:
            self.go_away()

    def _greet(self) -> None:
        """Sends SETTINGS, once, before all else. It waits for the client's first bytes, which may be of HTTP/1.1."""
        if self._greeted:
            return
        self._greeted, limits = True, self._limits
        values = {
            frames.ENABLE_PUSH: 0,
            frames.MAX_CONCURRENT_STREAMS: limits.streams,
            frames.INITIAL_WINDOW_SIZE: limits.stream_window,
            frames.MAX_FRAME_SIZE: limits.frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: limits.headers_bytes,
        }
        self._outlet.control(settings(values))
        self._streams.open_window()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next read, which all connections share."""
        return self._received.memory

    def buffer_updated(self, nbytes: int) -> None:
        """The next read is there."""
        self.data_received(self._received.copy(nbytes))

    def data_received(self, data: bytes) -> None:
        """Handles all received frames; the answers leave at the end of the event loop's turn.

        A bug here must not leave a connection that is not read: it is logged, and the connection ends.
        """
        self._heard_s, self._asked_s = monotonic(), None
        if not self._greeted:
            if _HTTP1.match(data):
                log.debug("the connection of %s ends: it speaks HTTP/1", self._outlet.peer)
                self._outlet.control(_TO_HTTP1)
                self._end()
                return
            self._greet()
        self._budget.turn = TURN_POINTS if self._server.turns.left else -1
        try:
            self._reader.feed(data)
            if self._streams.closing:  # the client may have reset the last call
                self._end_if_done()
            if self._budget.turn < 0:
                self._give_way()
        except ConnectionFault as fault:
            if isinstance(fault, Flood):
                self._server.addresses.flooded(self.address)
            self._break(fault)
        except Exception:
            log.exception("the connection of %s ends: the server failed", self._outlet.peer)
            self._break(ConnectionFault(frames.INTERNAL_ERROR, "a bug of the server"))

    def _give_way(self) -> None:
        """Reads and handles no more for as long as this turn took: the other connections get half of the time.

        Where all connections have used up the turn, it waits in line.
        """
        if self._transport is None or self._gives_way:
            return
        self._gives_way = True
        self._transport.pause_reading()
        if self._server.turns.left:
            asyncio.get_running_loop().call_later(monotonic() - self._heard_s, self.go_on)
        else:
            self._server.turns.wait(self.address, self.go_on)

    def go_on(self) -> None:
        """Handles the frames that waited, and reads again after them."""
        self._gives_way = False
        if self._transport is None or self._transport.is_closing():
            return
        self.data_received(b"")
        if not self._gives_way and not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """Closes the connection: a gRPC client that stops sending wants no answers either."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Cancels the handlers of open calls: their answers have no reader."""
        if self._timer is not None:
            self._timer.cancel()
        self._streams.drop_all()
        self._outlet.lost()
        self._server.addresses.leave(self.address)
        self._server.left(self)

    def pause_writing(self) -> None:
        """Holds answers back while the socket is full; frames are still read."""
        self._outlet.pause()

    def resume_writing(self) -> None:
        self._outlet.resume()

    # ── Frames ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        self._reader.headers(flags, stream_id, payload)

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Validates a PRIORITY frame as the protocol requires, and ignores it. No reset may name an idle stream."""
        self._budget.spend("PRIORITY")
        if not stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY of no stream")
        code, why = frames.PROTOCOL_ERROR, "a stream depends on itself"
        if len(payload) != 5:
            code, why = frames.FRAME_SIZE_ERROR, "a PRIORITY frame has 5 bytes"
        elif U32.unpack_from(payload)[0] & frames.WINDOW_MAX != stream_id:
            return
        is_idle = stream_id > self._streams.last_id or not stream_id & 1
        raise ConnectionFault(code, why) if is_idle else StreamFault(stream_id, code, why)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Applies the client's settings and acknowledges them; an acknowledgement of ours needs no answer."""
        if stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "an answer to SETTINGS has no bytes")
            if self._agreed:
                self._budget.spend("SETTINGS")
            self._agreed = True
            return
        self._budget.spend("SETTINGS", 1 + len(payload) // _SETTINGS_BYTES)
        for number, value in read_settings(payload).items():
            self._set(number, value)
        self._outlet.control(frame(frames.SETTINGS, frames.ACK, 0))

    def _set(self, number: int, value: int) -> None:
        """Applies one setting, its last value in a frame; ignores those that limit only clients.

        A new window changes every open call, so its price grows with their number: otherwise one cheap frame would cost
        10,000 steps, and a frame full of them millions.
        """
        if number == frames.INITIAL_WINDOW_SIZE:
            self._budget.spend("SETTINGS of open streams", len(self._streams.calls) // _CALLS_PER_POINT)
            change, self._outlet.call_window = value - self._outlet.call_window, value
            for call in list(self._streams.calls.values()):
                try:
                    self._outlet.widen_call(call, change)
                except StreamFault as fault:
                    raise ConnectionFault(frames.FLOW_CONTROL_ERROR, str(fault)) from None
        elif number == frames.MAX_FRAME_SIZE:
            self._outlet.frame_bytes = value
        elif number == frames.HEADER_TABLE_SIZE:
            self._outlet.resize_table(value)

    def _on_push(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a client does not push")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Answers a PING. The answer to one of ours shows what the client has read: a GOAWAY, or an answer."""
        if stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a PING has 8 bytes")
        if flags & frames.ACK and self._streams.arrivals.acknowledged(payload):
            self._end_if_done()
            return
        self._budget.spend("PING")
        if not flags & frames.ACK:
            self._outlet.control(frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _GOING and self._leaving:
            self._refuse_more()

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Validates the client's GOAWAY: we open no streams, and its own streams continue to their ends."""
        self._budget.spend("GOAWAY")
        if stream_id:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a GOAWAY has 8 bytes and more")

    def _on_window(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Widens the connection's or a stream's window; ignores ended streams."""
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "a WINDOW_UPDATE has 4 bytes")
        self._budget.spend("WINDOW_UPDATE")
        size = U32.unpack(payload)[0] & frames.WINDOW_MAX
        if stream_id > self._streams.last_id or (stream_id and not stream_id & 1):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that was never open")
        if not size and stream_id:
            raise StreamFault(stream_id, frames.PROTOCOL_ERROR, "a WINDOW_UPDATE by nothing")
        if not size:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a WINDOW_UPDATE by nothing")
        if not stream_id:
            self._outlet.widen(size)
        elif call := self._streams.calls.get(stream_id):
            self._outlet.widen_call(call, size)

    # ── Keepalive and the end ────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        """Called by the timer: checks that the client has begun, is alive, reads its answers, and goes on
        with its requests."""
        now, limits = monotonic(), self._limits
        stalled = self._outlet.holds_back and now - self._outlet.moved_s > limits.stalled_s
        asked_s = self._asked_s or self._streams.arrivals.asked_s
        stalled |= asked_s is not None and now - asked_s > limits.stalled_s
        silent = asked_s is not None and now - max(asked_s, self._heard_s) >= limits.keepalive_timeout_s
        if not self._reader.begun or stalled or silent:
            log.debug("the connection of %s ends: it sent nothing, or read nothing, for too long", self._outlet.peer)
            self.abort()
            return
        if asked_s is None and now - self._heard_s >= limits.keepalive_s:
            asked_s = self._asked_s = now
            self._outlet.control(frame(frames.PING, 0, 0, _KEEPALIVE))
        self._streams.end_stuck()
        wait_s = limits.keepalive_s if asked_s is None else limits.keepalive_timeout_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _closed(self, call: Call) -> None:
        """Called after the last frame of a call."""
        self._streams.closed(call)
        if self._streams.closing:
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._streams.is_done:
            asyncio.get_running_loop().call_soon(self._end)

    def flush(self) -> None:
        """Writes at once the bytes that are due at the end of this turn of the event loop."""
        self._outlet.flush()

    def go_away(self) -> None:
        """Asks the client to make no more calls, and ends the connection after the last one (RFC 9113, section 6.8).

        A client that has said nothing yet has no call to lose.
        """
        if not self._leaving:
            self._leaving = True
            self._greet()
            self._outlet.control(frame(frames.GOAWAY, 0, 0, U32.pack(frames.WINDOW_MAX) + U32.pack(frames.NO_ERROR)))
            self._outlet.control(frame(frames.PING, 0, 0, _GOING))
            if not self._reader.begun:
                self._end()

    def _refuse_more(self) -> None:
        """The client has read the first GOAWAY: the second one names its last call, and further ones are refused."""
        self._streams.closing = True
        self._outlet.control(frame(frames.GOAWAY, 0, 0, U32.pack(self._streams.last_id) + U32.pack(frames.NO_ERROR)))
        self._end_if_done()

    def end_calls(self) -> None:
        """Ends the calls that are still open after the grace period, and closes the connection."""
        self._streams.end_all(Code.UNAVAILABLE, "the server is stopping")
        self._end()

    def relieve(self) -> None:
        """Ends the largest requests, until there is room again; all, if the client does not read their ends.

        Half of them or 1 MiB, so that a client that holds many small ones causes this seldom, and not at each frame,
        and so that the ends of thousands do not make one turn.
        """
        held = self._budget.held
        enough = max(held // 2, held - _RELIEVED_BYTES)
        self._streams.relieve(enough)
        self._outlet.flush()
        if self._budget.held > enough:
            self._streams.drop_all()
            self.abort()

    def abort(self) -> None:
        """Closes the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def _break(self, fault: ConnectionFault) -> None:
        log.debug("the connection of %s ends: %s", self._outlet.peer, fault)
        self._greet()
        last, code = U32.pack(self._streams.last_id), U32.pack(fault.code)
        self._outlet.control(frame(frames.GOAWAY, 0, 0, last + code + str(fault).encode()))
        self._end()

    def _end(self) -> None:
        """Closes once everything has been written; aborts after a while if the client does not take it."""
        self._reader.stop()
        self._outlet.flush()
        if self._transport is not None and not self._transport.is_closing():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(self._limits.handshake_s, self._transport.abort)
            self._transport.resume_reading()  # one of TLS that is paused would not close
            self._transport.close()
