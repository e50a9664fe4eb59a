"""The writer of a connection: everything from one turn of the event loop leaves with one write.

    handlers ── write, end ──▶ fresh bytes of each call ──┐
    frames that are answered (SETTINGS, PING, windows) ───┴─ at the end of the turn: flush ──▶ one transport.write

    flush: head, DATA frames as far as the windows of call and connection allow, trailers; one call after the other, at
    most TURN_BYTES of each, so that a large answer does not block small ones

A call without a window waits for its WINDOW_UPDATE; one stopped by the connection's window waits in line. While the
transport is full, only answers to frames are added.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from popmq_http2.budget import CALL_POINTS, POINT_BYTES, Budget
from popmq_http2.elapsed import monotonic
from popmq_http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    NO_ERROR,
    RST_STREAM,
    U32,
    WINDOW_MAX,
    WINDOW_UPDATE,
    ConnectionFault,
    StreamFault,
    frame,
    head,
)
from popmq_http2.hpack import encode
from popmq_http2.limits import Limits
from popmq_http2.server.addresses import auth_context
from popmq_http2.server.blocks import CONTENT_TYPE, KNOWN_BEGIN, KNOWN_OK, OK, STATUS_200, Blocks
from popmq_http2.server.call import Call
from popmq_http2.status import Code, Metadata

TURN_BYTES = 256 << 10
#: Messages of a call that are joined: many small ones are then framed as one. Larger ones would be in memory twice.
JOINED_BYTES = 256 << 10
#: The size of the transport's buffer above which it reports that it is full.
TRANSPORT_BYTES = 1 << 20
#: Calls that are reset before the lines are cleared of those that waited there: a client that lets nothing leave would
#: fill them with calls that it resets.
_RESETS = 1_000

_END = END_HEADERS | END_STREAM
#: Most answers of one message: the head and the header of their DATA frame; the trailers.
_KNOWN_HEAD, _KNOWN_END = struct.Struct(f">HBBBI{len(KNOWN_BEGIN)}sHBBBI"), struct.Struct(f">HBBBI{len(KNOWN_OK)}s")


class Outlet:
    """The writing half of a connection. Calls `closed(call)` after it wrote the last frame of a call."""

    def __init__(self, limits: Limits, budget: Budget, closed: Callable[[Call], None]) -> None:
        self._loop = asyncio.get_running_loop()
        #: What is to run in this turn of the event loop after the running callback; a loop of another kind tells not.
        self._ready: Collection[object] = getattr(self._loop, "_ready", (None,))
        self._budget = budget
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._scheduled = self._full = False
        self._dirty: deque[Call] = deque()
        self._starved: deque[Call] = deque()  # stopped by the connection's window
        self._resets = 0
        self._blocks = Blocks()
        self._stream_window = limits.stream_window
        self.write_ahead_bytes = limits.write_ahead_bytes
        self.peer = ""
        self._auth_context: dict[str, list[bytes]] | None = None
        self._lost: list[Callable[[], Any]] | None = []
        #: Bytes of answers that were not written yet.
        self.unsent = 0
        #: When the client last took some of the waiting bytes.
        self.moved_s = monotonic()
        self.window = DEFAULT_WINDOW
        self.call_window = DEFAULT_WINDOW  # of new calls
        self.frame_bytes = DEFAULT_FRAME

    def connect(self, transport: asyncio.Transport, peer: str) -> None:
        transport.set_write_buffer_limits(TRANSPORT_BYTES)
        self._transport, self.peer = transport, peer

    def when_lost(self, callback: Callable[[], Any]) -> None:
        """Calls `callback` when the connection ends; immediately if it has."""
        if self._lost is None:
            callback()
        else:
            self._lost.append(callback)

    def lost(self) -> None:
        """The connection has ended."""
        callbacks, self._lost = self._lost or (), None
        for callback in callbacks:
            callback()

    @property
    def auth_context(self) -> dict[str, list[bytes]]:
        """What TLS tells of the client, as grpcio shows it."""
        if self._auth_context is None:
            self._auth_context = auth_context(self._transport)
        return self._auth_context

    # ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def control(self, raw: bytes) -> None:
        """Writes a frame of the connection, or the reset of a stream."""
        self._out.append(raw)
        self._schedule()

    def begin(self, call: Call) -> None:
        """Writes the head of a response before its first message."""
        if not call.begun and call.ending is None:
            self._begin(call)
            self._schedule()

    def write(self, call: Call, message: bytes) -> None:
        """Queues a message."""
        if call.ending is not None:
            return
        size = len(message)
        call.fresh += (b"\0" + U32.pack(size), message)
        call.queued += size + 5
        self.unsent += size + 5
        self._add(call)

    def answer(self, call: Call, message: bytes) -> None:
        """Queues the only message of a call, and OK."""
        if call.ending is not None:
            return
        size = len(message) + 5
        call.fresh += (b"\0" + U32.pack(size - 5), message)
        call.queued += size
        self.unsent += size
        call.ending = call.trailers_block(Code.OK, "", ()) if call.trailing else b""
        if self._ready or self._dirty or self._full:
            self._add(call)
        else:  # nothing else is written in this turn
            self._pump(call)
            self._leave()

    def end(self, call: Call, code: Code, message: str = "", metadata: Metadata = ()) -> None:
        """Queues the status, after all messages."""
        if call.ending is not None:
            return
        plain = code is Code.OK and not message and not metadata and not call.trailing
        call.ending = b"" if plain else call.trailers_block(code, message, metadata)
        self._add(call)

    def end_plainly(self, call: Call, status: int, why: str) -> None:
        """Answers a request that is not gRPC with plain HTTP, so that a browser or a probe shows the mistake.

        `why` is "" for HEAD. The answer has no trailers, so its last DATA frame ends the stream.
        """
        headers = [(b":status", b"%d" % status), (b"content-type", b"text/plain; charset=utf-8")]
        self._headers(call, self._blocks.plain(encode(headers)), END_HEADERS)
        call.begun = call.plain = True
        text = f"{why}\n".encode() if why else b""
        call.ending, call.pending, call.queued = b"", deque((memoryview(text),) if text else ()), len(text)
        self.unsent += call.queued
        self._add(call)

    def discard(self, call: Call) -> None:
        """Drops the unsent bytes of a finished call."""
        self.unsent -= call.queued
        if call.ending is None:
            call.ending = b""
        self._resets += 1
        if self._resets == _RESETS:
            self._resets = 0
            self._dirty, self._starved = map(_open, (self._dirty, self._starved))

    def return_window(self, call: Call) -> None:
        """Widens a stream's window once half of it is used up.

        Bytes of an incomplete message count as taken; otherwise a message larger than the window could never arrive.
        """
        back = self._stream_window - call.window_in - call.inbox.waiting
        if back >= self._stream_window // 2 and not call.inbox.ended:
            call.window_in += back
            self.control(frame(WINDOW_UPDATE, 0, call.stream_id, U32.pack(back)))

    # ── Flow control ─────────────────────────────────────────────────────────────────────────────────────────────────

    def widen(self, size: int) -> None:
        """WINDOW_UPDATE of the connection: stopped calls continue."""
        self.window += size
        if self.window > WINDOW_MAX:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of the connection is larger than 2^31 - 1")
        self._schedule()

    def widen_call(self, call: Call, size: int) -> None:
        """WINDOW_UPDATE of a stream, or a changed setting for all streams (`size` may be negative)."""
        call.window_out += size
        if call.window_out > WINDOW_MAX:
            raise StreamFault(call.stream_id, FLOW_CONTROL_ERROR, "the window of a stream is larger than 2^31 - 1")
        if call.queued and size > 0:
            self._add(call)

    def resize_table(self, table_bytes: int) -> None:
        """Handles a new size of the client's header table."""
        self._blocks.resize(table_bytes)

    @property
    def holds_back(self) -> bool:
        """Whether more bytes wait than a client that reads its answers would leave."""
        return self._full or self.unsent > self.write_ahead_bytes

    def pause(self) -> None:
        """The transport reports that it is full."""
        self._full, self.moved_s = True, monotonic()

    def resume(self) -> None:
        """The transport reports that it has room again."""
        self._full, self.moved_s = False, monotonic()
        self._schedule()

    # ── Flushing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, call: Call) -> None:
        """Puts a call in line for the next flush, once."""
        if not call.in_line:
            call.in_line = True
            self._dirty.append(call)
        self._schedule()

    def _schedule(self) -> None:
        """Schedules a flush. `call_soon` runs it after all that is ready in this turn, so one write serves all."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes everything that may leave. Bytes for which the transport has no room wait for `resume`."""
        self._scheduled = False
        if self._starved:
            self._relieve()
        for _ in range(len(self._dirty)):
            if self._full:
                break
            call = self._dirty.popleft()
            call.in_line = False
            if not call.is_over:  # the client may have reset it meanwhile
                self._pump(call)
        self._leave()
        if not self._full and (self._dirty or (self._starved and self.window > 0)):
            self._schedule()

    def _leave(self) -> None:
        """Passes what was written to the transport."""
        if self._out:
            raw, self._out = b"".join(self._out), []
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(raw)

    def _relieve(self) -> None:
        """Puts calls that the connection's window stopped back in line, only as many as it now allows to write.

        With all of them, each WINDOW_UPDATE of one byte would cost a step for every open call.
        """
        room = self.window
        while self._starved and room > 0:
            call = self._starved.popleft()
            if not call.is_over:
                room -= min(call.queued, call.window_out)
                self._add(call)

    def _begin(self, call: Call) -> None:
        """Writes the head of a response."""
        call.begun = True
        block, extra = self._blocks.begin(), call.initial_block()
        self._headers(call, block + extra, END_HEADERS)

    def _headers(self, call: Call, block: bytes, flags: int) -> None:
        """Writes a header block, in more than one frame if it is larger than the client takes."""
        most = self.frame_bytes
        if len(block) <= most:
            self._out += (head(len(block), HEADERS, flags, call.stream_id), block)
            return
        self._out.append(frame(HEADERS, flags & ~END_HEADERS, call.stream_id, block[:most]))
        for at in range(most, len(block), most):
            last = END_HEADERS if at + most >= len(block) else 0
            self._out.append(frame(CONTINUATION, last, call.stream_id, block[at : at + most]))

    def _pump(self, call: Call) -> None:
        """Writes the frames of one call that may leave now."""
        queued = call.queued
        fits = queued <= self.window and queued <= call.window_out and queued <= self.frame_bytes
        if fits and call.ending == b"" and not call.begun:
            if self._blocks.settled and call.queued and call.inbox.ended and not call.initial:
                self._pump_known(call)
            else:
                self._pump_whole(call)
            return
        if call.fresh:
            self._pump_messages(call)
        if call.pending:
            self._pump_pending(call)
        if call.ending is not None and not call.pending:
            self._finish(call)

    def _pump_known(self, call: Call) -> None:
        """Writes such an answer as `_pump_whole` does, once the reader's table has both header blocks."""
        size, stream_id = call.queued, call.stream_id
        begin = (0, len(KNOWN_BEGIN), HEADERS, END_HEADERS, stream_id, KNOWN_BEGIN)
        self._out.append(_KNOWN_HEAD.pack(*begin, size >> 8, size & 0xFF, DATA, 0, stream_id))
        self._out += call.fresh
        self._out.append(_KNOWN_END.pack(0, len(KNOWN_OK), HEADERS, _END, stream_id, KNOWN_OK))
        call.begun = True
        call.queued = 0
        self.window -= size
        self.unsent -= size
        self._budget.earn(size // POINT_BYTES + CALL_POINTS)
        self.moved_s = monotonic()
        self._closed(call)

    def _pump_whole(self, call: Call) -> None:
        """Writes an answer that fits into one frame, as those of most unary calls do, from head to trailers."""
        self._begin(call)
        if size := call.queued:
            self._out += (head(size, DATA, 0, call.stream_id), *call.fresh)
            call.fresh.clear()
            call.queued = 0
            self.window -= size
            self.unsent -= size
            self._budget.earn(size // POINT_BYTES)
        self.moved_s = monotonic()
        self._finish(call)

    def _pump_messages(self, call: Call) -> None:
        """Takes the bytes that were written since the last flush."""
        if not call.begun:
            self._begin(call)
        pieces = call.fresh if call.queued > JOINED_BYTES else (b"".join(call.fresh),)
        call.pending = call.pending or deque()
        call.pending.extend(map(memoryview, pieces))
        call.fresh.clear()

    def _pump_pending(self, call: Call) -> None:
        """Writes DATA frames as far as both windows allow; the rest goes back in line, or waits for its window."""
        at, stop = 0, min(call.queued, self.window, call.window_out, TURN_BYTES)
        while at < stop:
            size = min(stop - at, self.frame_bytes)
            self._out.append(head(size, DATA, 0, call.stream_id))
            self._take(call.pending, size)
            at += size
        if at > 0:
            self._moved(call, at)
        if call.pending and call.window_out > 0:
            if self.window > 0:
                self._add(call)
            else:
                self._starved.append(call)

    def _take(self, pieces: deque[memoryview], size: int) -> None:
        """Writes the next bytes; a message that was written whole is not kept."""
        while size > 0:
            first = pieces[0]
            self._out.append(first[:size])
            if rest := first[size:]:
                pieces[0] = rest
                return
            pieces.popleft()
            size -= len(first)

    def _moved(self, call: Call, size: int) -> None:
        """Accounts for written bytes of a call; wakes a handler that has written too far ahead."""
        self.window -= size
        self.unsent -= size
        self.moved_s = monotonic()
        self._budget.earn(size // POINT_BYTES)
        call.window_out -= size
        call.queued -= size
        if call.queued <= self.write_ahead_bytes:
            call.wake()

    def _finish(self, call: Call) -> None:
        """Writes the trailers, and the head if it was not written yet; tells a client that still sends to stop."""
        ending = call.ending or b""
        if call.plain:
            self._out.append(head(0, DATA, END_STREAM, call.stream_id))
        elif not call.begun:
            block = STATUS_200 + encode([CONTENT_TYPE]) + (ending or encode([OK]))
            self._headers(call, self._blocks.plain(block), _END)
        else:
            self._headers(call, self._blocks.plain(ending) if ending else self._blocks.ok(), _END)
        if not call.inbox.ended:
            self._out.append(frame(RST_STREAM, 0, call.stream_id, U32.pack(NO_ERROR)))
        self._budget.earn(CALL_POINTS)
        self._closed(call)


def _open(line: deque[Call]) -> deque[Call]:
    """Those of a line that are not over."""
    return deque(call for call in line if not call.is_over)
