"""Fuzzing by frames and by bytes: a connection gets what a seed gives, and must stay in order whatever that is.

python -m tests.http2.fuzzing MINUTES [FIRST SEED]
"""

import asyncio
import logging
import random
import sys
import time

from hpack.hpack import Decoder

from popmq_http2 import Limits, Server
from popmq_http2.frames import DEFAULT_FRAME, END_HEADERS, FRAME_MAX, HEADERS, PREFACE
from tests.http2.conftest import Echo
from tests.http2.sequences import Sequence
from tests.http2.wire import Wire

METHODS = ("count", "say", "back", "many", "deaf", "nothing")
#: Turns of the loop that handlers get between two pieces of input, and after the end.
TURNS, LAST_TURNS = 2, 8
SMALL = Limits(
    message_bytes=2_000, requests_bytes=4_000, unsent_bytes=4_000, write_ahead_bytes=500, streams=4, budget=60,
    headers_bytes=600, header_block_bytes=400, header_frames=3, tiny_data_bytes=8,
)  # fmt: skip


class Errors(logging.Handler):
    """What the server logs as a bug of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def run(seed: int) -> None:
    """One connection by a seed. Fails when it breaks a promise; the message of the failure has the seed."""
    dice, errors = random.Random(seed), Errors()
    logging.getLogger("popmq_http2").addHandler(errors)
    echo = Echo()
    if dice.random() < 0.5:
        echo.gate.set()
    server = Server(echo.methods().get, SMALL if dice.random() < 0.5 else Limits())
    wire, reader = Wire(server), Reader()
    try:
        for piece in pieces(dice, given(dice)):
            wire.feed(piece)
            reader.check(wire)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        reader.check(wire)
        wire.close()
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)
        assert not errors.records, errors.records[0].getMessage()
        left = server.buffered.bytes, wire.connection._outlet.unsent, len(wire.connection._streams.calls)
        assert left == (0, 0, 0), f"left behind: bytes of requests, bytes of answers, calls {left}"
        assert wire.connection._streams._running.count == 0, "a handler runs on"
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    finally:
        logging.getLogger("popmq_http2").removeHandler(errors)


def given(dice: random.Random) -> bytes:
    """The input: sequences of frames, mostly with some bytes changed, cut out or doubled."""
    raw = bytearray(PREFACE + b"".join(Sequence(dice.randrange(1 << 60), METHODS).frames()))
    if dice.random() < 0.05:
        raw = bytearray(dice.randbytes(dice.randrange(200)))
    for _ in range(dice.choice((0, 0, 1, 2, 8))):
        at = dice.randrange(len(raw) + 1)
        choice = dice.randrange(3)
        if choice == 0 and at < len(raw):
            raw[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif choice == 1:
            del raw[at : at + dice.randrange(12)]
        else:
            raw[at:at] = raw[at : at + dice.randrange(40)]
    return bytes(raw)


def pieces(dice: random.Random, raw: bytes) -> list[bytes]:
    """The input in pieces, as a network may cut it: whole, in some pieces, or byte by byte."""
    size = dice.choice((1, 7, 60, 1 << 20))
    return [raw[at : at + size] for at in range(0, len(raw), size)]


class Reader:
    """A client that checks what the server writes: whole frames of allowed sizes, headers that can be decoded."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def check(self, wire: Wire) -> None:
        for frame in wire.read():
            assert len(frame.payload) <= max(DEFAULT_FRAME, min(FRAME_MAX, wire.connection._outlet.frame_bytes))
            if frame.kind == HEADERS:
                assert frame.flags & END_HEADERS
                self._decoder.max_allowed_table_size = 1 << 16
                assert self._decoder.decode(frame.payload)


async def campaign(minutes: float, first: int) -> int:
    """Runs seeds from `first` on until the time is over. Returns their number."""
    end, seed = time.monotonic() + minutes * 60, first
    while time.monotonic() < end:
        await run(seed)
        seed += 1
    return seed - first


if __name__ == "__main__":
    minutes, first = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"{asyncio.run(campaign(minutes, first))} connections from seed {first} on, no fault")
