"""Frames: what separates commands on a connection. Big-endian.

i32   length of all that follows
i32   encoding of the header (top byte), length of the header (the other three)
…     header
…     body: the rest
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from popmq_remoting.errors import BadFormat
from popmq_remoting.wire import header
from popmq_remoting.wire.command import Command, Fields

#: A whole frame with its first four bytes: what brokers accept.
FRAME_BYTES_MAX = 16 << 20
#: What they send may be larger: the 32 messages of a pop, or 64 of a look-up, each of 4 MiB and its properties.
ANSWER_BYTES_MAX = 260 << 20

_LENGTHS = struct.Struct(">II")
#: How other protocols begin: what stands at an address that was named by mistake.
_STRANGERS = (
    (b"HTTP/", "HTTP"),
    (b"<!", "HTTP"),
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
    (b"SSH-", "SSH"),
    (b"-ERR", "Redis"),
    (b"+OK", "Redis"),
)
_HEADER_BYTES_MAX = (1 << 24) - 1


def write(code: int, opaque: int, flag: int, fields: Fields, body: bytes, remark: str = "") -> bytes:
    """The frame of a command. Raises BadFormat if it is too large."""
    head = header.write_json(code, opaque, flag, fields, remark)
    total = 4 + len(head) + len(body)
    if total + 4 > FRAME_BYTES_MAX or len(head) > _HEADER_BYTES_MAX:
        raise BadFormat(f"a frame of {total + 4} bytes, at most {FRAME_BYTES_MAX}")
    return b"".join((_LENGTHS.pack(total, len(head)), head, body))


class CommandReader:
    """Finds commands in bytes that arrive in pieces. Holds one frame at most, which grows as its bytes arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def waits(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[Command]:
        """The commands that are complete with these bytes. Raises BadFormat behind those before the damage."""
        self._rest += data
        at = 0
        try:
            while len(self._rest) - at >= _LENGTHS.size:
                total, word = _LENGTHS.unpack_from(self._rest, at)
                head = word & _HEADER_BYTES_MAX
                if total + 4 > ANSWER_BYTES_MAX or not 0 < head <= total - 4:
                    stranger = _stranger(bytes(self._rest[at : at + 16]))
                    raise BadFormat(stranger or f"a frame of {total} bytes with a header of {head}")
                end = at + 4 + total
                if len(self._rest) < end:
                    return
                begin, at = at, end
                yield self._command(word >> 24, begin + 8, begin + 8 + head, end)
            if int.from_bytes(self._rest[at : at + 4], "big") + 4 > ANSWER_BYTES_MAX:
                raise BadFormat(_stranger(bytes(self._rest[at:])) or "a frame of more than 260 MiB begins")
        finally:
            del self._rest[:at]

    def _command(self, encoding: int, begin: int, middle: int, end: int) -> Command:
        with memoryview(self._rest) as view:
            command = header.read(encoding, bytes(view[begin:middle]))
            command.body = bytes(view[middle:end])
        return command


def _stranger(begin: bytes) -> str:
    """Which protocol begins so; "" if none that is known."""
    for mark, name in _STRANGERS:
        if begin.startswith(mark):
            return f"it speaks {name}"
    # Length of 3 bytes, type 4 (SETTINGS), flags, stream 0: with the preface of HTTP/2 the other way, it comes first.
    if begin[:1] == b"\0" and begin[3:4] == b"\x04" and begin[5:9] == bytes(4):
        return "it speaks HTTP/2"
    return ""
