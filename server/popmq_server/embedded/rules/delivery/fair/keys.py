"""The fair key of a stored message, and the number by which the engine knows it.

    property "tenant"    {tenant: "acme/eu"}  ─▶ b"acme/eu"  ─▶ 60 bits of its hash
    separator "/"                      label  ─▶ b"acme"     ─▶ 60 bits of another hash

A message without the property, or without keys, has the empty key. Two keys with one number share their turns and
limits; of a million keys this happens to one pair with a chance of one in two million. 60 bits, since such a number is
an object of 32 bytes in Python, and one of 64 bits takes 48.
"""

import functools
import hashlib
from collections.abc import Callable

from popmq_server.values import fields
from popmq_server.values.message import message_parts, read_varint, varint
from popmq_server.values.records import FairKeys

#: Reads the fair keys from the bytes of messages, perhaps without their bodies.
ReadKeys = Callable[[list[bytes]], list[bytes]]
#: Numbers of keys that are remembered: keys repeat, and a hash costs ten times a look-up.
_NUMBERS = 8192
_SPARE_BITS = 4
_ENTRY, _NAME, _VALUE = fields.PROPERTIES << 3 | 2, 0x0A, 0x12
_KEY = fields.KEYS << 3 | 2


@functools.lru_cache(maxsize=_NUMBERS)
def number_of(key: bytes) -> int:
    """The number of a key."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> _SPARE_BITS


@functools.lru_cache(maxsize=_NUMBERS)
def number_of_label(label: bytes) -> int:
    """The number of a label, which differs from that of a key with the same text."""
    return int.from_bytes(hashlib.blake2b(label, digest_size=8, person=b"label").digest()) >> _SPARE_BITS


def stored_hash(number: int) -> bytes:
    """The number of a key as CheckPoints store it."""
    return number.to_bytes(8)


def label_of(key: bytes, separator: bytes) -> bytes:
    """What comes before the first separator; the key itself if it has none."""
    return key.partition(separator)[0]


def reader_of(fair: FairKeys) -> ReadKeys:
    """The function that reads the fair keys of messages."""
    if fair.source == "property":
        return _reader_of_property(fair.property_name.encode())
    return _first_keys if fair.source == "key" else _no_keys


def _no_keys(messages: list[bytes]) -> list[bytes]:
    return [b""] * len(messages)


def _first_keys(messages: list[bytes]) -> list[bytes]:
    return list(map(_first_key, messages))


def _first_key(data: bytes) -> bytes:
    """The first key of a message. Fields before it are skipped without a generator: every message is read."""
    at, size = 0, len(data)
    while at < size:
        field, at = read_varint(data, at)
        if field == _KEY:
            length, at = read_varint(data, at)
            return data[at : at + length]
        at = _after(data, field, at)
    return b""


def _reader_of_property(name: bytes) -> ReadKeys:
    """Reads the last value of a property, as a map of protobuf has it."""
    head = bytes((_NAME,)) + varint(len(name)) + name
    value_at = len(head)
    usual, length_at = head + bytes((_VALUE,)), value_at + 1

    def read(messages: list[bytes]) -> list[bytes]:
        """Most messages have the property once, behind the body, in an entry of less than 128 bytes.

        Every message of a queue is read, so there is no call for one of these.
        """
        found = list[bytes]()
        for data in messages:
            start = data.find(usual)
            if start >= 2 and data[start - 2] == _ENTRY and data.find(usual, start + 1) < 0:
                begin = start + length_at + 1
                end = begin + data[begin - 1]
                size = data[start - 1]
                if end == start + size and size < 0x80 and start >= message_parts(data)[1]:
                    found.append(data[begin:end])
                    continue
            found.append(read_any(data) if name in data else b"")
        return found

    def read_any(data: bytes) -> bytes:
        at, size, found = 0, len(data), b""
        while at < size:
            field, at = read_varint(data, at)
            if field != _ENTRY:
                at = _after(data, field, at)
                continue
            length, start = read_varint(data, at)
            at = start + length
            if data.startswith(head, start) and start + value_at < at and data[start + value_at] == _VALUE:
                count, begin = read_varint(data, start + value_at + 1)
                found = data[begin : begin + count] if begin + count == at else _of_entry(data[start:at], name, found)
            elif data[start] != _NAME or start + value_at >= at:
                found = _of_entry(data[start:at], name, found)
        return found

    return read


def _of_entry(entry: bytes, name: bytes, before: bytes) -> bytes:
    """The value of an entry that is written in an unusual way, if it has the name; else `before`."""
    has, value = fields.pair(entry)
    return value.encode() if has.encode() == name else before


def _after(data: bytes, field: int, at: int) -> int:
    """The index behind a field whose key ends at `at`."""
    kind = field & 7
    if kind == 2:
        length, at = read_varint(data, at)
        return at + length
    if kind == 0:
        return read_varint(data, at)[1]
    return at + (8 if kind == 1 else 4)
