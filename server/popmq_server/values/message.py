"""A message in the store: a few scalars and opaque bytes.

record in the log   crc32 [4] · version [1] · length [3] · T [4] · stored ms [8] · popmq.v1.Message as received
                    the crc covers everything after itself
"""

import functools
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from popmq_server.errors import Refused, invalid

#: crc32, version and length, T, stored ms.
RECORD = struct.Struct(">IIIQ")
#: The bytes of a record before its message.
RECORD_HEAD_BYTES = RECORD.size
#: Lengths of records are below this; the version is in the bits above.
LENGTH_END = 1 << 24
#: Keys of the fields message_id and body of popmq.v1.Message.
_MESSAGE_ID, _BODY = 0x0A, b"\x12"
_RECORD_BODY = struct.Struct(">IIQ")
#: Where everything ends that `message_parts` looks at: an id of 127 bytes, and two keys and lengths.
_BEGINNING = 2 + 127 + 1 + 5

#: How people write what a field counts, by the end of its name.
_UNITS = {
    "ms": {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000},
    "bytes": {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10},
}

#: Limits of a message.
BODY_BYTES_MAX = 4 << 20
MESSAGE_ID_BYTES_MAX = 128
TAG_BYTES_MAX = 64
KEYS_MAX = 16
KEY_BYTES_MAX = 128
PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 64 << 10
REASON_BYTES_MAX = 4 << 10
RESULT_BYTES_MAX = 256 << 10
CONTENT_TYPE_BYTES_MAX = 64
MESSAGE_GROUP_BYTES_MAX = 64
PRIORITY_MAX = 1023
BORN_HOST_BYTES_MAX = 256
LITE_TOPIC_BYTES_MAX = 64
CHECK_AFTER_MS_MIN, CHECK_AFTER_MS_MAX = 1_000, 3_600_000
#: How long a message may live: 10 years.
TTL_MS_MAX = 10 * 365 * 86_400_000
#: The end of the year 9999. Protobuf's Timestamp, and the times of most languages, end there.
TIME_MS_MAX = 253_402_300_799_999

TOPIC_NAME_MAX = 127
GROUP_NAME_MAX = 120
_NAME = re.compile(r"[A-Za-z0-9_.\-]+\Z")
_LITE_NAME = re.compile(r"[A-Za-z0-9_\-]+\Z")
#: Stands for all lite topics of a topic where lite topics are named.
ALL_LITE_TOPICS = "*"
DEAD_LETTER_PREFIX = "%DLQ%"
RETRY_PREFIX = "%RETRY%"
RESULT_PREFIX = "%RESULT%"
#: The LITE topic of replies, and the property of a request that says so before its lite topic (docs/requests.md).
REPLIES, REPLY_TO = "popmq-replies", "popmq_reply_to"
#: The topic of half messages that were given up after all checks; RocketMQ uses the same name.
GIVE_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class Extra(NamedTuple):
    """Options that few messages have.

    `message_group`: FIFO topics. `due_ms`: earliest delivery time, 0 = at once; `delay_ms`: the same, relative to the
    store time. `priority`: PRIORITY topics, from 0. `transaction`: a half message until it is committed;
    `check_after_ms`: delay of its first check after the store time, 0 = the default. `lite_topic`: LITE topics.
    `ttl_ms`: it expires so long after it became visible, 0 = never.
    """

    message_group: str = ""
    due_ms: int = 0
    delay_ms: int = 0
    priority: int = 0
    transaction: bool = False
    check_after_ms: int = 0
    lite_topic: str = ""
    ttl_ms: int = 0


def record(topic_id: int, stored_ms: int, data: bytes) -> tuple[bytes, bytes]:
    """The header of a record and its data: `b"".join` of both is the record."""
    head, data = records(topic_id, stored_ms, (data,))
    return head, data


def records(topic_id: int, stored_ms: int, messages: Iterable[bytes]) -> list[bytes]:
    """Headers and data of records in turns, as `record`; headers of messages of one length differ in their crc only.

    The version is 0, so version and length are packed as one number: a message is shorter than LENGTH_END. A later
    release with another layout sets the version byte (formats.py).
    """
    bodies: dict[int, tuple[int, bytes]] = {}
    parts: list[bytes] = []
    crc32 = zlib.crc32
    for data in messages:
        length = len(data)
        if length not in bodies:
            body = _RECORD_BODY.pack(length, topic_id, stored_ms)
            bodies[length] = crc32(body), body
        crc, body = bodies[length]
        parts += (crc32(data, crc).to_bytes(4, "big") + body, data)
    return parts


def read_record(raw: memoryview, topic_id: int) -> tuple[int, bytes] | None:
    """(stored ms, message bytes) of a record, or None if it is damaged.

    A version other than 0 makes the length wrong, so a record that this release cannot read is quarantined, never
    delivered. The topic is compared too, so a pointer into another topic's chunk finds nothing.
    """
    size = raw.nbytes - RECORD_HEAD_BYTES
    if size < 0:
        return None
    crc, length, topic, stored_ms = RECORD.unpack_from(raw)
    if zlib.crc32(raw[4:]) != crc or length != size or topic != topic_id:
        return None
    return stored_ms, raw[RECORD_HEAD_BYTES:].tobytes()


