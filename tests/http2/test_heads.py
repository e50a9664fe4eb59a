"""Heads of one connection: read from the last one where that is enough, always as if read alone."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popmq_http2 import request
from popmq_http2.hpack import Header
from popmq_http2.request import Head, HeadReader, Malformed, head
from popmq_http2.status import Code

START: list[Header] = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/C")]
CONTENT = (b"content-type", b"application/grpc")
COMMON: list[Header] = [
    *START,
    CONTENT,
    (b"grpc-timeout", b"1S"),
    (b"x-id", b"1"),
    (b"x-raw-bin", b"AAA"),
    (b"te", b"trailers"),
    (b"x-last", b"1"),
]

#: The pairs are always the same objects, as those of a table are.
CHANGES: dict[int, list[Header]] = {
    0: [(b":method", b"GET")],
    2: [(b":path", b"/a.B/D")],
    3: [(b"content-type", b"text/plain")],
    4: [(b"grpc-timeout", b"20m"), (b"grpc-timeout", b"soon"), (b"x-other", b"1S"), (b"grpc-timeout", b"")],
    5: [(b"x-id", b"2"), (b"x-id", b"3\n"), (b"x-id", b"\xff"), (b"X", b"2"), (b"content-length", b"7")],
    6: [(b"x-raw-bin", b"/w"), (b"x-raw-bin", b"?"), (b"x-raw-bin", b"AAA,/w=="), (b"x-raw", b"AAA")],
    7: [(b"te", b"gzip"), (b":path", b"/late")],
    8: [(b"x-last", b"2")],
}  # fmt: skip


def changed(choices: dict[int, int]) -> list[Header]:
    headers = list(COMMON)
    for index, choice in choices.items():
        headers[index] = [COMMON[index], *CHANGES[index]][choice]
    return headers


one_list = st.fixed_dictionaries({index: st.integers(0, len(CHANGES[index])) for index in CHANGES}).map(changed)
mostly_one_change = st.sampled_from(sorted(CHANGES)).flatmap(
    lambda index: st.integers(0, len(CHANGES[index])).map(lambda choice: changed({index: choice}))
)


def outcome(read: Any, headers: list[Header]) -> Head | str:
    try:
        found: Head = read(headers)
    except Malformed as malformed:
        return str(malformed)
    return found


@given(st.lists(st.one_of(mostly_one_change, one_list, one_list.map(lambda headers: headers[:-1])), max_size=12))
@settings(max_examples=400, deadline=None)
def test_a_head_is_the_same_whatever_was_read_before_it(lists: list[list[Header]]) -> None:
    reader = HeadReader()
    for headers in lists:
        assert outcome(reader.read, headers) == outcome(head, headers)


def test_a_call_with_another_id_and_timeout_is_not_read_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = HeadReader()
    reader.read(changed({}))
    monkeypatch.setattr(request, "head", None)
    assert reader.read(changed({4: 1, 5: 1})).metadata == (("x-id", "2"), ("x-raw-bin", b"\0\0"), ("x-last", "1"))


def test_values_of_bytes_that_a_proxy_has_joined_are_read_one_by_one() -> None:
    joined = (b"x-raw-bin", b"YWI, Y2Q=,")
    assert head([*START, CONTENT, joined]).metadata == (("x-raw-bin", b"ab"), ("x-raw-bin", b"cd"), ("x-raw-bin", b""))
    reader = HeadReader()
    reader.read([*START, CONTENT, joined, (b"x-id", b"1")])
    assert reader.read([*START, CONTENT, joined, (b"x-id", b"2")]).metadata[2:] == (("x-raw-bin", b""), ("x-id", "2"))
    refusal = head([*START, CONTENT, (b"x-raw-bin", b"YWI,?")]).refusal
    assert refusal
    assert refusal[0] is Code.INTERNAL


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (b"application/grpc", 200),
        (b"application/grpc+proto", 200),
        (b"application/grpc;charset=utf-8", 200),
        (b"application/grpc-web", 415),
        (b"application/grpcfoo", 415),
        (b"", 415),
    ],
)
def test_only_the_content_types_of_grpc_are_taken(value: bytes, status: int) -> None:
    assert head([*START, (b"content-type", value)]).http_status == status


def test_an_encoding_that_is_not_known_is_refused_with_those_that_are() -> None:
    known = [head([*START, CONTENT, (b"grpc-encoding", name)]).refusal for name in (b"identity", b"gzip", b"deflate")]
    assert known == [None] * 3
    refusal = head([*START, CONTENT, (b"grpc-encoding", b"br")]).refusal
    assert refusal
    assert (refusal[0], refusal[2]) == (Code.UNIMPLEMENTED, (("grpc-accept-encoding", "identity,gzip,deflate"),))
