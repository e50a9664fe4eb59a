"""Frames that are cheap to send and were, or could be, dear to answer: what they cost is counted, not timed."""

import asyncio
import zlib

import pytest

from harness.attacks import head
from popmq_http2 import Limits, Server, frames
from popmq_http2.frames import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    U32,
    WINDOW_UPDATE,
    frame,
)
from popmq_http2.server.call import Call
from popmq_http2.server.outlet import Outlet
from tests.http2.conftest import Echo
from tests.http2.sequences import call
from tests.http2.wire import Wire, Written

CALLS = 2_000


def opened(echo: Echo, **limits: int) -> Wire:
    """A connection past its greeting."""
    wire = Wire(Server(echo.methods().get, Limits(**limits)))
    wire.feed(PREFACE + frames.settings({}))
    wire.read()
    return wire


def gone(written: list[Written]) -> int | None:
    """The error code of the GOAWAY, if there is one."""
    codes = [U32.unpack_from(each.payload, 4)[0] for each in written if each.kind == GOAWAY]
    return codes[-1] if codes else None


@pytest.mark.mechanism("H.08")
async def test_empty_messages_that_no_handler_takes_get_no_window_back(echo: Echo) -> None:
    """They have no bytes of their own: counted by these a client could fill the memory with them."""
    wire = opened(echo, stream_window=65_535)
    wire.feed(call(1, method=b"deaf"))
    await asyncio.sleep(0)
    sent = 0
    while sent < 200_000 and gone(wire.read()) is None and wire.connection._streams.calls:
        wire.feed(frame(DATA, 0, 1, bytes(16_000)))
        sent += 16_000
    assert sent <= 80_000, "the window of the stream is all that a client may send"
    wire.close()


