"""One connection: frames in, calls begun, fed and ended.

    bytes ─▶ frames ─▶ HEADERS, CONTINUATION ─▶ block ─▶ Head ─▶ Call ─▶ handler's task
                       DATA ─────────────────────────────────▶ its Inbox ──┘
                       SETTINGS, PING, WINDOW_UPDATE, RST_STREAM, GOAWAY

What the protocol forbids ends the stream (StreamFault) or the connection (ConnectionFault), as RFC 9113 says for each
case; where it leaves the choice, the connection ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from popmq_http2.budget import Budget
from popmq_http2.call import Call
from popmq_http2.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEAD,
    HEAD_BYTES,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    INTERNAL_ERROR,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING,
    SETTINGS,
    STREAM_CLOSED,
    U32,
    WINDOW_MAX,
    WINDOW_UPDATE,
    ConnectionFault,
    StreamFault,
    frame,
    settings,
)
from popmq_http2.hpack import CompressionError, Decoder, TooManyHeaders
from popmq_http2.inbox import Inbox
from popmq_http2.outlet import Outlet
from popmq_http2.request import Head, Malformed, check_trailers, head
from popmq_http2.settings import checked
from popmq_http2.status import Aborted, Code

if TYPE_CHECKING:
    from popmq_http2.server import Server

log = logging.getLogger("popmq_http2")

#: Streams that we have ended while the client may not know it yet: what it still sends on them is no mistake.
_ENDED_MAX = 1_000
#: Blocks of headers that are known by their bytes, and how long one may be.
_BLOCKS_MAX, _BLOCK_BYTES = 128, 1024
#: What our own PINGs carry.
_KEEPALIVE, _GOING = b"keepaliv", b"going..."


class Connection(asyncio.Protocol):
    """The protocol of one connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limits = server.limits
        self._budget = Budget(self._limits)
        self._outlet = Outlet(self._limits, self._budget, self._closed)
        self._transport: asyncio.Transport | None = None
        self._take: Callable[[bytes, int], int] = self._take_preface
        #: Bytes of a frame that has not come whole, how many there are, and how many it needs.
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = len(PREFACE)
        self._decoder = Decoder()
        self._blocks: dict[bytes, Head] = {}
        self._blocks_version = 0
        #: A header block whose last frame has not come: stream, flags, frames; and its bytes.
        self._gathering: tuple[int, int, int] | None = None
        self._block = b""
        self.calls: dict[int, Call] = {}
        self._running = 0
        self._last_id = 0
        self._ended: deque[int] = deque(maxlen=_ENDED_MAX)
        self._window_in = DEFAULT_WINDOW
        self._ours_agreed = False
        self._heard_s = monotonic()
        self._asked_s: float | None = None
        self._going = False
        self._timer: asyncio.TimerHandle | None = None
        self._handle = {
            DATA: self._on_data,
            HEADERS: self._on_headers,
            PRIORITY: self._on_priority,
            RST_STREAM: self._on_reset,
            SETTINGS: self._on_settings,
            PUSH_PROMISE: self._on_push,
            PING: self._on_ping,
            GOAWAY: self._on_goaway,
            WINDOW_UPDATE: self._on_window,
            CONTINUATION: self._on_continuation,
        }

    # ── asyncio's side ───────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._outlet.connect(transport, _peer(transport))
        self._server.joined(self)
        self._timer = asyncio.get_running_loop().call_later(self._limits.handshake_s, self._look)
        limits = self._limits
        self._outlet.control(
            settings(
                {
                    MAX_CONCURRENT_STREAMS: limits.streams,
                    INITIAL_WINDOW_SIZE: limits.stream_window,
                    MAX_FRAME_SIZE: limits.frame_bytes,
                    MAX_HEADER_LIST_SIZE: limits.headers_bytes,
                }
            )
        )
        self._outlet.control(frame(WINDOW_UPDATE, 0, 0, U32.pack(limits.connection_window - DEFAULT_WINDOW)))
        self._window_in = limits.connection_window

    def data_received(self, data: bytes) -> None:
        self._heard_s, self._asked_s = monotonic(), None
        if self._pieces:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data, self._pieces = b"".join(self._pieces), []
        try:
            at = self._take(data, 0)
        except ConnectionFault as fault:
            self._break(fault)
            return
        except Exception:
            log.exception("a connection of %s ends by a mistake of ours", self._outlet.peer)
            self._break(ConnectionFault(INTERNAL_ERROR, "a mistake of the server"))
            return
        if at < len(data):
            self._pieces, self._have = [data[at:]], len(data) - at

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self.calls.values()):
            self._drop(call)
        self._server.left(self)

    def pause_writing(self) -> None:
        self._outlet.pause()

    def resume_writing(self) -> None:
        self._outlet.resume()

    # ── Frames ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_preface(self, data: bytes, at: int) -> int:
        """The first bytes of a client that speaks HTTP/2."""
        if len(data) < len(PREFACE) and PREFACE.startswith(data):
            return at
        if not data.startswith(PREFACE):
            raise ConnectionFault(PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._take = self._take_first
        return self._take_first(data, len(PREFACE))

    def _take_first(self, data: bytes, at: int) -> int:
        """The first frame has to be SETTINGS."""
        if len(data) - at >= HEAD_BYTES:
            if data[at + 3] != SETTINGS or data[at + 4] & ACK:
                raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._take = self._take_frames
            return self._take_frames(data, at)
        self._need = HEAD_BYTES
        return at

    def _take_frames(self, data: bytes, at: int) -> int:
        """All whole frames; where the first one begins that is not whole."""
        end, handle, most = len(data), self._handle, self._limits.frame_bytes
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream_id = HEAD.unpack_from(data, at)
            length = high << 8 | low
            if length > most:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {length} bytes; at most {most} are taken")
            stop = at + HEAD_BYTES + length
            if stop > end:
                self._need = stop - at
                return at
            if self._gathering is not None and kind != CONTINUATION:
                raise ConnectionFault(PROTOCOL_ERROR, "a header block is cut by another frame")
            take = handle.get(kind)
            if take is not None:
                try:
                    take(flags, stream_id & WINDOW_MAX, data[at + HEAD_BYTES : stop])
                except StreamFault as fault:
                    self._reset(fault)
            else:
                self._budget.spend("of an unknown type")
            at = stop
        self._need = HEAD_BYTES
        return at

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._window_in -= size
        if self._window_in < 0:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "more DATA than the window of the connection allows")
        # The connection's window is given back at once: streams and Buffered bound what is held.
        if self._window_in < self._limits.connection_window // 2:
            back = self._limits.connection_window - self._window_in
            self._window_in += back
            self._outlet.control(frame(WINDOW_UPDATE, 0, 0, U32.pack(back)))
        ends = bool(flags & END_STREAM)
        if size < self._limits.tiny_data_bytes and not ends:
            self._budget.spend("tiny DATA")
        data = _unpadded(payload, flags) if flags & PADDED else payload
        call = self.calls.get(stream_id)
        if call is None or call.inbox.ended:
            self._not_open(stream_id, call, "DATA")
            return
        call.window_in -= size
        if call.window_in < 0:
            raise StreamFault(stream_id, FLOW_CONTROL_ERROR, "more DATA than the window of the stream allows")
        self._feed(call, data, ends, size)

    def _feed(self, call: Call, data: bytes, ends: bool, size: int) -> None:
        """Gives a call what its client sent. `size`: what it took of the window."""
        if call.body_left >= 0:
            call.body_left -= len(data)
            if call.body_left < 0 or (ends and call.body_left):
                raise StreamFault(call.stream_id, PROTOCOL_ERROR, "the DATA are not as long as content-length says")
        inbox = call.inbox
        try:
            if data and call.head.refusal is None:
                inbox.add(data)
            if ends:
                inbox.end()
        except Aborted as aborted:
            self._outlet.end(call, aborted.code, str(aborted))
            self._cancel(call)
            return
        if not ends:
            # What completes no message is given back at once, or a message larger than the window never came.
            held = inbox.waiting
            back = self._limits.stream_window - call.window_in - held
            if back >= self._limits.stream_window // 2:
                self._outlet.grant(call, back)
        if call.head.refusal is None:
            self._server.fed(call)
        else:
            self._refuse(call)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = _unpadded(payload, flags)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(FRAME_SIZE_ERROR, "a HEADERS frame is too short for its priority")
            if int.from_bytes(payload[:4], "big") & WINDOW_MAX == stream_id:
                raise ConnectionFault(PROTOCOL_ERROR, "a stream depends on itself")
            payload = payload[5:]
        if not stream_id & 1:
            raise ConnectionFault(PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        if flags & END_HEADERS:
            self._headers(stream_id, flags, payload)
        else:
            self._gathering, self._block = (stream_id, flags, 1), b""
            self._gather(payload)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._gathering is None or self._gathering[0] != stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "a CONTINUATION of nothing")
        _, first, frames = self._gathering
        self._gathering = (stream_id, first, frames + 1)
        self._gather(payload)
        if flags & END_HEADERS:
            self._gathering = None
            block, self._block = self._block, b""
            self._headers(stream_id, first, block)

    def _gather(self, payload: bytes) -> None:
        assert self._gathering is not None
        self._block += payload
        limits = self._limits
        if len(self._block) > limits.header_block_bytes or self._gathering[2] > limits.header_frames:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers of a request are too large")

    def _headers(self, stream_id: int, flags: int, block: bytes) -> None:
        """A whole header block: of a new stream, or the trailers of an open one."""
        if len(block) > self._limits.header_block_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers of a request are too large")
        if stream_id <= self._last_id:
            self._trailers(stream_id, flags, block)
            return
        self._last_id = stream_id
        try:
            read = self._head(block)
        except Malformed as malformed:
            raise StreamFault(stream_id, PROTOCOL_ERROR, str(malformed)) from None
        if self._going or max(self._running, len(self.calls)) >= self._limits.streams:
            self._budget.spend("calls above the number that is allowed")
            raise StreamFault(stream_id, REFUSED_STREAM, "too many calls at a time")
        self._open(stream_id, read, bool(flags & END_STREAM))

    def _head(self, block: bytes) -> Head:
        """What a block says. One that changed no table is known by its bytes until another one changes a table."""
        known = self._blocks.get(block)
        if known is not None:
            return known
        before = self._decoder.version
        read = head(self._pairs(block))
        if self._decoder.version != before:
            self._blocks.clear()
        elif len(block) <= _BLOCK_BYTES:
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
            self._blocks[block] = read
        return read

    def _pairs(self, block: bytes) -> list[tuple[bytes, bytes]]:
        try:
            return self._decoder.decode(block, self._limits.headers_bytes)
        except CompressionError as error:
            raise ConnectionFault(COMPRESSION_ERROR, str(error)) from None
        except TooManyHeaders:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers of a request are too large") from None

    def _trailers(self, stream_id: int, flags: int, block: bytes) -> None:
        before = self._decoder.version
        pairs = self._pairs(block)
        if self._decoder.version != before:
            self._blocks.clear()
        call = self.calls.get(stream_id)
        if call is None or call.inbox.ended:
            self._not_open(stream_id, call, "HEADERS")
            return
        try:
            check_trailers(pairs)
        except Malformed as malformed:
            raise StreamFault(stream_id, PROTOCOL_ERROR, str(malformed)) from None
        if not flags & END_STREAM:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "trailers that end nothing")
        self._feed(call, b"", True, 0)

    def _open(self, stream_id: int, read: Head, ends: bool) -> None:
        limits, outlet = self._limits, self._outlet
        inbox = Inbox(limits, self._server.buffered, read.encoding)
        call = Call(outlet, stream_id, read, inbox, limits.stream_window, outlet.call_window)
        self.calls[stream_id] = call
        if ends:
            inbox.ended = True
            if call.body_left > 0:
                raise StreamFault(stream_id, PROTOCOL_ERROR, "the DATA are not as long as content-length says")
        if outlet.unsent > limits.unsent_bytes:
            self._budget.spend("calls whose answers are not taken")
            outlet.end(call, Code.RESOURCE_EXHAUSTED, "the client does not take the answers that it has asked for")
        elif read.refusal is not None:
            self._refuse(call)
        else:
            self._server.opened(self, call)

    def _refuse(self, call: Call) -> None:
        """Answers what is no call, once the client has sent all of it."""
        if call.inbox.ended and call.head.refusal is not None and call.ending is None:
            if call.head.http_status == 200:
                self._outlet.end(call, *call.head.refusal)
            else:
                self._outlet.end_plainly(call, call.head.http_status, call.head.refusal[1])

    def _not_open(self, stream_id: int, call: Call | None, what: str) -> None:
        """A frame on a stream that its client has ended, or that we have, or that was never there."""
        if call is None and stream_id in self._ended:
            self._budget.spend(f"{what} on ended streams")
            return
        if call is None and (stream_id > self._last_id or not stream_id & 1):
            raise ConnectionFault(PROTOCOL_ERROR, f"{what} on stream {stream_id}, which is not open")
        self._budget.spend(f"{what} on ended streams")
        if what == "HEADERS" and call is None:
            raise ConnectionFault(STREAM_CLOSED, f"HEADERS on stream {stream_id}, which has ended")
        raise StreamFault(stream_id, STREAM_CLOSED, f"{what} on stream {stream_id}, which its client has ended")

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Read as far as the protocol wants it checked; nothing follows from it."""
        self._budget.spend("PRIORITY")
        if not stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:
            raise StreamFault(stream_id, FRAME_SIZE_ERROR, "a PRIORITY frame has 5 bytes")
        if int.from_bytes(payload[:4], "big") & WINDOW_MAX == stream_id:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "a stream depends on itself")

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a RST_STREAM frame has 4 bytes")
        if not stream_id or stream_id > self._last_id:
            raise ConnectionFault(PROTOCOL_ERROR, "RST_STREAM of a stream that was never open")
        self._budget.spend("RST_STREAM")
        if call := self.calls.get(stream_id):
            self._drop(call)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS of a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(FRAME_SIZE_ERROR, "an answer to SETTINGS has no bytes")
            if self._ours_agreed:
                self._budget.spend("SETTINGS")
            self._ours_agreed = True
            return
        if len(payload) % SETTING.size:
            raise ConnectionFault(FRAME_SIZE_ERROR, "SETTINGS have 6 bytes each")
        self._budget.spend("SETTINGS")
        for number, value in SETTING.iter_unpack(payload):
            checked(number, value)
            self._set(number, value)
        self._outlet.control(frame(SETTINGS, ACK, 0))

    def _set(self, number: int, value: int) -> None:
        if number == INITIAL_WINDOW_SIZE:
            change, self._outlet.call_window = value - self._outlet.call_window, value
            for call in self.calls.values():
                try:
                    self._outlet.widen_call(call, change)
                except StreamFault as fault:
                    raise ConnectionFault(FLOW_CONTROL_ERROR, str(fault)) from None
        elif number == MAX_FRAME_SIZE:
            self._outlet.frame_bytes = value
        elif number == HEADER_TABLE_SIZE:
            self._outlet.resize_table(value)

    def _on_push(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(PROTOCOL_ERROR, "a client does not push")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "PING of a stream")
        if len(payload) != 8:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a PING has 8 bytes")
        if flags & ACK:
            if payload == _GOING and self._going:
                self._go()
            return
        self._budget.spend("PING")
        self._outlet.control(frame(PING, ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The client opens no more streams; those that are open end as they are."""
        if stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "GOAWAY of a stream")
        if len(payload) < 8:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a GOAWAY has 8 bytes and more")

    def _on_window(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a WINDOW_UPDATE has 4 bytes")
        self._budget.spend("WINDOW_UPDATE")
        size = U32.unpack(payload)[0] & WINDOW_MAX
        if not stream_id:
            if not size:
                raise ConnectionFault(PROTOCOL_ERROR, "a WINDOW_UPDATE by nothing")
            self._outlet.widen(size)
            return
        if stream_id > self._last_id or not stream_id & 1:
            raise ConnectionFault(PROTOCOL_ERROR, "WINDOW_UPDATE of a stream that was never open")
        if not size:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "a WINDOW_UPDATE by nothing")
        if call := self.calls.get(stream_id):
            self._outlet.widen_call(call, size)

    # ── Ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def started(self, call: Call, task: asyncio.Task[None]) -> None:
        """A handler runs: it counts among the calls until it has ended, also when its stream was reset before."""
        call.task = task
        self._running += 1
        task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        self._running -= 1
        self._server.idle()

    def expire(self, call: Call) -> None:
        """The deadline has come."""
        self._outlet.end(call, Code.DEADLINE_EXCEEDED, "the deadline has passed")
        self._cancel(call)

    def _closed(self, call: Call) -> None:
        """Its last frame was given out. A client that was still sending does not know it yet."""
        if not call.inbox.ended:
            self._ended.append(call.stream_id)
        self._forget(call)
        call.over()

    def _forget(self, call: Call) -> None:
        self.calls.pop(call.stream_id, None)
        if self._going and not self.calls:
            self._end()

    def _drop(self, call: Call) -> None:
        """The client does not want it any more."""
        self._outlet.discard(call)
        self._forget(call)
        self._cancel(call)
        call.over()

    def _cancel(self, call: Call) -> None:
        if call.task is not None and not call.task.done():
            call.task.cancel()

    def _reset(self, fault: StreamFault) -> None:
        """A mistake on one stream costs as much as a reset by its client: both make us begin in vain."""
        self._budget.spend("what is no valid request")
        log.debug("stream %d of %s: %s", fault.stream_id, self._outlet.peer, fault)
        self._outlet.control(frame(RST_STREAM, 0, fault.stream_id, U32.pack(fault.code)))
        if call := self.calls.get(fault.stream_id):
            self._drop(call)
        if fault.code != STREAM_CLOSED:
            self._ended.append(fault.stream_id)

    def _break(self, fault: ConnectionFault) -> None:
        log.debug("the connection of %s ends: %s", self._outlet.peer, fault)
        self._outlet.control(frame(GOAWAY, 0, 0, U32.pack(self._last_id) + U32.pack(fault.code) + str(fault).encode()))
        self._outlet.flush()
        self._end()

    def _end(self) -> None:
        """Closes when all that was written has left."""
        self._take = _take_nothing
        self._outlet.flush()
        if self._transport is not None:
            self._transport.close()

    def go_away(self) -> None:
        """Takes no new calls; ends with the last one that is open. What is on its way is still taken (RFC 9113, 6.8)."""
        if not self._going:
            self._going = True
            self._outlet.control(frame(GOAWAY, 0, 0, U32.pack(WINDOW_MAX) + U32.pack(NO_ERROR)))
            self._outlet.control(frame(PING, 0, 0, _GOING))
            if not self.calls:
                self._go()
                self._end()

    def _go(self) -> None:
        self._outlet.control(frame(GOAWAY, 0, 0, U32.pack(self._last_id) + U32.pack(NO_ERROR)))

    def cancel_all(self) -> None:
        """Ends calls that are still open: the server stops."""
        for call in list(self.calls.values()):
            self._outlet.end(call, Code.UNAVAILABLE, "the server is stopping")
            self._cancel(call)
        self._outlet.flush()
        self._end()

    def _look(self) -> None:
        """Now and then: has the client begun, does it live, does it take what it asked for?"""
        now, limits = monotonic(), self._limits
        wait_s = limits.keepalive_s
        late = self._take != self._take_frames or self._gathering is not None
        stalled = self._outlet.unsent > limits.write_ahead_bytes and now - self._outlet.moved_s > limits.stalled_s
        silent = self._asked_s is not None and now - self._asked_s >= limits.keepalive_timeout_s
        if late or stalled or silent:
            log.debug("the connection of %s ends: it says nothing, or takes nothing", self._outlet.peer)
            if self._transport is not None:
                self._transport.abort()
            return
        if self._asked_s is None and now - self._heard_s >= limits.keepalive_s:
            self._asked_s = now
            self._outlet.control(frame(PING, 0, 0, _KEEPALIVE))
        if self._asked_s is not None:
            wait_s = limits.keepalive_timeout_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)


def _take_nothing(data: bytes, at: int) -> int:
    return len(data)


def _unpadded(payload: bytes, flags: int) -> bytes:
    """What is left without the padding."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than there are bytes")
    return payload[1 : len(payload) - payload[0]]


def _peer(transport: asyncio.Transport) -> str:
    """As grpcio writes addresses."""
    name: Any = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return "unix:"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