def read_head(raw: memoryview, topic_id: int) -> tuple[int, bytes] | None:
    """Like `read_record`, without copying the body: the message comes without the body that `message_parts` finds."""
    size = raw.nbytes - RECORD_HEAD_BYTES
    if size < 0:
        return None
    crc, length, topic, stored_ms = RECORD.unpack_from(raw)
    if zlib.crc32(raw[4:]) != crc or length != size or topic != topic_id:
        return None
    return stored_ms, without_body(raw, RECORD_HEAD_BYTES)


def without_body(raw: memoryview, at: int) -> bytes:
    """The message from `at` to the end, without the body that `message_parts` finds, which is not copied."""
    start = raw[at : at + _BEGINNING].tobytes()
    body, end = message_parts(start)
    return start[:body] if at + end == len(raw) else start[:body] + raw[at + end :]


def message_parts(data: bytes) -> tuple[int, int]:
    """(where the body begins, where it ends) in a message, keys included, if it is first or after the message id,
    as clients and the broker write it. Else both are where something else begins. `data`: the beginning is enough.
    """
    body = 2 + data[1] if data[0] == _MESSAGE_ID and data[1] < 0x80 else 0
    if data[body : body + 1] != _BODY:
        return body, body
    if (low := data[body + 1]) < 0x80:
        return body, body + 2 + low
    if (high := data[body + 2]) < 0x80:
        return body, body + 3 + (low & 0x7F | high << 7)
    at, length, shift = body + 2, low & 0x7F, 7
    while data[at] >= 0x80:
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return body, at + 1 + (length | data[at] << shift)


def varint(value: int) -> bytes:
    """A protobuf varint of a number ≥ 0."""
    if value < 0x80:
        return _SHORT[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80)) + _upper(value >> 14)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(a protobuf varint, the index behind it)."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7


def length_prefixed(texts: Sequence[bytes]) -> list[bytes]:
    """Puts the length of each text before it, as a varint. One call for all: the texts of a batch have few lengths."""
    sizes = list(map(len, texts))
    heads = {size: varint(size) for size in set(sizes)}
    return [heads[size] + text for size, text in zip(sizes, texts, strict=True)]


#: Cached, because upper digits repeat: of a time for 16 s, of an offset for 16,384 messages.
_upper = functools.lru_cache(maxsize=4096)(varint)
_SHORT = [bytes((value,)) for value in range(0x80)]


def check_name(name: str, field: str, characters_max: int) -> str:
    """Validates the name of a topic or group. Raises Refused."""
    if not name:
        raise invalid(f"{field} is empty", field=field, action="name it")
    if len(name) > characters_max:
        raise invalid(
            f"{field} has {len(name)} characters, at most {characters_max} are allowed",
            field=field,
            action="shorten it",
        )
    if not _NAME.match(name):
        raise invalid(
            f"{field} {name[:40]!r} may only have letters, digits, '_', '-' and '.'", field=field, action="rename it"
        )
    return name


def check_lite_topic(name: str, field: str = "lite_topic") -> str:
    """Validates the name of a lite topic. Raises Refused."""
    if not name:
        raise invalid(f"{field} is empty", field=field, action="name the lite topic")
    if not _LITE_NAME.match(name) or len(name) > LITE_TOPIC_BYTES_MAX:
        raise invalid(
            f"{field} {name[:80]!r} may only have letters, digits, '_' and '-', at most {LITE_TOPIC_BYTES_MAX}",
            field=field,
            action="rename it",
        )
    return name


def check_text(text: str, field: str, bytes_max: int, *, required: bool = False) -> str:
    """Validates a short text of a request. Raises Refused."""
    if required and not text:
        raise invalid(f"{field} is empty", field=field)
    if len(text) * 4 > bytes_max and len(text.encode()) > bytes_max:
        raise invalid(
            f"{field} has {len(text.encode())} bytes, at most {bytes_max} are allowed", field=field, action="shorten it"
        )
    return text


def check_range(value: int, field: str, low: int, high: int, default: int | None = None) -> int:
    """`value`, or for 0 `default` if there is one. Raises Refused if it is outside low..high."""
    if value == 0 and default is not None:
        return default
    if not low <= value <= high:
        given, least, most = (_with_unit(number, field) for number in (value, low, high))
        raise invalid(
            f"{field} is {given}, it must be {least}–{most}", field=field, action="give a value in this range"
        )
    return value


def _with_unit(number: int, field: str) -> str:
    """The number; of milliseconds and bytes also in the largest unit of which it is a multiple, as people write it."""
    units = _UNITS.get(re.split("[._]", field)[-1], {})
    unit = next((unit for unit, size in units.items() if number and number % size == 0), None)
    return f"{number} ({number // units[unit]}{unit})" if unit else str(number)


def dead_letter_topic(group: str) -> str:
    """The name of the dead letter topic of a group."""
    return DEAD_LETTER_PREFIX + group


def results_topic(group: str) -> str:
    """The name of the topic with the results of a group."""
    return RESULT_PREFIX + group


def check_messages_total(count: int, total_bytes: int, count_max: int, bytes_max: int) -> None:
    """Validates the limits of one Send. Raises Refused."""
    check_range(count, "messages", 1, count_max)
    if total_bytes > bytes_max:
        raise Refused(
            "INVALID_FIELD",
            f"the messages of one request have {total_bytes} bytes, at most {bytes_max} are allowed",
            field="messages",
            action="send them in several requests",
        )
