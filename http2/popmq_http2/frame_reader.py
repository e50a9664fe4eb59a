"""Reads frames from bytes: the preface, frames that arrive in pieces, and header blocks in several frames.

    client    PRI * HTTP/2.0 … · SETTINGS · frame · frame · …        (a server sends no preface)
    frame     length [3] · type [1] · flags [1] · stream [4] · payload
    block     HEADERS · CONTINUATION · … · CONTINUATION with END_HEADERS, with no other frame between them

It refuses a frame longer than the limit by its header, before it keeps any of it. Frames that follow when the points of
a turn are spent wait for the next feed, which may be of no bytes.
"""

from collections.abc import Callable, Mapping

from popmq_http2.budget import Budget
from popmq_http2.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    END_HEADERS,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    HAS_PRIORITY,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    PADDED,
    PREFACE,
    PROTOCOL_ERROR,
    SETTINGS,
    U32,
    WINDOW_MAX,
    ConnectionFault,
    StreamFault,
)
from popmq_http2.hpack import CompressionError, Decoder, Header, TooManyHeaders
from popmq_http2.limits import Limits

#: (flags, stream, payload): handles a frame. Raises ConnectionFault or StreamFault.
Take = Callable[[int, int, bytes], None]

_PRIORITY_BYTES = 5


