"""Frames of HTTP/2 (RFC 9113): header, types and flags, and the errors of the protocol."""

import struct

#: length [3], type [1], flags [1], stream [4]; the length is split into a short and a byte.
HEAD = struct.Struct(">HBBBI")
HEAD_BYTES = HEAD.size
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

# Flags. ACK and END_STREAM are the same bit, in different frame types.
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

# Error codes of RST_STREAM and GOAWAY (RFC 9113, section 7).
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM = range(6, 12)

# Settings (RFC 9113, section 6.5.2).
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = range(1, 5)
MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 5, 6

WINDOW_MAX = (1 << 31) - 1
#: Defaults for both sides before the first SETTINGS.
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384
FRAME_MAX = (1 << 24) - 1

U32 = struct.Struct(">I")
SETTING = struct.Struct(">HI")


class ConnectionFault(Exception):
    """Ends a connection: sends a GOAWAY with `code`, then closes it."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamFault(Exception):
    """Ends one stream: sends a RST_STREAM with `code`; the connection's other streams continue."""

    def __init__(self, stream_id: int, code: int, why: str) -> None:
        super().__init__(why)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A complete frame."""
    length = len(payload)
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id) + payload


def head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """The header of a frame whose payload follows."""
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def settings(pairs: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*pair) for pair in pairs.items()))
