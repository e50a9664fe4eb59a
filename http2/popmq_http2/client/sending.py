"""The sending half of a client's connection: frames that are ready, and requests as far as the windows allow.

control, headers ───────────────────────────────┐
add(call) ─▶ in line ─▶ DATA, TURN_BYTES a turn ─┴─▶ take: the bytes for the socket
               ▲   └─ no window of the connection ─▶ starved ─┐
               └──────────── WINDOW_UPDATE ───────────────────┘
"""

from __future__ import annotations

import contextlib
from collections import deque

from popmq_http2.budget import POINT_BYTES, Budget
from popmq_http2.client.call import ClientCall
from popmq_http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PREFACE,
    RST_STREAM,
    U32,
    WINDOW_MAX,
    WINDOW_UPDATE,
    ConnectionFault,
    StreamFault,
    frame,
    head,
    settings,
)
from popmq_http2.limits import Limits

#: Bytes that one call may write in its turn, so that a large request does not block small ones.
TURN_BYTES = 256 << 10


def greeting(limits: Limits) -> bytes:
    """The first bytes of a client: preface, SETTINGS, and a larger window for the connection."""
    values = {
        ENABLE_PUSH: 0,
        INITIAL_WINDOW_SIZE: limits.stream_window,
        MAX_FRAME_SIZE: limits.frame_bytes,
        MAX_HEADER_LIST_SIZE: limits.headers_bytes,
    }
    widened = frame(WINDOW_UPDATE, 0, 0, U32.pack(limits.connection_window - DEFAULT_WINDOW))
    return PREFACE + settings(values) + widened


class Sending:
    """The sending half of a connection."""

    __slots__ = ("_budget", "_dirty", "_out", "_starved", "_window", "call_window", "frame_bytes")

    def __init__(self, first: bytes, budget: Budget) -> None:
        """`budget`: what is sent earns the server its points, since it answers with window updates."""
        self._budget = budget
        self._out: list[bytes | memoryview] = [first]
        self._dirty: deque[ClientCall] = deque()
        self._starved: deque[ClientCall] = deque()  # stopped by the window of the connection
        self._window = DEFAULT_WINDOW
        #: The window of a new call; and the largest frame that the server takes.
        self.call_window = DEFAULT_WINDOW
        self.frame_bytes = DEFAULT_FRAME

    def control(self, raw: bytes) -> None:
        """Sends a frame that is not subject to a window."""
        self._out.append(raw)

    def reset(self, call: ClientCall, code: int) -> None:
        """Sends RST_STREAM."""
        self.forget(call)
        self._out.append(frame(RST_STREAM, 0, call.stream_id, U32.pack(code)))

    def headers(self, stream_id: int, block: bytes) -> None:
        """HEADERS, and CONTINUATION for a block that is larger than a frame."""
        size, kind = self.frame_bytes, HEADERS
        while len(block) > size:
            self._out.append(frame(kind, 0, stream_id, block[:size]))
            block, kind = block[size:], CONTINUATION
        self._out.append(frame(kind, END_HEADERS, stream_id, block))

    def add(self, call: ClientCall) -> None:
        """Puts a call in line, once: it has something to send."""
        if not call.in_line:
            call.in_line = True
            self._dirty.append(call)

    def forget(self, call: ClientCall) -> None:
        """Takes a call out of line: it is over, or goes to another connection, and waits here perhaps for long."""
        for line in (self._dirty, self._starved):
            with contextlib.suppress(ValueError):
                line.remove(call)
        call.in_line = False

    def widen(self, size: int) -> None:
        """WINDOW_UPDATE of the connection. Raises ConnectionFault."""
        self._window += size
        if self._window > WINDOW_MAX:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of the connection is larger than 2^31 - 1")

    def widen_call(self, call: ClientCall, size: int) -> None:
        """WINDOW_UPDATE of a stream, or a changed setting (`size` may be negative). Raises StreamFault."""
        call.window_out += size
        if call.window_out > WINDOW_MAX:
            raise StreamFault(call.stream_id, FLOW_CONTROL_ERROR, "the window of a stream is larger than 2^31 - 1")
        if call.out:
            self.add(call)

    def take(self) -> bytes:
        """The bytes to send now."""
        while self._starved and self._window > 0:
            call = self._starved.popleft()
            call.in_line = False
            self.add(call)
        while self._dirty:
            call = self._dirty.popleft()
            call.in_line = False
            if call.status is None and not call.sent:
                self._write(call)
        raw, self._out = b"".join(self._out), []
        self._budget.earn(len(raw) // POINT_BYTES)
        return raw

    def _write(self, call: ClientCall) -> None:
        """One turn of a call: DATA frames as far as both windows allow, END_STREAM with the last of them.

        A call without a window of its own waits for its WINDOW_UPDATE, one without the connection's in `_starved`.
        """
        turn = TURN_BYTES
        while call.out and turn > 0:
            piece = call.out[0]
            size = min(len(piece), self.frame_bytes, self._window, call.window_out)
            if size <= 0:
                if call.window_out > 0:
                    call.in_line = True
                    self._starved.append(call)
                return
            if size == len(piece):
                call.out.popleft()
            else:
                whole = memoryview(piece)
                call.out[0], piece = whole[size:], whole[:size]
            call.sent = call.ended and not call.out
            self._out += (head(size, DATA, END_STREAM if call.sent else 0, call.stream_id), piece)
            self._window -= size
            call.window_out -= size
            turn -= size
        if call.out:
            self.add(call)
        elif call.ended and not call.sent:
            call.sent = True
            self._out.append(head(0, DATA, END_STREAM, call.stream_id))
