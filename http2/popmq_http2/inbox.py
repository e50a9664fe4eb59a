"""The messages that arrive on one stream: bytes of DATA frames in, messages out.

    message    compressed [1] · length [4] · bytes         any number of them, split into frames anywhere

`Buffered` counts bytes that no handler has taken, on all connections, and `Budget.held` those of one connection; both
also count each open call of a server (`own_bytes`). Before all exceed their limit, the server ends what the largest
connection holds (server.py:Server.relieve).
Server and client use it: the server for requests, the client for answers.
"""

import zlib
from collections import deque

from popmq_http2.budget import Budget
from popmq_http2.limits import Limits
from popmq_http2.status import Aborted, Code

PREFIX_BYTES = 5
#: Memory of a message beside its bytes: an object and its place in a queue.
_MESSAGE_BYTES = 48
_GZIP = 16 + zlib.MAX_WBITS
#: Normal data expand at most this many times when they are unpacked; gzip and deflate can a thousandfold.
_USUAL_EXPANSION = 100
#: Bytes beyond that which cost a point of the budget: they are unpacked in 10 µs, in which all connections wait.
_EXPANDED_PER_POINT = 4 << 10
_EXPANDS = "messages that expand more than a hundredfold"
#: Bytes of a message that are unpacked at a time where its size is not known before.
_PIECE_BYTES = 64 << 10

#: Shared by inboxes that are empty, and never changed: an open call without bytes needs no containers of its own, each
#: of which costs the garbage collector time.
_NO_PIECES: list[bytes] = []
_NO_MESSAGES: deque[bytes] = deque()

_FULL = "too many messages are held at once: try again later"


