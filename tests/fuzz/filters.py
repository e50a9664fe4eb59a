"""The texts of filters: any text is a filter or is refused, with a place that lies in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.errors import Refused
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters import sql92
from tests.fuzz.target import Running

T = TypeVar("T")
MESSAGES: list[dict[str, str]] = [
    {},
    {"a": "5", "b": "x"},
    {"a": "", "b": "9007199254740993", "c": "true", "TAGS": "t"},
]
STORED = pb.Message(message_id="m", body=b"b", tag="t", keys=["k"], properties={"a": "5"}).SerializeToString()
SEEDS = (
    "a > 5 AND b = 'x' OR NOT (c IS NULL)",
    "a BETWEEN 1 AND 2.5e1 AND b NOT IN ('x', 'it''s')",
    "a <> 9007199254740993 OR b IS NOT NULL",
    "a CONTAINS 'x' AND b NOT STARTSWITH 'y' AND c ENDSWITH ''",
    "TRUE = FALSE -- a comment",
    "-5 <= a",
    "TAGS = 't'",
    "((((a))))",
)


def _refused(make: Callable[[], T], text: str) -> T | None:
    """The filter; None if it is refused as an invalid filter with a place in the text."""
    try:
        return make()
    except Refused as found:
        refused = found
    assert refused.code == "FILTER_INVALID"
    offset = int(str(refused).split("(offset ")[1].split(")")[0]) if "(offset " in str(refused) else 0
    assert 0 <= offset <= len(text.encode())
    return None


@contextmanager
def sql() -> Iterator[Running]:
    """A filter has the same meaning as its normal form."""
    yield Running(_sql, [seed.encode() for seed in SEEDS])


def _sql(raw: bytes) -> None:
    text = raw.decode(errors="replace")
    decide = _refused(lambda: sql92.compiled(text), text)
    if decide is None:
        return
    again = sql92.compiled(sql92.written(text))
    for message in MESSAGES:
        assert decide(message) in (True, False, None)
        assert again(message) is decide(message), sql92.written(text)
    assert filters.make("sql92", text).matches(STORED) in (True, False)


@contextmanager
def tags() -> Iterator[Running]:
    """A list of tags is a filter that is the same in its normal form."""
    yield Running(_tags, [b"a || b", b"*", b"a||a|| b", b"", "é || \0".encode()])


def _tags(raw: bytes) -> None:
    text = raw.decode(errors="replace")
    made = _refused(lambda: filters.make("tag", text), text)
    if made is None:
        return
    assert made.matches(STORED) in (True, False)
    assert filters.make(made.kind, made.text).same(made)
