"""Plain messages: a popmq.v1.Message with an id, a body, perhaps a tag, a birth and a host, as most are.

    1 message_id · 2 body · 3 tag · 12 born_ms · 16 born_host            in this order, each at most once

Written and read by hand, at a quarter of the cost of generated code. What has any other field, or another order, is not
plain: `read` says so.
"""

import functools
from typing import NamedTuple

from popmq_server.values.message import read_varint, varint


class Plain(NamedTuple):
    """The fields, texts as UTF-8."""

    message_id: bytes
    body: bytes
    tag: bytes = b""
    born_ms: int = 0
    born_host: bytes = b""


def write(message_id: bytes, body: bytes, tag: str = "", born_ms: int = 0, born_host: str = "") -> bytes:
    """The message's bytes."""
    return b"".join(
        (
            head(b"\x0a", len(message_id)),
            message_id,
            head(b"\x12", len(body)),
            body,
            text(b"\x1a", tag) if tag else b"",
            head(b"\x60", born_ms) if born_ms else b"",
            text(b"\x82\x01", born_host) if born_host else b"",
        )
    )


def read(data: bytes) -> Plain | None:
    """The fields of a plain message with an id and a body; None for any other, and for texts of 128 bytes and more.

    `data`: a valid message.
    """
    size, tag, born_ms, host = len(data), b"", 0, b""
    if not size or data[0] != 0x0A or data[1] > 0x7F:
        return None
    name = 2 + data[1]
    if name >= size or data[name] != 0x12:
        return None
    length, begin = data[name + 1], name + 2
    if length > 0x7F:
        length, begin = read_varint(data, name + 1)
    at = begin + length
    if at < size and data[at] == 0x1A:
        if data[at + 1] > 0x7F:
            return None
        end = at + 2 + data[at + 1]
        tag, at = data[at + 2 : end], end
    if at < size and data[at] == 0x60:
        born_ms, at = read_varint(data, at + 1)
    if at < size and data[at] == 0x82:
        if data[at + 1] != 0x01 or data[at + 2] > 0x7F:
            return None
        end = at + 3 + data[at + 2]
        host, at = data[at + 3 : end], end
    return Plain(data[2:name], data[begin : begin + length], tag, born_ms, host) if at == size else None


@functools.lru_cache(maxsize=4096)
def head(field: bytes, number: int) -> bytes:
    """A protobuf field that is a number, or the start of one of so many bytes. `field`: its key."""
    return field + varint(number)


@functools.lru_cache(maxsize=4096)
def text(field: bytes, value: str) -> bytes:
    """A protobuf field with a text that many messages have. `field`: its key."""
    raw = value.encode()
    return field + varint(len(raw)) + raw
