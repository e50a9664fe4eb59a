"""A filter: built once from its text, then evaluated for every message.

    index stage   `hashes`: skips a message without reading it if its tag hash is not among them
    log stage     `matches`: decides on the stored bytes of the message

Filters with different texts may be equivalent; `normal` is compared.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from popmq_server.errors import Refused
from popmq_server.values import fields
from popmq_server.values.filters import tag
from popmq_server.values.filters.errors import check_bytes
from popmq_server.values.outgoing import tag_hash

#: Distinct texts in the cache, refused ones included.
READY_MAX = 1000
#: Names that SQL uses for a message's tag and keys, as in the reference; they override properties.
TAGS, KEYS = "TAGS", "KEYS"


class Filter(NamedTuple):
    """The messages of a topic that a group reads.

    `kind`: tag or sql92; "" = every message. `text`: as written. `normal`: equal for equivalent texts.
    `hashes`: of the tags that can match, None = any. `matches`: whether the bytes of a popmq.v1.Message match.
    """

    kind: str
    text: str
    normal: str
    hashes: frozenset[bytes] | None
    matches: Callable[[bytes], bool]

    @property
    def everything(self) -> bool:
        """Whether every message passes, so that no stage has to check."""
        return not self.kind

    def same(self, other: "Filter") -> bool:
        """Whether two filters are equivalent, however they are written."""
        return (self.kind, self.normal) == (other.kind, other.normal)

    def __str__(self) -> str:
        return f"{self.kind} {self.text!r}" if self.kind else "every message"


EVERYTHING = Filter("", "", "", None, lambda data: True)


def make(kind: str, text: str) -> Filter:
    """Builds a filter from a kind ("tag", "sql92" or "") and a text. Raises Refused FILTER_INVALID with the place."""
    check_bytes(kind, text)  # before the cache, which would keep the long texts
    result = _made(kind, text)
    if isinstance(result, Filter):
        return result
    raise Refused(result.code, result.message, field=result.field, action=result.action)


@functools.lru_cache(maxsize=READY_MAX)
def _made(kind: str, text: str) -> Filter | Refused:
    """Builds a filter. The cache holds refusals too: a consumer that retries a bad filter costs one parse.

    They are copies: the traceback of one that was raised refers to the tree of its text.
    """
    try:
        return {"tag": _of_tags, "sql92": _of_sql}[kind](text) if kind else EVERYTHING
    except Refused as raised:
        return Refused(raised.code, raised.message, field=raised.field, action=raised.action)


def _of_tags(text: str) -> Filter:
    tags = tag.parse(text)
    if tags is None:
        return EVERYTHING
    wanted, normal = frozenset(tags), tag.written(tags)
    hashes = frozenset(map(tag_hash, tags))
    return Filter("tag", normal, normal, hashes, lambda data: fields.text(data, fields.TAG) in wanted)


def _of_sql(text: str) -> Filter:
    from popmq_server.values.filters import (
        sql92,  # its parser takes a twentieth of a start, and few brokers have SQL filters
    )

    decide = sql92.compiled(text)
    return Filter("sql92", text.strip(), sql92.written(text), None, lambda data: decide(visible(data)) is True)


def visible(data: bytes) -> dict[str, str]:
    """The variables of SQL: a message's properties, its tag as TAGS, its keys joined by spaces as KEYS.

    A missing one is NULL.
    """
    found: dict[str, str] = {}
    tag_text, keys = "", []
    for number, length, _, end in fields.fields(data):
        if number == fields.PROPERTIES:
            name, value = fields.pair(data[end - length : end])
            found[name] = value
        elif number == fields.TAG:
            tag_text = data[end - length : end].decode()
        elif number == fields.KEYS:
            keys.append(data[end - length : end].decode())
    found.pop(TAGS, None)
    found.pop(KEYS, None)
    if tag_text:
        found[TAGS] = tag_text
    if keys:
        found[KEYS] = " ".join(keys)
    return found
