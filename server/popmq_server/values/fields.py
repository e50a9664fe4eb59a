"""Reads fields of popmq.v1.Message from its stored bytes, without generated code.

The engine stores messages as opaque bytes. This module reads the few fields that the engine needs (message group,
properties for filters, the id of a dead letter) from the wire format: a field is a varint `number << 3 | type`, then a
varint (type 0), 8 bytes (1), a length and that many bytes (2), or 4 bytes (5). A test compares the results with the
generated class. The bytes are always a valid message: they were parsed when they were sent.
"""

from collections.abc import Iterator

from popmq_server.values.message import Extra, read_varint
from popmq_server.values.outgoing import Outgoing, hash8, tag_hash

#: Field numbers of popmq.v1.Message.
MESSAGE_ID, BODY, TAG, KEYS, PROPERTIES, MESSAGE_GROUP = 1, 2, 3, 4, 5, 6
DELIVER_AT_MS, PRIORITY, TRANSACTION, DELAY_MS, DEAD_LETTER, LITE_TOPIC, TTL_MS = 7, 8, 9, 13, 15, 17, 19

#: The part of a body that `preview` shows.
PREVIEW_BYTES = 256


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
    """(number, value or length, start of the field, end of the field) of each field, in the order of the bytes.

    The payload of a field with a length is the last `length` bytes before its end. For other fields the value is the
    varint, or 0 for fixed widths, which popmq.v1.Message does not use.
    """
    at, size = 0, len(data)
    while at < size:
        start = at
        key, at = read_varint(data, at)
        kind = key & 7
        value = 0
        if kind == 2:
            value, at = read_varint(data, at)
            at += value
        elif kind == 0:
            value, at = read_varint(data, at)
        else:
            at += 8 if kind == 1 else 4
        yield key >> 3, value, start, at


def raw(data: bytes, number: int) -> bytes:
    """The bytes of the last text field of this number, or b"". Every pop of a FIFO topic calls it, so it uses no
    generator, and reads one-byte varints inline.
    """
    at, size, found = 0, len(data), b""
    while at < size:
        key = data[at]
        if key < 0x80:
            at += 1
        else:
            key, at = read_varint(data, at)
        kind = key & 7
        if kind > 1:
            length = 4
            if kind == 2:
                length = data[at]
                if length < 0x80:
                    at += 1
                else:
                    length, at = read_varint(data, at)
                if key >> 3 == number:
                    found = data[at : at + length]
            at += length
        elif kind:
            at += 8
        else:
            _, at = read_varint(data, at)
    return found


def text(data: bytes, number: int) -> str:
    """The last value of a text field, or ""."""
    found = ""
    for field, length, _, end in fields(data):
        if field == number:
            found = data[end - length : end].decode()
    return found


def texts(data: bytes, number: int) -> list[str]:
    """All values of a repeated text field."""
    return [data[end - length : end].decode() for field, length, _, end in fields(data) if field == number]


def integer(data: bytes, number: int) -> int:
    """The last value of a varint field (never negative in popmq.v1.Message), or 0."""
    found = 0
    for field, value, _, _ in fields(data):
        if field == number:
            found = value
    return found


def ended_ms(data: bytes, stored_ms: int) -> int:
    """When the ttl of a message ends that became visible at this time; 0 = never."""
    ttl_ms = integer(data, TTL_MS)
    return stored_ms + ttl_ms if ttl_ms else 0


def properties(data: bytes) -> dict[str, str]:
    """The user's properties: a map is a repeated message of key (1) and value (2)."""
    found = {}
    for field, length, _, end in fields(data):
        if field == PROPERTIES:
            name, value = pair(data[end - length : end])
            found[name] = value
    return found


def preview(data: bytes | memoryview) -> tuple[tuple[str, ...], str, bytes, int]:
    """(keys, tag, the first PREVIEW_BYTES of the body, bytes of the body), of bytes or a view, without a copy of it."""
    keys, tag, body, size = list[str](), "", b"", 0
    for field, length, _, end in fields(data):
        if field == KEYS:
            keys.append(bytes(data[end - length : end]).decode())
        elif field == TAG:
            tag = bytes(data[end - length : end]).decode()
        elif field == BODY:
            body, size = bytes(data[end - length : end - length + min(length, PREVIEW_BYTES)]), length
    return tuple(keys), tag, body, size


def pair(entry: bytes) -> tuple[str, str]:
    """Key and value of one entry of a map of texts.

    Nearly all entries have the key first, and both under 128 bytes: these need no loop.
    """
    size = len(entry)
    end = 2 + entry[1] if size > 3 and entry[0] == 0x0A and entry[1] < 0x80 else size
    if end < size - 1 and entry[end] == 0x12 and entry[end + 1] == size - end - 2 < 0x80:
        return entry[2:end].decode(), entry[end + 2 :].decode()
    return text(entry, 1), text(entry, 2)


def outgoing(data: bytes) -> Outgoing:
    """A stored message as an Outgoing again: with the fields for the indexes, and its options."""
    numbers = {DELIVER_AT_MS: 0, DELAY_MS: 0, PRIORITY: 0, TRANSACTION: 0}
    words = {MESSAGE_ID: "", TAG: "", MESSAGE_GROUP: "", LITE_TOPIC: ""}
    keys: list[str] = []
    for field, value, _, end in fields(data):
        if field in numbers:
            numbers[field] = value
        elif field in words:
            words[field] = data[end - value : end].decode()
        elif field == KEYS:
            keys.append(data[end - value : end].decode())
    due_ms, delay_ms, priority, half = numbers.values()
    extra = Extra(words[MESSAGE_GROUP], due_ms, delay_ms, priority, bool(half), lite_topic=words[LITE_TOPIC])
    names = (hash8(words[MESSAGE_ID]), *map(hash8, keys))
    return Outgoing(data, tag_hash(words[TAG]), names, words[MESSAGE_ID], extra if any(extra) else None)


def without(data: bytes, number: int) -> bytes:
    """Returns a message with one field unset."""
    return b"".join(data[start:end] for field, _, start, end in fields(data) if field != number)
