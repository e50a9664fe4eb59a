"""Messages as the bytes in which they travel, made of columns: no object for each message, and one copy of its body.

    message   0a id   12 body   1a tag   22 key   2a property …   32 message group   60 born ms

Each field but the last is a head (its number, and the length in bytes) and a text; an empty text is left out.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from popmq._calls.message_rows import Numbering, check_body, message_rows
from popmq._runtime import forks
from popmq._transport.call import field_head, varint
from popmq.message import BODY_TYPES, Body, Message, wrong_body
from popmq_proto.v1 import popmq_pb2 as pb

#: Numbers of the fields of a message.
_TEXTS = {
    "message_id": pb.Message.MESSAGE_ID_FIELD_NUMBER,
    "tag": pb.Message.TAG_FIELD_NUMBER,
    "key": pb.Message.KEYS_FIELD_NUMBER,
    "message_group": pb.Message.MESSAGE_GROUP_FIELD_NUMBER,
}
_BODY, _PROPERTY = pb.Message.BODY_FIELD_NUMBER, pb.Message.PROPERTIES_FIELD_NUMBER
_BORN = bytes([pb.Message.BORN_MS_FIELD_NUMBER << 3])
_NAME, _VALUE = 1, 2  # of an entry of a map


class EncodedMessages:
    """Messages that are encoded already, for programs that send many and have their fields in columns.

        client.send("orders", EncodedMessages.of_columns([b"…", b"…"], key=["AA1", "AA2"]))

    `client.send` and `client.sinks.stage` take them in place of messages. They do not change; a slice is another one.
    """

    __slots__ = ("entries", "message_groups")

    def __init__(self, entries: Sequence[bytes] = (), message_groups: frozenset[str] = frozenset()) -> None:
        self.entries = entries  # each of them a popmq.v1.Message
        self.message_groups = message_groups  # of these messages, and perhaps of others: a slice keeps all

    @classmethod
    def of_columns(
        cls,
        body: Sequence[Body],
        *,
        message_id: Sequence[str | None] = (),
        key: Sequence[str | None] = (),
        tag: Sequence[str | None] = (),
        message_group: Sequence[str | None] = (),
        properties: Sequence[Mapping[str, str] | Iterable[tuple[str, str]] | None] = (),
    ) -> EncodedMessages:
        """One message for each body. The other columns are empty or as long as `body`; "" and None: not set.

        A message without an id gets one, and each the time of now. Raises ValueError for a column of another length,
        TypeError for a value of a wrong type, InvalidField for a body above 4 MiB.
        """
        texts = {"message_id": _ids(message_id, len(body)), "tag": tag, "key": key, "message_group": message_group}
        columns = _fields(_BODY, "body", _bodies(body), len(body))
        for name, values in texts.items():
            columns += _fields(_TEXTS[name], name, _encoded(name, values), len(body))
        if properties:
            columns += _fields(0, "properties", _properties(properties), len(body))
        born = _BORN + varint(int(time.time() * 1000))
        entries = map(b"".join, zip(*columns, repeat(born, len(body)), strict=True))
        return cls(list(entries), frozenset(filter(None, message_group)))

    @classmethod
    def of(cls, messages: Iterable[Message | Body]) -> EncodedMessages:
        """The same of messages with any fields. Raises what `client.send` raises before it sends."""
        rows = message_rows(messages, _numbering(forks.count).message_id)
        groups = frozenset([row.message_group or row.lite_topic for row in rows]) - {""}
        return cls([row.SerializeToString() for row in rows], groups)

    @classmethod
    def joined(cls, parts: Sequence[EncodedMessages]) -> EncodedMessages:
        """The messages of all parts, in order."""
        groups = frozenset[str]().union(*(part.message_groups for part in parts))
        return cls(list(chain.from_iterable(part.entries for part in parts)), groups)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, places: slice) -> EncodedMessages:
        return EncodedMessages(self.entries[places], self.message_groups)

    def take(self, places: Iterable[int]) -> EncodedMessages:
        """The messages at these places."""
        return EncodedMessages([self.entries[place] for place in places], self.message_groups)

    def sizes(self) -> list[int]:
        """Bytes of each message."""
        return list(map(len, self.entries))

    def body(self, place: int) -> bytes:
        """The body of one message."""
        return pb.Message.FromString(self.entries[place]).body

    def rows(self) -> list[pb.Message]:
        """The messages as objects of the contract."""
        return list(map(pb.Message.FromString, self.entries))


@functools.lru_cache(maxsize=1)
def _numbering(_forks: int) -> Numbering:
    """Of this process: a forked child makes other ids than its parent."""
    return Numbering()


def _ids(given: Sequence[str | None], count: int) -> Sequence[str | None]:
    made = _numbering(forks.count).message_id
    return [text or made() for text in given] if given else [made() for _ in range(count)]


def _fields(number: int, name: str, raws: Sequence[bytes], count: int) -> list[Sequence[bytes]]:
    """The heads and the bytes of a field, in two columns; none for a field that no message has.

    Number 0: the bytes have their heads.
    """
    if not raws:
        return []
    if len(raws) != count:
        raise ValueError(f"the column {name} has {len(raws)} values, body has {count}: give one for each body")
    if not number:
        return [raws]
    heads = {size: field_head(number, size) for size in {*map(len, raws)}}
    return [[heads[size] for size in map(len, raws)], raws]


def _bodies(values: Sequence[Body]) -> Sequence[bytes]:
    raws = values if {*map(type, values)} <= {bytes} else [_body(*each) for each in enumerate(values)]
    for place, size in enumerate(map(len, raws)):
        check_body(size, place)
    return raws  # type: ignore[return-value]  # all of them are bytes


def _body(place: int, value: Body) -> bytes:
    if not isinstance(value, BODY_TYPES):
        raise wrong_body(value, f"body[{place}]")
    return value.encode() if isinstance(value, str) else bytes(value)


def _encoded(name: str, values: Sequence[str | None]) -> list[bytes]:
    try:
        return [text.encode() if text else b"" for text in values]
    except (AttributeError, ValueError) as error:
        raise _named(error, {f"{name}[{place}]": text for place, text in enumerate(values) if text}) from None


def _properties(rows: Sequence[Mapping[str, str] | Iterable[tuple[str, str]] | None]) -> list[bytes]:
    """The fields of the properties of each message, with their heads."""
    given = [dict(row) if row else {} for row in rows]
    try:
        return [b"".join([_property(*pair) for pair in row.items()]) for row in given]
    except (AttributeError, ValueError) as error:
        places = enumerate(given)
        texts = {f"properties[{place}][{name!r}]": text for place, row in places for name, text in row.items()}
        raise _named(error, texts) from None


def _property(name: str, value: str) -> bytes:
    raws = name.encode(), value.encode()
    entry = field_head(_NAME, len(raws[0])) + raws[0] + field_head(_VALUE, len(raws[1])) + raws[1]
    return field_head(_PROPERTY, len(entry)) + entry


def _named(error: Exception, texts: Mapping[str, Any]) -> Exception:
    """The error with the first value that is no text; as it is if each of them is one."""
    for name, text in texts.items():
        if not isinstance(text, str):
            return TypeError(f"{name} is {text!r:.80}, of type {type(text).__name__}: give a str")
        try:
            text.encode()
        except ValueError as refused:
            return ValueError(f"{name} is {text!r:.80}: {refused}")
    return error
