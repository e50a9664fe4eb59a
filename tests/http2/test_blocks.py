"""The header blocks of answers, beside the hpack library's decoder with the table that a client has asked for."""

from __future__ import annotations

import pytest
from hpack.hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from popmq_http2 import Server
from popmq_http2.frames import END_HEADERS, END_STREAM, HEADER_TABLE_SIZE, HEADERS, PREFACE, SETTING, SETTINGS, frame
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
