"""Bytes that are counted: both windows of a connection, answers that nobody has taken, and the largest message."""

import asyncio
import zlib

import pytest

from popmq_http2 import Limits, Server, frames
from popmq_http2.frames import (
    CANCEL,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    RST_STREAM,
    U32,
    WINDOW_UPDATE,
    frame,
)
from popmq_http2.hpack import Decoder, encode
from tests.http2.conftest import Echo
from tests.http2.wire import Wire, Written

#: Methods that answer with what they get. Their answers are written in different ways: in one step if the windows allow
#: it; piece by piece, because of its metadata; as a stream of messages.
PLAIN, WITH_METADATA, STREAM = METHODS = b"wait", b"say", b"back"


def head(method: bytes, encoding: bytes = b"identity") -> bytes:
    """The header block of a call."""
    pairs = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/t.Echo/" + method), (b":authority", b"t")]
    return encode([*pairs, (b"te", b"trailers"), (b"content-type", b"application/grpc"), (b"grpc-encoding", encoding)])


def message(size: int) -> bytes:
    """A message with its prefix."""
    return b"\0" + U32.pack(size) + b"x" * size


class Client(Wire):
    """A connection past its greeting, and what its client knows of it."""

    def __init__(self, echo: Echo, window: int = 1 << 20, **limits: int) -> None:
        echo.gate.set()
        super().__init__(Server(echo.methods().get, Limits(**limits)))
        self.feed(PREFACE + frames.settings({INITIAL_WINDOW_SIZE: window}))
        self._decoder = Decoder()
        self._next_id = 1
        self.statuses: dict[int, bytes] = {}
        self.seen: list[Written] = []

    async def ask(
        self, body: bytes, method: bytes = PLAIN, encoding: bytes = b"identity", frame_bytes: int = 16_000
    ) -> int:
        """A whole call with `body` in frames of this size; returns its stream, after its handler has run."""
        stream_id, self._next_id = self._next_id, self._next_id + 2
        self.feed(frame(HEADERS, END_HEADERS, stream_id, head(method, encoding)))
        for start in range(0, len(body), frame_bytes):
            last = END_STREAM if start + frame_bytes >= len(body) else 0
            self.feed(frame(DATA, last, stream_id, body[start : start + frame_bytes]))
        for _ in range(10):
            await asyncio.sleep(0)
        self.look()
        return stream_id

    def look(self) -> list[Written]:
        """What the server has written since the last look."""
        while got := self.read():
            self.seen += got
            for each in got:
                if each.kind == HEADERS:
                    found = dict(self._decoder.decode(each.payload, 1 << 20))
                    self.statuses[each.stream_id] = found.get(b"grpc-status", b"")
        return self.seen

    def widen(self, size: int, stream_id: int = 0) -> None:
        self.feed(frame(WINDOW_UPDATE, 0, stream_id, U32.pack(size)))
        self.look()

    @property
    def data_bytes(self) -> int:
        """Bytes of DATA that have come, of all streams."""
        return sum(len(each.payload) for each in self.seen if each.kind == DATA)

    @property
    def granted(self) -> int:
        """Bytes of DATA that this client may send, on all streams, since the connection was opened."""
        updates = [each for each in self.look() if each.kind == WINDOW_UPDATE and not each.stream_id]
        sizes: list[int] = [U32.unpack(each.payload)[0] for each in updates]
        return DEFAULT_WINDOW + sum(sizes)

    @property
    def broken(self) -> int | None:
        """The error with which the server ended the connection."""
        codes: list[int] = [U32.unpack_from(each.payload, 4)[0] for each in self.look() if each.kind == GOAWAY]
        return codes[0] if codes else None

    @property
    def unsent(self) -> int:
        return self.connection._outlet.unsent


# ── The window of the connection ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_client_that_ignores_the_window_of_the_connection_loses_it(echo: Echo) -> None:
    client = Client(echo, connection_window=DEFAULT_WINDOW, frame_bytes=100_000)
    assert await client.ask(message(16_000))
    assert client.broken is None
    client.feed(frame(DATA, 0, 1, bytes(DEFAULT_WINDOW + 1)))
    assert client.broken == FLOW_CONTROL_ERROR
    assert client.closing


async def test_a_client_that_keeps_to_the_window_of_the_connection_may_send_for_ever(echo: Echo) -> None:
    client, sent = Client(echo, connection_window=200_000), 0
    assert client.granted == 200_000
    client.widen(1 << 30)
    for _ in range(60):
        assert client.statuses[await client.ask(message(19_995))] == b"0"
        sent += 20_000
        assert client.granted - sent >= 100_000, "the window opens again before half of it is used up"


@pytest.mark.parametrize("size", [300, 30_000])
@pytest.mark.parametrize("method", METHODS)
async def test_answers_of_all_calls_keep_to_the_window_of_the_connection(echo: Echo, method: bytes, size: int) -> None:
    """However they are written; a client that widens it by some bytes gets these, and no more."""
    client, asked = Client(echo), 0
    while asked <= 2 * DEFAULT_WINDOW:
        await client.ask(message(size), method)
        asked += size + 5
    assert client.data_bytes <= DEFAULT_WINDOW
    assert client.data_bytes > DEFAULT_WINDOW - size, "the window is used"
    before = client.data_bytes
    client.widen(DEFAULT_WINDOW - before + 10)
    client.widen(1_000)
    assert client.data_bytes <= DEFAULT_WINDOW + DEFAULT_WINDOW - before + 1_010
    client.widen(1 << 20)
    assert client.data_bytes == asked
    assert not client.connection._streams.calls


