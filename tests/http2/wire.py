"""A connection without a socket: frames in, frames out, all in one thread, so that a seed gives one run."""

import asyncio
from typing import Any, NamedTuple

from popmq_http2 import Server
from popmq_http2.frames import GOAWAY, HEAD, HEAD_BYTES, RST_STREAM, U32
from popmq_http2.server.connection import Connection
from popmq_http2.transports import RECEIVE_BYTES


class Written(NamedTuple):
    """A frame that the server wrote."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes


class Wire(asyncio.Transport):
    """The transport of one connection of `server`."""

    def __init__(self, server: Server, host: str | None = "127.0.0.1") -> None:
        """`host`: the client's address; None for a unix socket."""
        super().__init__()
        self.raw = bytearray()
        self.closing = self.lost = False
        self.reading = asyncio.Event()
        self.reading.set()
        self._peer = (host, 1) if host else ""
        self._server = server
        self.connection = Connection(server)
        self.connection.connection_made(self)

    @property
    def paused(self) -> bool:
        return not self.reading.is_set()

    def feed(self, raw: bytes) -> None:
        """Feeds bytes of the client to the server at once; handlers run in the next turn of the loop."""
        for start in range(0, len(raw), RECEIVE_BYTES):
            piece = raw[start : start + RECEIVE_BYTES]
            while self.paused and not self.closing:
                self._server.turns.next()
                self.connection.go_on()
            if not self.closing:
                self.connection.get_buffer(len(piece))[: len(piece)] = piece
                self.connection.buffer_updated(len(piece))

    def read(self) -> list[Written]:
        """The whole frames that were written since the last call."""
        self.connection.flush()
        raw, self.raw = bytes(self.raw), bytearray()
        return split(raw)

    # ── What asyncio's transports have ───────────────────────────────────────────────────────────────────────────────

    def write(self, data: Any) -> None:
        assert not self.closing, "written to a connection that is closed"
        self.raw += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        """The client reads at once, so there is nothing to wait for."""
        self.closing = True
        if not self.lost:
            self.lost = True
            self.connection.connection_lost(None)

    abort = close

    def pause_reading(self) -> None:
        self.reading.clear()

    def resume_reading(self) -> None:
        self.reading.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._peer if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def split(raw: bytes) -> list[Written]:
    """Bytes as the frames that they are."""
    found, at = [], 0
    while at < len(raw):
        high, low, kind, flags, stream_id = HEAD.unpack_from(raw, at)
        stop = at + HEAD_BYTES + (high << 8 | low)
        assert stop <= len(raw), "half a frame was written"
        found.append(Written(kind, flags, stream_id, raw[at + HEAD_BYTES : stop]))
        at = stop
    return found


def rejects(frames: list[Written]) -> bool:
    """Whether one of the frames says that the client made a mistake."""
    for frame in frames:
        if frame.kind == RST_STREAM and U32.unpack(frame.payload)[0]:
            return True
        if frame.kind == GOAWAY and U32.unpack_from(frame.payload, 4)[0]:
            return True
    return False
