"""Frames of HTTP/2 (RFC 9113): header, types and flags, the errors of the protocol, and its settings."""

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


def read_settings(payload: bytes) -> dict[int, int]:
    """The last value of each setting in a frame. Raises ConnectionFault.

    A server needs three of them: how much it may send ahead, the frame size, and the size of the client's header table.
    A client also needs how many calls it may have open. The others concern pushed streams, which gRPC does not use, or
    are advice.
    """
    if len(payload) % SETTING.size:
        raise ConnectionFault(FRAME_SIZE_ERROR, "SETTINGS have 6 bytes each")
    last: dict[int, int] = {}
    for number, value in SETTING.iter_unpack(payload):
        _check_setting(number, value)
        last[number] = value
    return last


def _check_setting(number: int, value: int) -> None:
    """Raises ConnectionFault for a value that the protocol forbids; ignores unknown settings."""
    if number == ENABLE_PUSH and value > 1:
        raise ConnectionFault(PROTOCOL_ERROR, f"ENABLE_PUSH is 0 or 1, not {value}")
    if number == INITIAL_WINDOW_SIZE and value > WINDOW_MAX:
        raise ConnectionFault(FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE {value} is above 2^31 - 1")
    if number == MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= FRAME_MAX:
        raise ConnectionFault(PROTOCOL_ERROR, f"MAX_FRAME_SIZE {value} is not from 2^14 to 2^24 - 1")