class FrameReader:
    """Passes each whole frame to the function for its type; `reset` gets faults that end one stream only.

    It keeps the bytes of an incomplete frame as they came and joins them once, when there are enough.
    """

    __slots__ = (
        "_block",
        "_budget",
        "_frame_bytes",
        "_have",
        "_limits",
        "_need",
        "_pieces",
        "_reset",
        "_step",
        "_take",
        "_whole",
    )

    def __init__(
        self,
        limits: Limits,
        budget: Budget,
        take: Mapping[int, Take],
        whole: Take,
        reset: Callable[[StreamFault], None],
        preface: bytes = PREFACE,
    ) -> None:
        """`whole`: handles a whole header block. `preface`: what the other side sends first; b"": a server."""
        self._limits = limits
        self._frame_bytes = limits.frame_bytes
        self._budget = budget
        self._take = {HEADERS: self.headers, CONTINUATION: self._continuation, **take}
        self._whole = whole
        self._reset = reset
        self._step: Callable[[bytes, int], int] = self._preface if preface else self._first
        #: Pieces of an incomplete frame, their size, and the size that it needs.
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = len(preface) or HEAD_BYTES
        #: The incomplete header block; while there is one, only its CONTINUATION may come.
        self._block: Block | None = None

    @property
    def begun(self) -> bool:
        """Whether the other side has sent the start of its SETTINGS, a client its preface before.

        A client that stops in the middle of a frame or of a header block fails the next PING: keepalive ends it.
        """
        return self._step == self._frames

    def feed(self, data: bytes) -> None:
        """Reads the received bytes. Raises ConnectionFault.

        When the points of the turn are spent (Budget.turn below 0), frames may wait for the next feed.
        """
        if self._pieces:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:
                return
            data, self._pieces = b"".join(self._pieces), []
        at = self._step(data, 0)
        if at < len(data):
            self._pieces, self._have = [data[at:]], len(data) - at

    def stop(self) -> None:
        """Ignores all further bytes."""
        self._step, self._pieces = _nothing, []

    def headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handles HEADERS; until their block is complete, only its CONTINUATION may come."""
        if flags & (PADDED | HAS_PRIORITY):
            payload = fragment(flags, stream_id, payload)
        if flags & END_HEADERS:
            self._whole(flags, stream_id, payload)
        else:
            self._block = Block(self._limits, stream_id, flags)
            self._block.add(stream_id, flags, payload)

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise ConnectionFault(PROTOCOL_ERROR, "a CONTINUATION of nothing")
        whole = block.add(stream_id, flags, payload)
        if whole is not None:
            self._block = None
            self._whole(block.flags, stream_id, whole)

    def _preface(self, data: bytes, at: int) -> int:
        """Expects the preface of HTTP/2."""
        if len(data) < len(PREFACE) and PREFACE.startswith(data):
            return at
        if not data.startswith(PREFACE):
            raise ConnectionFault(PROTOCOL_ERROR, "the client does not speak HTTP/2")
        self._step = self._first
        return self._first(data, len(PREFACE))

    def _first(self, data: bytes, at: int) -> int:
        """Expects SETTINGS as the first frame."""
        if len(data) - at >= HEAD_BYTES:
            if data[at + 3] != SETTINGS or data[at + 4] & ACK:
                raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._step = self._frames
            return self._frames(data, at)
        self._need = HEAD_BYTES
        return at

    def _frames(self, data: bytes, at: int) -> int:
        """Handles the whole frames, until the points of the turn are spent; returns where the next one begins."""
        end, take, most, budget = len(data), self._take, self._frame_bytes, self._budget
        while end - at >= HEAD_BYTES and budget.turn >= 0:
            high, low, kind, flags, stream_id = HEAD.unpack_from(data, at)
            length = high << 8 | low
            if length > most:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {length} bytes; at most {most} are taken")
            stop = at + HEAD_BYTES + length
            if stop > end:
                self._need = stop - at
                return at
            if self._block is not None and kind != CONTINUATION:
                raise ConnectionFault(PROTOCOL_ERROR, "a header block is cut by another frame")
            if (known := take.get(kind)) is None:
                budget.spend("of an unknown type")
            else:
                try:
                    known(flags, stream_id & WINDOW_MAX, data[at + HEAD_BYTES : stop])
                except StreamFault as fault:
                    self._reset(fault)
            at = stop
        self._need = HEAD_BYTES
        return at


class Block:
    """A header block in more than one frame."""

    __slots__ = ("_frames", "_limits", "_pieces", "_size", "flags", "stream_id")

    def __init__(self, limits: Limits, stream_id: int, flags: int) -> None:
        self._limits = limits
        self._pieces: list[bytes] = []
        self._size = self._frames = 0
        self.stream_id = stream_id
        self.flags = flags  # of its HEADERS frame

    def add(self, stream_id: int, flags: int, payload: bytes) -> bytes | None:
        """Adds one frame; returns the whole block with the last one. Raises ConnectionFault."""
        if stream_id != self.stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "a header block is continued on another stream")
        self._pieces.append(payload)
        self._size += len(payload)
        self._frames += 1
        if self._size > self._limits.header_block_bytes or self._frames > self._limits.header_frames:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers of a request are too large")
        return b"".join(self._pieces) if flags & END_HEADERS else None


def fragment(flags: int, stream_id: int, payload: bytes) -> bytes:
    """The header block's part of a HEADERS frame, without padding and priority. Raises ConnectionFault."""
    if flags & PADDED:
        payload = unpadded(payload)
    if flags & HAS_PRIORITY:
        if len(payload) < _PRIORITY_BYTES:
            raise ConnectionFault(FRAME_SIZE_ERROR, "a HEADERS frame is too short for its priority")
        if U32.unpack_from(payload)[0] & WINDOW_MAX == stream_id:
            raise ConnectionFault(PROTOCOL_ERROR, "a stream depends on itself")
        payload = payload[_PRIORITY_BYTES:]
    return payload


def decoded(decoder: Decoder, block: bytes, limits: Limits, what: str) -> list[Header]:
    """The headers of a block of `what`. Raises ConnectionFault: after an error the tables of both sides differ."""
    try:
        return decoder.decode(block, limits.headers_bytes)
    except CompressionError as error:
        raise ConnectionFault(COMPRESSION_ERROR, str(error)) from None
    except TooManyHeaders:
        raise ConnectionFault(ENHANCE_YOUR_CALM, f"the headers of {what} are too large") from None


def unpadded(payload: bytes) -> bytes:
    """The payload of a frame without its padding. Raises ConnectionFault."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(PROTOCOL_ERROR, "more padding than there are bytes")
    return payload[1 : len(payload) - payload[0]]


def _nothing(data: bytes, at: int) -> int:
    return len(data)