class Buffered:
    """Bytes of messages in memory, on all connections of a server or of a client."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Inbox:
    """The messages of one stream. `ended`: no more will come.

    A message may be larger than the window of its stream, so the window is returned while it arrives (outlet.py); the
    limits apply to the message, and to what all streams hold together.
    """

    __slots__ = (
        "_budget", "_buffered", "_limits", "_need", "_pieces", "_size", "encoding", "ended", "messages", "own_bytes",
        "received", "waiting",
    )  # fmt: skip

    def __init__(self, limits: Limits, buffered: Buffered, encoding: bytes, budget: Budget, own_bytes: int = 0) -> None:
        """`own_bytes`: what the call takes besides its messages, until `clear`."""
        self._limits = limits
        self._budget = budget
        self._buffered = buffered
        self.own_bytes = own_bytes
        buffered.bytes += own_bytes
        budget.held += own_bytes
        #: grpc-encoding: a client learns it with the head of the answer.
        self.encoding = encoding
        #: Pieces of the incomplete message, their size, and the size that is needed to continue.
        self._pieces = _NO_PIECES
        self._size = 0
        self._need = PREFIX_BYTES
        self.messages = _NO_MESSAGES
        #: Bytes of whole messages that no handler has taken, with their prefixes: the client gets no window back for
        #: these. Prefixes count, or a client could send endless empty messages to a handler that waits.
        self.waiting = 0
        #: Bytes that `add` has taken, for the look at requests that do not grow (streams.py).
        self.received = 0
        self.ended = False

    def grow(self, size: int) -> None:
        """Adds to what the call itself takes."""
        self.own_bytes += size
        self._buffered.bytes += size
        self._budget.held += size

    def add(self, data: bytes) -> None:
        """Takes bytes of a DATA frame. Raises Aborted for a message that is too large or unreadable, or a full buffer.

        Joins the pieces of a message once, when it is complete: joining them as they arrive would be quadratic.
        """
        size = len(data)
        self._buffered.bytes += size
        self._budget.held += size
        self.received += size
        if self._size:
            self._pieces.append(data)
        else:
            self._pieces = [data]
        self._size += size
        if self._buffered.bytes > self._limits.requests_bytes:
            raise Aborted(Code.RESOURCE_EXHAUSTED, _FULL)
        if self._size >= self._need:
            self._cut(data if len(self._pieces) == 1 else b"".join(self._pieces))

    def add_whole(self, data: bytes) -> bool:
        """Takes the bytes of a DATA frame that are one message, as those of most calls are, and the end.

        False: they are not, or `add` has to refuse them.
        """
        whole = len(data)
        size = whole - PREFIX_BYTES
        if self._size or size < 0 or data[0] or int.from_bytes(data[1:PREFIX_BYTES], "big") != size:
            return False
        if size > self._limits.message_bytes or self._buffered.bytes + whole > self._limits.requests_bytes:
            return False
        self._buffered.bytes += size + _MESSAGE_BYTES
        self._budget.held += size + _MESSAGE_BYTES
        self.waiting += whole
        if self.messages:
            self.messages.append(data[PREFIX_BYTES:])
        else:
            self.messages = deque((data[PREFIX_BYTES:],))
        self.ended = True
        return True

    @property
    def held(self) -> int:
        """Bytes of the messages that no handler has taken, the incomplete one included, and of the call itself."""
        return self._size + self.waiting + self.own_bytes

    @property
    def is_partial(self) -> bool:
        """Whether the rest of a message is to come."""
        return self._size > 0

    def end(self) -> None:
        """Notes that the client sends no more. Raises Aborted in the middle of a message."""
        self.ended = True
        if self._size:
            raise Aborted(Code.INTERNAL, "the stream ends in the middle of a message")

    def take(self) -> bytes:
        """Removes and returns the next message. Raises IndexError if there is none."""
        message = self.messages.popleft()
        size = len(message)
        self.waiting -= size + PREFIX_BYTES
        self._buffered.bytes -= size + _MESSAGE_BYTES
        self._budget.held -= size + _MESSAGE_BYTES
        return message

    def drop(self) -> None:
        """Drops the remaining messages and bytes; the call itself still counts, until its client has read its end."""
        own_bytes, self.own_bytes = self.own_bytes, 0
        self.clear()
        self.own_bytes = own_bytes

    def clear(self) -> None:
        """Drops the remaining messages and bytes: the call is over."""
        while self.messages:
            self.take()
        self._buffered.bytes -= self._size + self.own_bytes
        self._budget.held -= self._size + self.own_bytes
        self._pieces, self._size, self._need, self.own_bytes = _NO_PIECES, 0, PREFIX_BYTES, 0

    def _cut(self, joined: bytes) -> None:
        """Cuts all whole messages off the joined bytes; copies the rest once, not for each message."""
        at, end, self._need = 0, len(joined), PREFIX_BYTES
        while end - at >= PREFIX_BYTES:
            length = int.from_bytes(joined[at + 1 : at + PREFIX_BYTES], "big")
            if length > self._limits.message_bytes:
                most = self._limits.message_bytes
                raise Aborted(Code.RESOURCE_EXHAUSTED, f"a message of {length} bytes; at most {most} are taken")
            stop = at + PREFIX_BYTES + length
            if stop > end:
                self._need = stop - at
                break
            self._keep(joined[at], joined[at + PREFIX_BYTES : stop])
            at = stop
        self._buffered.bytes -= at
        self._budget.held -= at
        self._size -= at
        self._pieces = [joined[at:]] if at < end else _NO_PIECES

    def _keep(self, flag: int, message: bytes) -> None:
        """Queues a whole message for the handler."""
        if flag:
            message = self._unpacked(flag, message)
        self.waiting += len(message) + PREFIX_BYTES
        self._buffered.bytes += len(message) + _MESSAGE_BYTES
        self._budget.held += len(message) + _MESSAGE_BYTES
        if self.messages:
            self.messages.append(message)
        else:
            self.messages = deque((message,))

    def _unpacked(self, flag: int, message: bytes) -> bytes:
        """Unpacks a compressed message. A few bytes can expand to fill the memory, so both ways are bounded."""
        if flag != 1 or self.encoding not in (b"gzip", b"deflate"):
            raise Aborted(Code.INTERNAL, f"a compressed message (flag {flag}) with grpc-encoding {self.encoding!r}")
        try:
            return self._ungzipped(message) if self.encoding == b"gzip" else self._inflated(message)
        except zlib.error as error:
            raise Aborted(Code.INTERNAL, f"a message is not valid {self.encoding.decode()}: {error}") from None

    def _ungzipped(self, message: bytes) -> bytes:
        """The last four bytes of gzip say how many there will be.

        A message that will be too large is refused before it is unpacked, one that expands unusually has to be paid for
        before, and nothing is unpacked beyond what they say.
        """
        size = int.from_bytes(message[-4:], "little")
        if size > self._limits.message_bytes:
            raise self._too_large()
        if (beyond := size - _USUAL_EXPANSION * len(message)) > 0:
            self._budget.spend(_EXPANDS, beyond // _EXPANDED_PER_POINT + 1)
        unpacker = zlib.decompressobj(_GZIP)
        text = unpacker.decompress(message, size + 1)
        if not unpacker.eof or unpacker.unused_data:
            raise Aborted(Code.INTERNAL, "a message is not one whole gzip, or its size is not as it says")
        return text

    def _inflated(self, message: bytes) -> bytes:
        """Deflate (zlib's format) does not say its size: it is unpacked in pieces, and unusual ones are paid before."""
        unpacker, most = zlib.decompressobj(), self._limits.message_bytes
        text = bytearray(unpacker.decompress(message, min(_USUAL_EXPANSION * len(message), most) + 1))
        while not unpacker.eof and len(text) <= most:
            self._budget.spend(_EXPANDS, _PIECE_BYTES // _EXPANDED_PER_POINT)
            piece = unpacker.decompress(unpacker.unconsumed_tail, _PIECE_BYTES)
            if not piece and not unpacker.eof:
                raise Aborted(Code.INTERNAL, "a message is cut off in the middle of its deflate")
            text += piece
        if len(text) > most:
            raise self._too_large()
        if unpacker.unused_data:
            raise Aborted(Code.INTERNAL, "bytes follow the deflate of a message")
        return bytes(text)

    def _too_large(self) -> Aborted:
        return Aborted(Code.RESOURCE_EXHAUSTED, f"a message of more than {self._limits.message_bytes} bytes, unpacked")
