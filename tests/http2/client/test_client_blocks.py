"""The header blocks of requests, beside our decoder and the hpack library's."""

import pytest
from hpack.hpack import Decoder as LibraryDecoder
from hypothesis import given
from hypothesis import strategies as st

from popmq_http2.client.blocks import RequestBlocks, timeout_text
from popmq_http2.hpack import Decoder, Header

LARGE = 1 << 20
texts = st.text("abc/", min_size=1, max_size=40)
rounds = st.lists(
    st.tuples(texts, st.lists(st.tuples(st.sampled_from(["a", "b-c"]), texts), max_size=3), st.integers(1, 3)),
    max_size=60,
)


def expected(path: str, metadata: tuple[tuple[str, str], ...], timeout: int) -> list[Header]:
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"host:1"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"me"),
        (b"grpc-timeout", b"%d000m" % timeout),
        *((name.encode(), value.encode()) for name, value in metadata),
    ]


@pytest.mark.slow
@given(rounds, st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0, 60, 200, 4096, 65_536])), max_size=3))
def test_any_reader_understands_all_blocks_of_a_connection(
    calls: list[tuple[str, list[tuple[str, str]], int]], sizes: list[tuple[int, int]]
) -> None:
    blocks, ours, library = RequestBlocks("http", "host:1", "me"), Decoder(), LibraryDecoder(LARGE)
    for number, (path, metadata, timeout) in enumerate(calls):
        for at, size in sizes:
            if at == number:
                blocks.resize(size)
        block = blocks.block(path, tuple(metadata), float(timeout))
        wanted = expected(path, tuple(metadata), timeout)
        assert ours.decode(block, LARGE) == wanted
        assert [tuple(pair) for pair in library.decode(block, raw=True)] == wanted


@pytest.mark.mechanism("H.21")
def test_a_table_that_is_full_evicts_nothing_and_repeated_calls_stay_short() -> None:
    blocks, reader = RequestBlocks("http", "host:1", "me"), Decoder()
    for number in range(200):
        reader.decode(blocks.block(f"/a.Service/Method{number}", (), 1.0), LARGE)
    version = reader.version
    assert len(blocks.block("/a.Service/Method0", (), 1.0)) < 40
    assert reader.decode(blocks.block("/a.Service/Method0", (), 1.0), LARGE)[2] == (b":path", b"/a.Service/Method0")
    assert reader.version == version


@pytest.mark.parametrize(
    ("seconds", "text"), [(30.0, b"30000m"), (29.99998, b"30000m"), (0.0, b"1m"), (0.0104, b"11m"), (1e6, b"1000000S")]
)
def test_a_timeout_is_never_shorter_than_it_was_given(seconds: float, text: bytes) -> None:
    assert timeout_text(seconds) == text
