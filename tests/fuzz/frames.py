"""The frame layer: a server and a client of popmq_http2 that are sent any bytes.

server   first byte: small or usual limits, whether handlers wait, how the bytes are cut; then what a client sends
client   first byte: small or usual limits, how the bytes are cut; then what a server sends to three calls
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

from popmq_http2 import Code, Limits, Server
from popmq_http2.client.blocks import RequestBlocks
from popmq_http2.client.call import ClientCall
from popmq_http2.client.connection import ClientConnection
from popmq_http2.frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    U32,
    WINDOW_UPDATE,
    frame,
    settings,
)
from popmq_http2.hpack import encode
from popmq_http2.inbox import Buffered
from tests.fuzz.target import Running, errors
from tests.http2.client.scripted import HEAD, OK, Told
from tests.http2.conftest import Echo
from tests.http2.fuzzing import LAST_TURNS, METHODS, SMALL, TURNS, Reader
from tests.http2.sequences import Sequence
from tests.http2.wire import Wire, split

CUTS = (1 << 20, 60, 7, 1)
SEEDS = 60


def cut(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


@contextmanager
def server() -> Iterator[Running]:
    """A server leaves nothing behind, logs no bug, and writes frames that can be read."""
    loop = asyncio.new_event_loop()
    with errors("popmq_http2", "asyncio") as logged:

        def run(raw: bytes) -> None:
            head = raw[0] if raw else 0
            loop.run_until_complete(_fed(cut(PREFACE + raw[1:], CUTS[head >> 2 & 3]), bool(head & 1), bool(head & 2)))
            logged.check()

        heads = [bytes([number % 16]) for number in range(SEEDS)]
        seeds = [head + b"".join(Sequence(number, METHODS).frames()) for number, head in enumerate(heads)]
        yield Running(run, seeds)
    loop.close()


async def _fed(pieces: list[bytes], small: bool, waits: bool) -> None:
    echo = Echo()
    if not waits:
        echo.gate.set()
    server = Server(echo.methods().get, SMALL if small else Limits())
    wire, reader = Wire(server), Reader()
    for piece in pieces:
        wire.feed(piece)
        reader.check(wire)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    reader.check(wire)
    wire.close()
    for _ in range(LAST_TURNS):
        await asyncio.sleep(0)
    left = server.buffered.bytes, wire.connection._outlet.unsent, len(wire.connection._streams.calls)
    assert left == (0, 0, 0), f"left behind: bytes of requests, bytes of answers, calls {left}"
    assert wire.connection._streams._running.count == 0, "a handler runs on"


@contextmanager
def client() -> Iterator[Running]:
    """A client ends each of its calls once, whatever its server says, and keeps no byte of them."""
    yield Running(_answered, [bytes([number % 8]) + _answers(number) for number in range(SEEDS)])


def _answered(raw: bytes) -> None:
    head = raw[0] if raw else 0
    repeated: list[ClientCall] = []
    buffered = Buffered()
    connection = ClientConnection(
        SMALL if head & 1 else Limits(), RequestBlocks("http", "t", "fuzz"), buffered, repeated.append
    )
    calls = [Told(), Told(b"x" * 3_000), Told(None, one=False)]
    connection.feed(settings({}) + frame(SETTINGS, ACK, 0))
    for call in calls:
        connection.open(call)
    written = connection.take()
    for piece in cut(raw[1:], CUTS[head >> 1 & 3]):
        connection.feed(piece)
        written += connection.take()
    split(written[len(PREFACE) :])
    connection.lost("the end of the input")
    for call in calls:
        call.free()
        assert call.ends == (call not in repeated), f"a call ended {call.ends} times"
        assert call.status is None or call.status.code in Code
    assert (buffered.bytes, connection.calls) == (0, {}), "left behind"


def _answers(seed: int) -> bytes:
    """What servers say, in any order."""
    dice = random.Random(seed)
    kinds = [
        lambda on: frame(HEADERS, END_HEADERS, on, encode(HEAD)),
        lambda on: frame(DATA, 0, on, b"\0" + U32.pack(3) + b"abc"),
        lambda on: frame(HEADERS, END_HEADERS | END_STREAM, on, encode(OK)),
        lambda on: frame(RST_STREAM, 0, on, U32.pack(dice.choice([0, 7, 8, 11]))),
        lambda on: frame(WINDOW_UPDATE, 0, dice.choice([0, on]), U32.pack(dice.randrange(1, 1 << 20))),
        lambda on: settings({dice.choice([1, 3, 4, 5]): dice.choice([0, 1, 100, 1 << 16])}),
        lambda on: frame(PING, 0, 0, bytes(8)),
        lambda on: frame(GOAWAY, 0, 0, U32.pack(dice.choice([0, 1, 3])) + U32.pack(dice.choice([0, 2]))),
    ]
    usual = [kinds[0](1), kinds[1](1), kinds[2](1)]
    return b"".join([*usual, *(dice.choice(kinds)(dice.choice([1, 3, 5, 7])) for _ in range(dice.randrange(12)))])
