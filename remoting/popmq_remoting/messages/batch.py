"""The body of a batch: messages that one request (320) sends into one queue.

    i32 size, i32 0, i32 0, i32 flag, i32 n + body, i16 n + properties          for each message

No delay, transaction or retry topic is allowed in it, and one code answers for all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties

#: Bodies of requests that send: what brokers accept by default (maxMessageSize).
BODY_BYTES_MAX = 4 << 20

_HEAD = struct.Struct(">iiiii")
_PROPERTIES = struct.Struct(">h")


#: The body of a message, and its properties as properties.write writes them, in UTF-8.
Entry = tuple[bytes, bytes]


def size_of(entries: Sequence[Entry]) -> int:
    """The bytes of a batch."""
    own = _HEAD.size + _PROPERTIES.size
    return sum([len(body) + len(text) for body, text in entries]) + own * len(entries)


def write(entries: Iterable[Entry]) -> bytes:
    """The body of a batch. Raises BadFormat if properties or the whole are too large."""
    pieces = list[bytes]()
    own, head, end = _HEAD.size + _PROPERTIES.size, _HEAD.pack, _PROPERTIES.pack
    for body, text in entries:
        size, length = len(body), len(text)
        if length > properties.BYTES_MAX:
            raise BadFormat(f"properties of {length} bytes, at most {properties.BYTES_MAX}")
        pieces += (head(own + size + length, 0, 0, 0, size), body, end(length), text)
    whole = b"".join(pieces)
    if len(whole) > BODY_BYTES_MAX:
        raise BadFormat(f"a batch of {len(whole)} bytes, at most {BODY_BYTES_MAX}")
    return whole
