"""What a client sends on one stream: bytes of DATA frames in, messages out.

    message    compressed [1] · length [4] · bytes         as many as the client likes, cut into frames anywhere

Bytes that no handler has taken count in `Buffered`, over all connections: who would pass its bound is refused.
"""

import zlib
from collections import deque

from popmq_http2.limits import Limits
from popmq_http2.status import Aborted, Code

PREFIX_BYTES = 5
_GZIP = 16 + zlib.MAX_WBITS


class Buffered:
    """Bytes of requests that wait in memory, of all connections of a server."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Inbox:
    """The messages of one stream. `ended`: no more will come.

    A message may be larger than the window of its stream, so the window is given back while it comes (outlet.py); what
    is bounded is the message, and what all streams hold together.
    """

    __slots__ = ("_buffered", "_encoding", "_limits", "_pieces", "_size", "ended", "messages")

    def __init__(self, limits: Limits, buffered: Buffered, encoding: bytes) -> None:
        self._limits = limits
        self._buffered = buffered
        self._encoding = encoding
        self._pieces: list[bytes] = []
        self._size = 0
        self.messages: deque[bytes] = deque()
        self.ended = False

    def add(self, data: bytes) -> None:
        """Takes bytes of a DATA frame. Raises Aborted: too large, too much, cannot be unpacked.

        Pieces of a message are joined once, when it is whole: joining them as they come would be quadratic.
        """
        size = len(data)
        self._buffered.bytes += size
        self._size += size
        self._pieces.append(data)
        if self._buffered.bytes > self._limits.requests_bytes:
            raise Aborted(Code.RESOURCE_EXHAUSTED, "the server holds too many requests: try again later")
        while self._size >= PREFIX_BYTES and self._cut():
            pass

    def end(self) -> None:
        """The client sends no more. Raises Aborted in the middle of a message."""
        self.ended = True
        if self._size:
            raise Aborted(Code.INTERNAL, "the request ends in the middle of a message")

    def take(self) -> bytes:
        """The next message. IndexError when there is none."""
        message = self.messages.popleft()
        self._buffered.bytes -= len(message)
        return message

    def clear(self) -> None:
        """Nobody wants what is left."""
        self._buffered.bytes -= self._size + sum(map(len, self.messages))
        self._pieces, self._size = [], 0
        self.messages.clear()

    # For flow control: what nobody takes keeps the window small.
    @property
    def waiting(self) -> int:
        """Bytes of messages that nobody has taken, without the one that is still coming."""
        return sum(map(len, self.messages))

    def _cut(self) -> bool:
        """Takes one message off what has come; whether there may be another."""
        if len(self._pieces) > 1 and len(self._pieces[0]) < PREFIX_BYTES:
            self._pieces = [b"".join(self._pieces)]
        first = self._pieces[0]
        length = int.from_bytes(first[1:PREFIX_BYTES], "big")
        if length > self._limits.message_bytes:
            raise Aborted(
                Code.RESOURCE_EXHAUSTED, f"a message of {length} bytes; at most {self._limits.message_bytes} are taken"
            )
        stop = PREFIX_BYTES + length
        if self._size < stop:
            return False
        if len(first) < stop:
            first = b"".join(self._pieces)
            self._pieces = [first]
        message = first[PREFIX_BYTES:stop]
        rest = [first[stop:], *self._pieces[1:]] if len(first) > stop else self._pieces[1:]
        self._pieces, self._size = rest, self._size - stop
        if first[0]:
            message = self._unpacked(first[0], message)
        self._buffered.bytes += len(message) - stop
        self.messages.append(message)
        return self._size >= PREFIX_BYTES

    def _unpacked(self, flag: int, message: bytes) -> bytes:
        """A message that came compressed.

        No more of it is unpacked than a message may have: a few bytes of gzip can be the size of memory.
        """
        if flag != 1 or self._encoding != b"gzip":
            raise Aborted(Code.INTERNAL, f"a compressed message (flag {flag}) with grpc-encoding {self._encoding!r}")
        most = self._limits.message_bytes
        unpacker = zlib.decompressobj(_GZIP)
        try:
            text = unpacker.decompress(message, most + 1)
        except zlib.error as error:
            raise Aborted(Code.INTERNAL, f"a message is no gzip: {error}") from None
        if len(text) > most:
            raise Aborted(Code.RESOURCE_EXHAUSTED, f"a message of more than {most} bytes, unpacked")
        if not unpacker.eof:
            raise Aborted(Code.INTERNAL, "a message is cut off in the middle of its gzip")
        return text
