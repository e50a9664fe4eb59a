"""Header blocks, beside the hpack library: what it writes we read, and what it refuses we refuse."""

import contextlib

import hpack
import pytest
from hpack.hpack import Decoder as LibraryDecoder
from hpack.hpack import Encoder as LibraryEncoder
from hpack.table import HeaderTable
from hypothesis import given, settings
from hypothesis import strategies as st

from popmq_http2.hpack import STATIC, CompressionError, Decoder, TooManyHeaders, encode, remembered, resized

LARGE = 1 << 20

names = st.one_of(st.sampled_from([name for name, _ in STATIC]), st.binary(min_size=1, max_size=40))
values = st.one_of(st.sampled_from([value for _, value in STATIC]), st.binary(max_size=300))
pairs = st.one_of(st.sampled_from(STATIC), st.tuples(names, values))
lists = st.lists(pairs, max_size=12)


def test_the_static_table_is_the_librarys() -> None:
    assert HeaderTable.STATIC_TABLE == STATIC


@pytest.mark.slow
@given(st.lists(st.tuples(lists, st.booleans(), st.sampled_from((None, 0, 40, 100, 4096))), max_size=8))
@settings(max_examples=300, deadline=None)
def test_blocks_of_one_connection_are_read_as_they_were_meant(
    rounds: list[tuple[list[tuple[bytes, bytes]], bool, int | None]],
) -> None:
    encoder, decoder = LibraryEncoder(), Decoder()
    for headers, huffman, table_bytes in rounds:
        if table_bytes is not None:
            encoder.header_table_size = table_bytes
        assert decoder.decode(encoder.encode(headers, huffman=huffman), LARGE) == headers


@pytest.mark.slow
@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(max_examples=500, deadline=None)
def test_random_bytes_are_read_or_refused_as_the_library_does(blocks: list[bytes]) -> None:
    library, ours = LibraryDecoder(max_header_list_size=LARGE), Decoder()
    for block in blocks:
        theirs = None
        with contextlib.suppress(hpack.HPACKError, UnicodeDecodeError):
            theirs = [tuple(pair) for pair in library.decode(block, raw=True)]
        if theirs is None:
            with pytest.raises(CompressionError):
                ours.decode(block, LARGE)
            return
        assert ours.decode(block, LARGE) == theirs


@pytest.mark.slow
@given(lists)
def test_the_library_reads_what_we_write(headers: list[tuple[bytes, bytes]]) -> None:
    assert LibraryDecoder(max_header_list_size=LARGE).decode(encode(headers), raw=True) == headers


def test_the_library_remembers_what_we_tell_it_to() -> None:
    library = LibraryDecoder()
    library.decode(remembered(b"a", b"1") + remembered(b"b", b"2"))
    assert library.decode(b"\xbe\xbf", raw=True) == [(b"b", b"2"), (b"a", b"1")]
    library.max_allowed_table_size = 100
    assert library.decode(resized(100) + b"\xbe", raw=True) == [(b"b", b"2")]


def test_a_block_that_changes_no_table_leaves_the_version() -> None:
    decoder = Decoder()
    decoder.decode(remembered(b"a", b"1"), LARGE)
    version = decoder.version
    assert decoder.decode(b"\xbe\x82", LARGE) == [(b"a", b"1"), (b":method", b"GET")]
    decoder.decode(encode([(b"c", b"3")]), LARGE)
    assert decoder.version == version
    decoder.decode(remembered(b"d", b"4"), LARGE)
    assert decoder.version > version


@pytest.mark.mechanism("H.05")
def test_few_bytes_that_name_many_large_pairs_are_refused() -> None:
    decoder = Decoder()
    decoder.decode(remembered(b"bomb", b"x" * 3000), 4096)
    with pytest.raises(TooManyHeaders):
        decoder.decode(b"\xbe" * 1000, 32 << 10)
