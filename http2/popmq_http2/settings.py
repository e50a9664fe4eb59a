"""Reads and validates SETTINGS (RFC 9113, section 6.5.2).

A server needs three of them: how much it may send ahead, the frame size, and the size of the client's header table. A
client also needs how many calls it may have open. The others concern pushed streams, which gRPC does not use, or are
advice.
"""

from popmq_http2.frames import (
    DEFAULT_FRAME,
    ENABLE_PUSH,
    FLOW_CONTROL_ERROR,
    FRAME_MAX,
    FRAME_SIZE_ERROR,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PROTOCOL_ERROR,
    SETTING,
    WINDOW_MAX,
    ConnectionFault,
)


def read(payload: bytes) -> dict[int, int]:
    """The last value of each setting in a frame. Raises ConnectionFault."""
    if len(payload) % SETTING.size:
        raise ConnectionFault(FRAME_SIZE_ERROR, "SETTINGS have 6 bytes each")
    last: dict[int, int] = {}
    for number, value in SETTING.iter_unpack(payload):
        checked(number, value)
        last[number] = value
    return last


def checked(number: int, value: int) -> None:
    """Raises ConnectionFault for a value that the protocol forbids; ignores unknown settings."""
    if number == ENABLE_PUSH and value > 1:
        raise ConnectionFault(PROTOCOL_ERROR, f"ENABLE_PUSH is 0 or 1, not {value}")
    if number == INITIAL_WINDOW_SIZE and value > WINDOW_MAX:
        raise ConnectionFault(FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE {value} is above 2^31 - 1")
    if number == MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= FRAME_MAX:
        raise ConnectionFault(PROTOCOL_ERROR, f"MAX_FRAME_SIZE {value} is not from 2^14 to 2^24 - 1")
