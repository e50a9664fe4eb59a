"""JSON as older brokers write it: bare and object keys; standard JSON is read as the library reads it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popmq_remoting import loose_json
from popmq_remoting.errors import BadFormat
from popmq_remoting.requests import bodies
from popmq_remoting.wire.command import Response

#: The bodies of a 5.3.3 (5.5.0 writes the same), by the section on bodies that are not JSON.
CLUSTER = b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},"brokerName":"a"}}}'
STATS = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"maxOffset":3,"minOffset":0}},"topicPutTps":0.0}'

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def loose(value: Any, key: bool = False) -> str:
    """JSON with every key that is a number bare, which the library cannot read."""
    if isinstance(value, dict):
        pairs = (f"{loose(name, key=True)} : {loose(each)}" for name, each in value.items())
        return "{ " + " , ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ",".join(map(loose, value)) + "]"
    return value if key and value.isascii() and value.isdigit() and str(int(value)) == value else json.dumps(value)


def test_bare_numbers_are_keys() -> None:
    found = loose_json.loads(CLUSTER)
    assert found["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": "127.0.0.1:10911", "1": "127.0.0.1:10921"}


def test_objects_are_keys_and_become_their_text() -> None:
    key = loose_json.key_of(topic="t", brokerName="a", queueId=0)
    assert loose_json.loads(STATS) == {"offsetTable": {key: {"maxOffset": 3, "minOffset": 0}}, "topicPutTps": 0.0}


@given(values)
@settings(max_examples=40)
def test_standard_json_is_read_as_the_library_reads_it(value: Any) -> None:
    assert loose_json.loads(json.dumps(value).encode()) == value


@given(st.dictionaries(st.integers(0, 10**6).map(str) | st.text(max_size=3), values, min_size=1, max_size=3))
@settings(max_examples=30)
def test_bare_keys_change_nothing_else(value: dict[str, Any]) -> None:
    assert loose_json.loads(loose(value).encode()) == value


@given(st.binary(max_size=60) | st.text('{}[]:,"0-1.eEtrufalsn\\ ', max_size=40).map(str.encode))
def test_any_bytes_are_a_value_or_a_typed_refusal(raw: bytes) -> None:
    try:
        loose_json.loads(raw)
    except BadFormat:
        return


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{0:1",
        b"{0:1}x",
        b"{0 1}",
        b"{0:1,,}",
        b"{a:1}",
        b"\xff",
        b"[" * 100_000,
        b"{0:" * 1_000,
        b'{0:"\x01"}',
        b"{0:" + b"9" * 5_000 + b"}",
    ],
)
def test_what_is_no_json_in_either_form_is_refused(raw: bytes) -> None:
    with pytest.raises(BadFormat):
        loose_json.loads(raw)


@given(st.dictionaries(st.text(max_size=3), values, max_size=9), st.sampled_from([(",", ":"), (", ", ": ")]))
@settings(max_examples=60)
def test_a_table_in_pieces_is_the_table(value: dict[str, Any], separators: tuple[str, str]) -> None:
    for body in (json.dumps({"x": [1], "t": value, "y": "t"}, separators=separators), loose({"t": value})):
        answer = Response(0, body=body.encode())
        found = [*bodies.pieces(answer, "t", 2)]
        assert {name: each for some in found for name, each in some.items()} == bodies.table(answer, "t") == value
        if separators == (",", ":") and body[1] == '"':
            assert [len(some) for some in found[:-1]] == [2] * (len(value) // 2)


@pytest.mark.parametrize("body", [b'{"t":{"a":1,"b":2,"c"', b'{"t":{"a":1;"b":2}}', b'{"t":{1:2', b'{"t":["a"]}'])
def test_a_table_that_breaks_off_between_two_pieces_is_refused(body: bytes) -> None:
    with pytest.raises(BadFormat):
        list(bodies.pieces(Response(0, body=body), "t", 1))


def test_a_table_that_is_missing_is_empty() -> None:
    assert list(bodies.pieces(Response(0, body=b"{}"), "t", 1)) == [{}]
