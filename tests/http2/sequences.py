"""Frame sequences by a seed: what a client of gRPC sends, with a mistake here and there."""

import random

from hpack.hpack import Encoder

from popmq_http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    U32,
    WINDOW_MAX,
    WINDOW_UPDATE,
    frame,
)

#: Frames of one sequence, after SETTINGS.
LENGTH_MAX = 14
#: One of so many frames has a mistake.
MISTAKES = 20

Pairs = list[tuple[bytes, bytes]]


def call(stream_id: int, flags: int = END_HEADERS, method: bytes = b"count") -> bytes:
    """HEADERS of a call, without Huffman codes and tables."""
    pairs = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/t.Echo/" + method), (b":authority", b"t")]
    pairs += [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
    block = b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in pairs)
    return frame(HEADERS, flags, stream_id, block)


class Sequence:
    """Writes frames as a client would. Streams are numbered on, or named again, or never opened."""

    def __init__(self, seed: int, methods: tuple[str, ...] = ("count",)) -> None:
        self._random = random.Random(seed)
        self._encoder = Encoder()
        self._methods = methods
        self._next = 1

    def frames(self) -> list[bytes]:
        """SETTINGS and what follows them; a header block in several frames is one entry: it is judged as a whole."""
        found = [frame(SETTINGS, 0, 0)]
        makers = (self._open, self._open, self._open, self._data, self._data, self._data, self._reset, self._window)
        others = (self._ping, self._settings, self._priority, self._unknown, self._goaway, self._push, self._random_one)
        while len(found) < self._random.randint(2, LENGTH_MAX):
            maker = self._random.choice(makers if self._random.random() < 0.8 else others)
            found += maker()
        return found

    def _mistake(self) -> bool:
        return self._random.randrange(MISTAKES) == 0

    def _stream(self) -> int:
        """A stream id, mostly of an open stream."""
        if self._mistake():
            return self._random.choice((0, 2, self._next, self._next + 2))
        return self._random.randrange(1, max(self._next, 2), 2)

    def _open(self) -> list[bytes]:
        random = self._random
        stream_id = self._next
        if self._mistake():
            stream_id = self._stream()
        self._next = max(self._next, (stream_id | 1) + 2)
        block = self._block()
        flags = END_STREAM if random.random() < 0.3 else 0
        if random.random() < 0.2:
            dependency = stream_id if self._mistake() else random.choice((0, 1, 99))
            block, flags = U32.pack(dependency) + b"\x10" + block, flags | HAS_PRIORITY
        if random.random() < 0.2:
            block, flags = self._padded(block), flags | PADDED
        elif random.random() < 0.3:
            return self._cut(stream_id, flags, block)
        return [frame(HEADERS, flags | END_HEADERS, stream_id, block)]

    def _cut(self, stream_id: int, flags: int, block: bytes) -> list[bytes]:
        """A block in two or three frames, the second perhaps of another stream or never sent."""
        at = self._random.randint(5 if flags & HAS_PRIORITY else 0, len(block))
        again = stream_id + 2 if self._mistake() else stream_id
        found = [frame(HEADERS, flags, stream_id, block[:at])]
        if not self._mistake():
            found.append(frame(CONTINUATION, 0, again, b""))
        found.append(frame(CONTINUATION, END_HEADERS, again, block[at:]))
        return [b"".join(found)]

    def _block(self) -> bytes:
        """The headers of a call, or nearly."""
        random = self._random
        if random.random() < 0.03:
            return random.randbytes(random.randrange(30))
        path = b"/t.Echo/" + random.choice(self._methods).encode()
        pairs: Pairs = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"t")]
        rest: Pairs = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
        if random.random() < 0.5:
            rest.append((b"x-%d" % random.randrange(5), random.randbytes(3).hex().encode()))
        if self._mistake():
            self._spoil(pairs, rest)
        block: bytes = self._encoder.encode(pairs + rest, huffman=random.random() < 0.5)
        return block

    def _spoil(self, pairs: Pairs, rest: Pairs) -> None:
        random = self._random
        wrong: Pairs = [
            (b"Upper", b"x"), (b"connection", b"close"), (b"te", b"gzip"), (b":status", b"200"), (b":new", b"x"),
            (b"x", b"a\0b"), (b"x", b"a\rb"), (b"x", b"a\nb"), (b"content-length", b"+3"), (b"", b"x"), (b"a b", b"x"),
            (b"content-length", b"x"), (b"transfer-encoding", b"chunked"), (b":path", b"/again"),
        ]  # fmt: skip
        choice = random.randrange(3)
        if choice == 0:
            pairs.pop(random.randrange(3))
        elif choice == 1:
            rest.insert(random.randrange(len(rest) + 1), random.choice(wrong))
        else:
            pairs.append(rest.pop())
            rest.append(pairs.pop(0))

    def _padded(self, payload: bytes) -> bytes:
        """Padding, sometimes longer than the frame."""
        size = self._random.randrange(10)
        if self._mistake():
            return bytes((len(payload) + 1 + size,)) + payload if len(payload) + size < 255 else b""
        return bytes((size,)) + payload + bytes(size)

    def _data(self) -> list[bytes]:
        random = self._random
        flags = END_STREAM if random.random() < 0.3 else 0
        size = random.randrange(60)
        payload = b"\0" + U32.pack(size) + random.randbytes(size)
        if random.random() < 0.2:
            payload = payload[: random.randrange(len(payload))]
        if random.random() < 0.2:
            payload, flags = self._padded(payload), flags | PADDED
        return [frame(DATA, flags, self._stream(), payload)]

    def _reset(self) -> list[bytes]:
        size = self._random.choice((3, 5)) if self._mistake() else 4
        return [frame(RST_STREAM, 0, self._stream(), U32.pack(8)[:size] + b"\0" * (size - 4))]

    def _window(self) -> list[bytes]:
        random = self._random
        value = random.choice((0, WINDOW_MAX, 1 << 31)) if self._mistake() else random.randrange(1, 5000)
        size = random.choice((3, 5)) if self._mistake() else 4
        stream_id = 0 if random.random() < 0.4 else self._stream()
        return [frame(WINDOW_UPDATE, 0, stream_id, (U32.pack(value) + b"\0")[:size])]

    def _ping(self) -> list[bytes]:
        size = 7 if self._mistake() else 8
        return [frame(PING, self._random.choice((0, ACK)), 1 if self._mistake() else 0, bytes(size))]

    def _settings(self) -> list[bytes]:
        random = self._random
        right = {HEADER_TABLE_SIZE: 100, ENABLE_PUSH: 0, INITIAL_WINDOW_SIZE: 1000, MAX_FRAME_SIZE: 20_000, 99: 5}
        wrong = {ENABLE_PUSH: 2, INITIAL_WINDOW_SIZE: 1 << 31, MAX_FRAME_SIZE: 100}
        pair = random.choice(list((wrong if self._mistake() else right).items()))
        payload = SETTING.pack(*pair) + (b"x" if self._mistake() else b"")
        return [frame(SETTINGS, 0, 1 if self._mistake() else 0, payload)]

    def _priority(self) -> list[bytes]:
        stream_id = self._stream()
        dependency = stream_id if self._mistake() else 0
        return [frame(PRIORITY, 0, stream_id, (U32.pack(dependency) + b"\x10")[: 4 if self._mistake() else 5])]

    def _unknown(self) -> list[bytes]:
        return [frame(self._random.randrange(11, 256), self._random.randrange(256), self._stream(), b"anything")]

    def _goaway(self) -> list[bytes]:
        return [frame(GOAWAY, 0, 1 if self._mistake() else 0, bytes(7 if self._mistake() else 8))]

    def _push(self) -> list[bytes]:
        return [frame(PUSH_PROMISE, END_HEADERS, self._stream(), U32.pack(2) + self._block())]

    def _random_one(self) -> list[bytes]:
        """Any frame except a block that waits for its CONTINUATION: libraries refuse these at different moments."""
        random = self._random
        payload = random.randbytes(random.randrange(40))
        return [frame(random.randrange(11), random.randrange(256) | END_HEADERS, self._stream(), payload)]
