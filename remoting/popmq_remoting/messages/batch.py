"""The body of a batch: messages that one request (320) sends into one queue.

    i32 size, i32 0, i32 0, i32 flag, i32 n + body, i16 n + properties          for each message

No delay, transaction or retry topic is allowed in it, and one code answers for all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties

#: Bodies of requests that send: what brokers accept by default (maxMessageSize).
BODY_BYTES_MAX = 4 << 20

_HEAD = struct.Struct(">iiiii")
_PROPERTIES = struct.Struct(">h")


class Entry(NamedTuple):
    """One message: its body, and its properties as properties.write writes them, in UTF-8."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def size_of(entry: Entry) -> int:
    """Its bytes in a batch."""
    return _HEAD.size + len(entry.body) + _PROPERTIES.size + len(entry.properties)


def write(entries: Iterable[Entry]) -> bytes:
    """The body of a batch. Raises BadFormat if properties or the whole are too large."""
    pieces = []
    for entry in entries:
        text = entry.properties
        if len(text) > properties.BYTES_MAX:
            raise BadFormat(f"properties of {len(text)} bytes, at most {properties.BYTES_MAX}")
        size = _HEAD.size + len(entry.body) + _PROPERTIES.size + len(text)
        pieces += [
            _HEAD.pack(size, 0, 0, entry.flag, len(entry.body)),
            entry.body,
            _PROPERTIES.pack(len(text)),
            text,
        ]
    body = b"".join(pieces)
    if len(body) > BODY_BYTES_MAX:
        raise BadFormat(f"a batch of {len(body)} bytes, at most {BODY_BYTES_MAX}")
    return body


def split(entries: Iterable[Entry], bytes_max: int = BODY_BYTES_MAX) -> list[list[Entry]]:
    """The entries in order, in batches that are not larger. A single one may be: the broker refuses it by itself."""
    batches: list[list[Entry]] = []
    room = 0
    for entry in entries:
        size = size_of(entry)
        if size > room:
            batches.append([])
            room = bytes_max
        batches[-1].append(entry)
        room -= size
    return batches