async def test_a_frame_of_many_settings_touches_each_call_once(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = opened(echo)
    for number in range(CALLS):
        wire.feed(call(2 * number + 1))
    steps = 0
    widen = Outlet.widen_call

    def counted(self: Outlet, call: Call, size: int) -> None:
        nonlocal steps
        steps += 1
        widen(self, call, size)

    monkeypatch.setattr(Outlet, "widen_call", counted)
    values = [SETTING.pack(INITIAL_WINDOW_SIZE, 1000 + number) for number in range(2000)]
    wire.feed(frame(SETTINGS, 0, 0, b"".join(values)))
    assert steps == CALLS
    wire.close()


@pytest.mark.mechanism("H.07")
async def test_settings_that_touch_many_calls_cost_more(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = opened(echo, budget=1_000, budget_per_s=1)
    for number in range(CALLS):
        wire.feed(call(2 * number + 1))
    for value in range(100):
        wire.feed(frames.settings({INITIAL_WINDOW_SIZE: value}))
    written = wire.read()
    assert gone(written) == ENHANCE_YOUR_CALM
    assert sum(each.kind == SETTINGS for each in written) < 50
    wire.close()


async def test_a_byte_of_the_connections_window_moves_one_call_and_not_all(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = opened(echo)
    wire.feed(frames.settings({INITIAL_WINDOW_SIZE: 1 << 20}))
    body = b"\0" + U32.pack(1_000) + bytes(1_000)
    for number in range(300):
        stream_id = 2 * number + 1
        wire.feed(call(stream_id, method=b"say") + frame(DATA, END_STREAM, stream_id, body))
    for _ in range(5):
        await asyncio.sleep(0)
    wire.read()
    steps, pump = 0, Outlet._pump

    def counted(self: Outlet, call: Call) -> None:
        nonlocal steps
        steps += 1
        pump(self, call)

    monkeypatch.setattr(Outlet, "_pump", counted)
    for _ in range(100):
        wire.feed(frame(WINDOW_UPDATE, 0, 0, U32.pack(1)))
        assert sum(len(each.payload) for each in wire.read() if each.kind == DATA) == 1
    assert steps <= 300
    wire.feed(frame(WINDOW_UPDATE, 0, 0, U32.pack(1 << 20)))
    got = wire.read()
    assert sum(each.flags & END_STREAM for each in got if each.kind == HEADERS) == len(wire_calls(got))
    assert not wire.connection._streams.calls, "every call got its answer"
    wire.close()


def wire_calls(written: list[Written]) -> set[int]:
    return {each.stream_id for each in written if each.kind == HEADERS}


@pytest.mark.parametrize(("kind", "flags", "payload"), [(PING, frames.ACK, bytes(8)), (GOAWAY, 0, bytes(8))])
async def test_answers_to_nothing_cost_points_too(echo: Echo, kind: int, flags: int, payload: bytes) -> None:
    wire = opened(echo, budget=50, budget_per_s=1)
    for _ in range(100):
        wire.feed(frame(kind, flags, 0, payload))
    assert gone(wire.read()) == ENHANCE_YOUR_CALM


async def test_a_content_length_that_is_no_number_is_malformed(echo: Echo) -> None:
    wire = opened(echo)
    for stream_id, text in ((1, b"+3"), (3, b" 3"), (5, b"1_0"), (7, b"-1"), (9, b"x")):
        said = call(stream_id)[frames.HEAD_BYTES :] + b"\0\x0econtent-length%c%b" % (len(text), text)
        wire.feed(frame(HEADERS, END_HEADERS, stream_id, said))
    resets = [each for each in wire.read() if each.kind == frames.RST_STREAM]
    assert [U32.unpack(each.payload)[0] for each in resets] == [frames.PROTOCOL_ERROR] * 5
    wire.close()


@pytest.mark.mechanism("H.02")
async def test_requests_that_the_server_has_to_reset_cost_points(echo: Echo) -> None:
    wire = opened(echo, budget=50, budget_per_s=1)
    for number in range(1, 201, 2):
        malformed = call(number)[frames.HEAD_BYTES :] + b"\0\x0econtent-length\x01x"
        wire.feed(frame(HEADERS, END_HEADERS, number, malformed))
    written = wire.read()
    assert gone(written) == ENHANCE_YOUR_CALM
    assert sum(each.kind == frames.RST_STREAM for each in written) == 49  # and one point for the first SETTINGS


async def test_data_after_a_refused_message_are_not_read_again_and_cost_points(echo: Echo) -> None:
    """Each frame would unpack the messages before the refused one once more, all for nothing."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    packed = packer.compress(bytes(50_000)) + packer.flush()
    good, bad = b"\1" + U32.pack(len(packed)) + packed, b"\2" + U32.pack(1) + b"x"
    wire = opened(echo, budget=1_000, budget_per_s=0)
    wire.feed(frame(HEADERS, END_HEADERS, 1, head(b"/t.Echo/deaf", (b"grpc-encoding", b"gzip"))))
    wire.feed(frame(DATA, 0, 1, good + bad))
    held = wire.connection._server.buffered.bytes
    wire.feed(frame(DATA, 0, 1, bytes(64)) * 100)
    assert wire.connection._server.buffered.bytes <= held
    assert wire.connection._budget._points <= 900
    wire.close()


@pytest.mark.parametrize("held_by", ["the window of the connection", "the transport"])
async def test_calls_that_are_reset_while_nothing_may_leave_are_not_kept(echo: Echo, held_by: str) -> None:
    """Nothing else ends such a connection: the resets are paid for as they come, and no answer waits."""
    wire = opened(echo, budget=20_000)
    outlet = wire.connection._outlet
    if held_by == "the transport":
        wire.connection.pause_writing()
    else:
        outlet.window = 0
    for stream_id in range(3, 3 + 2 * 5_000, 2):
        wire.feed(call(stream_id, method=b"say") + asked(stream_id, b"m", END_STREAM))
        await asyncio.sleep(0)
        outlet.flush()
        wire.feed(frame(RST_STREAM, 0, stream_id, U32.pack(CANCEL)))
    assert not wire.closing
    assert len(outlet._starved) + len(outlet._dirty) < 2_000
    wire.close()


def asked(stream_id: int, message: bytes, flags: int = 0) -> bytes:
    return frame(DATA, flags, stream_id, b"\0" + U32.pack(len(message)) + message)
