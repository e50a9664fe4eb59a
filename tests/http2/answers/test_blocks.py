"""The header blocks of answers, beside the hpack library's decoder with the table that a client has asked for."""

import asyncio

import pytest
from hpack.hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from popmq_http2 import Aborted, Call, Code, Method, Server, unary
from popmq_http2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME,
    END_HEADERS,
    END_STREAM,
    HEADER_TABLE_SIZE,
    HEADERS,
    PREFACE,
    SETTING,
    SETTINGS,
    frame,
)
from popmq_http2.hpack import encode, resized
from popmq_http2.server.blocks import Blocks
from tests.http2.conftest import Echo
from tests.http2.wire import Wire

#: A request that is answered without a handler.
REQUEST = encode([(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")])


@pytest.mark.parametrize("frames", [1, 2])
async def test_a_table_that_was_smaller_for_a_moment_is_signalled_with_the_smallest_size_first(
    echo: Echo, frames: int
) -> None:
    wire = Wire(Server(echo.methods().get))

    def answered(stream_id: int) -> bytes:
        wire.feed(frame(HEADERS, END_HEADERS | END_STREAM, stream_id, REQUEST))
        (block,) = (each.payload for each in wire.read() if each.kind == HEADERS)
        return block

    wire.feed(PREFACE + frame(SETTINGS, 0, 0))
    plain = answered(1)
    sizes = [SETTING.pack(HEADER_TABLE_SIZE, size) for size in (0, 4096)]
    for payload in sizes if frames == 2 else [b"".join(sizes)]:
        wire.feed(frame(SETTINGS, 0, 0, payload))
    assert [answered(3), answered(5)] == [resized(0) + resized(4096) + plain, plain]


@given(st.lists(st.one_of(st.sampled_from(["begin", "ok"]), st.sampled_from([0, 60, 4095, 4096, 65_536]))))
def test_a_client_reads_all_answers_whatever_sizes_it_asks_for(steps: list[str | int]) -> None:
    blocks, reader = Blocks(), Decoder()
    for step in steps:
        if isinstance(step, int):
            blocks.resize(step)
            reader.max_allowed_table_size = step
            reader.header_table_size = min(reader.header_table_size, step)
        elif step == "begin":
            assert reader.decode(blocks.begin()) == [(":status", "200"), ("content-type", "application/grpc")]
        else:
            assert reader.decode(blocks.ok()) == [("grpc-status", "0")]


def request(path: bytes = b"/a.B/C", *others: tuple[bytes, bytes]) -> bytes:
    start = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b"content-type", b"application/grpc")]
    return encode([*start, *others])


@pytest.mark.parametrize("size", [DEFAULT_FRAME - 100, DEFAULT_FRAME * 3])
async def test_trailers_that_are_larger_than_a_frame_are_continued(size: int) -> None:
    async def refuse(message: bytes, call: Call) -> bytes:
        raise Aborted(Code.INTERNAL, "x" * size)

    method: Method = unary(refuse)
    wire = Wire(Server(lambda _: method))
    wire.feed(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, request()))
    wire.feed(frame(DATA, END_STREAM, 1, bytes(5)))
    await asyncio.sleep(0)  # the handler runs
    written = [each for each in wire.read() if each.kind in (HEADERS, CONTINUATION)]
    assert max(len(each.payload) for each in written) <= DEFAULT_FRAME
    assert [each.kind for each in written] == [HEADERS] + [CONTINUATION] * (size // DEFAULT_FRAME)
    assert [bool(each.flags & END_HEADERS) for each in written] == [False] * (len(written) - 1) + [True]
    assert written[0].flags & END_STREAM
    decoder = Decoder(1 << 20)
    assert ("grpc-message", "x" * size) in decoder.decode(b"".join(each.payload for each in written))


@pytest.mark.parametrize("asked", [request(b"/" + b"\xe9" * 9000), request(b"/a", (b"grpc-timeout", b"\xe9" * 9000))])
async def test_an_answer_quotes_little_of_a_request(echo: Echo, asked: bytes) -> None:
    wire = Wire(Server(echo.methods().get))
    wire.feed(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS | END_STREAM, 1, asked))
    (block,) = (each.payload for each in wire.read() if each.kind == HEADERS)
    assert 1000 < len(block) < 4000


async def test_the_refusal_of_an_encoding_names_those_that_are_taken(echo: Echo) -> None:
    wire, asked = Wire(Server(echo.methods().get)), request(b"/t.Echo/say", (b"grpc-encoding", b"br"))
    wire.feed(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, asked))
    wire.feed(frame(DATA, END_STREAM, 1, b"\1\0\0\0\1x"))
    (block,) = (each.payload for each in wire.read() if each.kind == HEADERS)
    shown = dict(Decoder().decode(block))
    assert (shown["grpc-status"], shown["grpc-accept-encoding"]) == (
        str(int(Code.UNIMPLEMENTED)),
        "identity,gzip,deflate",
    )


@pytest.mark.parametrize(("method", "has_body"), [(b"GET", True), (b"HEAD", False)])
async def test_a_request_that_is_not_grpc_is_told_so_and_head_without_a_body(
    echo: Echo, method: bytes, has_body: bool
) -> None:
    wire = Wire(Server(echo.methods().get))
    asked = encode([(b":method", method), (b":scheme", b"http"), (b":path", b"/")])
    wire.feed(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS | END_STREAM, 1, asked))
    written = [each for each in wire.read() if each.stream_id]
    assert (b":status", b"405") in Decoder().decode(written[0].payload, raw=True)
    assert any(each.payload for each in written[1:]) is has_body
    assert [bool(each.flags & END_STREAM) for each in written] == [False] * (len(written) - 1) + [True]