# ── Answers that nobody has taken ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [300, 30_000])
@pytest.mark.parametrize("method", METHODS)
async def test_a_client_that_takes_its_answers_may_ask_for_more_than_may_wait(
    echo: Echo, method: bytes, size: int
) -> None:
    client = Client(echo, unsent_bytes=40_000)
    client.widen(1 << 30)
    for _ in range(3 * 40_000 // size):
        stream_id = await client.ask(message(size), method)
        assert client.statuses[stream_id] == b"0"
        assert client.unsent == 0


@pytest.mark.parametrize("method", METHODS)
async def test_answers_that_wait_for_a_window_count_until_they_are_written_or_reset(echo: Echo, method: bytes) -> None:
    client = Client(echo, window=1_000, unsent_bytes=40_000)
    first = await client.ask(message(30_000), method)
    assert client.unsent == 30_005 - 1_000
    second = await client.ask(message(30_000), method)
    refused = await client.ask(message(1), method)
    assert client.statuses[refused] == b"8"  # RESOURCE_EXHAUSTED
    client.feed(frame(RST_STREAM, 0, first, U32.pack(CANCEL)))
    assert client.unsent == 30_005 - 1_000
    client.widen(29_005, second)
    assert client.unsent == 0
    assert client.statuses[second] == b"0"
    taken = await client.ask(message(1), method)
    assert client.statuses[taken] == b"0"


# ── The largest message ──────────────────────────────────────────────────────────────────────────────────────────────

MOST = 20_000


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("size", "status"), [(MOST, b"0"), (MOST + 1, b"8")])
@pytest.mark.parametrize("frame_bytes", [16 << 10, 100_000])
async def test_a_message_may_be_as_large_as_the_limit_and_no_byte_larger(
    echo: Echo, frame_bytes: int, size: int, status: bytes, method: bytes
) -> None:
    """In one frame or in several, which the server reads in different ways."""
    client = Client(echo, message_bytes=MOST, frame_bytes=frame_bytes)
    stream_id = await client.ask(message(size), method, frame_bytes=frame_bytes)
    assert client.statuses[stream_id] == status
    assert client.connection._server.buffered.bytes == 0
    assert client.broken is None


async def test_a_gzip_that_says_it_is_too_large_is_refused_before_it_is_unpacked(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = zlib.compress(bytes(MOST + 1), wbits=16 + zlib.MAX_WBITS)
    monkeypatch.delattr("zlib.decompressobj")
    client = Client(echo, message_bytes=MOST)
    stream_id = await client.ask(b"\1" + U32.pack(len(packed)) + packed, encoding=b"gzip")
    assert client.statuses[stream_id] == b"8"


@pytest.mark.parametrize("said", [0, MOST - 1, MOST + 1 - (1 << 32)])
async def test_a_gzip_of_another_size_than_it_says_is_refused(echo: Echo, said: int) -> None:
    packed = zlib.compress(bytes(MOST), wbits=16 + zlib.MAX_WBITS)[:-4] + (said % (1 << 32)).to_bytes(4, "little")
    client = Client(echo, message_bytes=MOST)
    stream_id = await client.ask(b"\1" + U32.pack(len(packed)) + packed, encoding=b"gzip")
    assert client.statuses[stream_id] == (b"13" if said >= 0 else b"8")


@pytest.mark.parametrize(("encoding", "wbits"), [(b"gzip", 16 + zlib.MAX_WBITS), (b"deflate", zlib.MAX_WBITS)])
@pytest.mark.parametrize(("size", "status"), [(0, b"0"), (MOST, b"0"), (MOST + 1, b"8"), (MOST * 50, b"8")])
async def test_the_limit_holds_for_a_message_as_it_is_when_unpacked(
    echo: Echo, size: int, status: bytes, encoding: bytes, wbits: int
) -> None:
    client = Client(echo, message_bytes=MOST)
    packer = zlib.compressobj(wbits=wbits)
    packed = packer.compress(bytes(size)) + packer.flush()
    assert len(packed) < MOST
    stream_id = await client.ask(b"\1" + U32.pack(len(packed)) + packed, encoding=encoding)
    assert client.statuses[stream_id] == status
    assert client.connection._server.buffered.bytes == 0


@pytest.mark.parametrize("cut", [1, 4, 100])
async def test_a_deflate_that_is_cut_off_or_no_deflate_is_refused(echo: Echo, cut: int) -> None:
    client = Client(echo, message_bytes=MOST)
    packed = zlib.compress(bytes(range(256)) * (MOST // 512))
    for broken in (packed[:-cut], b"x" * len(packed)):
        stream_id = await client.ask(b"\1" + U32.pack(len(broken)) + broken, encoding=b"deflate")
        assert client.statuses[stream_id] == b"13"


@pytest.mark.parametrize(("encoding", "wbits"), [(b"gzip", 16 + zlib.MAX_WBITS), (b"deflate", zlib.MAX_WBITS)])
async def test_a_message_in_two_compressed_parts_is_refused_and_not_cut(
    echo: Echo, encoding: bytes, wbits: int
) -> None:
    packers = [zlib.compressobj(wbits=wbits) for _ in range(2)]
    packed = b"".join(packer.compress(b"part") + packer.flush() for packer in packers)
    client = Client(echo)
    stream_id = await client.ask(b"\1" + U32.pack(len(packed)) + packed, encoding=encoding)
    assert client.statuses[stream_id] == b"13"
