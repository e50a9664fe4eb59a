"""Stored messages: the body of an answer that has some, one record behind the other. Big-endian.

    i32 total, i32 magic, i32 body crc, i32 queue, i32 flag, i64 queue offset, i64 place in the commit log, i32 sysFlag
    i64 born ms, born host, i64 stored ms, store host, i32 reconsume times, i64 prepared transaction offset
    i32 n + body, i8 or i16 n + topic, i16 n + properties

A host is 4 or 16 bytes (sysFlag 16 and 32) and an i32 port. The magic says how long the topic's length is; any other
number ends the list.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from typing import NamedTuple

from popmq_remoting.codes import SysFlag
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import offset_ids

MAGIC_V1, MAGIC_V2 = -626843481, -626843477

#: All numbers up to the body, by the lengths of the two hosts.
_HEADS = {
    (born, store): struct.Struct(f">iiiiiqqiq{born}siq{store}siiqi") for born in (4, 16) for store in (4, 16)
}  # fmt: skip
_V4 = _HEADS[4, 4]
_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
_PREFIX = struct.Struct(">ii")
#: The sysFlag's place among the numbers, where the length of the hosts does not move it.
_SYS_FLAG = 7
_BYTE, _SHORT = struct.Struct(">B"), struct.Struct(">h")


class StoredMessage(NamedTuple):
    """One record. `properties` is their text: messages/properties.py reads it."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    flag: int
    sys_flag: int
    born_ms: int
    born_ip: bytes
    born_port: int
    stored_ms: int
    store_ip: bytes
    store_port: int
    reconsume_times: int
    prepared_offset: int
    body: bytes
    properties: bytes
    crc: int

    @property
    def is_sound(self) -> bool:
        """Whether the body is what the broker stored. Looked at on demand, since it costs a pass over the body."""
        return self.crc == zlib.crc32(self.body) & 0x7FFFFFFF

    @property
    def born_host(self) -> str:
        """Address and port of the producer."""
        return _host(self.born_ip, self.born_port)

    @property
    def store_host(self) -> str:
        """Address and port of the broker that stored it first."""
        return _host(self.store_ip, self.store_port)

    @property
    def offset_id(self) -> str:
        """The message id that names its place, and so dies with its broker's address."""
        return offset_ids.write(self.store_ip, self.store_port, self.commit_log_offset)


def read_all(body: bytes) -> list[StoredMessage]:
    """The messages of an answer. Raises BadFormat for a record that does not fit."""
    found, at, end = [], 0, len(body)
    while at + _PREFIX.size <= end:
        total, magic = _PREFIX.unpack_from(body, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            break
        if total < _V4.size or at + total > end:
            raise BadFormat(f"a stored message of {total} bytes, of which {end - at} are there")
        try:
            found.append(_read(body, at, at + total))
        except (struct.error, UnicodeDecodeError) as error:
            raise BadFormat(f"a stored message that cannot be read: {error}") from None
        at += total
    return found


def _read(raw: bytes, at: int, end: int) -> StoredMessage:
    """The record at a place. Raises BadFormat, struct.error, UnicodeDecodeError."""
    head, numbers = _V4, _V4.unpack_from(raw, at)
    flags = numbers[_SYS_FLAG]
    if flags & (_BORN_V6 | _STORE_V6):
        head = _HEADS[16 if flags & _BORN_V6 else 4, 16 if flags & _STORE_V6 else 4]
        numbers = head.unpack_from(raw, at)
    (
        _, magic, crc, queue_id, flag, queue_offset, place, sys_flag, born_ms, born_ip, born_port, stored_ms,
        store_ip, store_port, times, prepared, size,
    ) = numbers  # fmt: skip
    begin = at + head.size
    length = _BYTE if magic == MAGIC_V1 else _SHORT
    topic = begin + size + length.size
    topic_end = topic + length.unpack_from(raw, topic - length.size)[0]
    properties = topic_end + _SHORT.size
    properties_end = properties + _SHORT.unpack_from(raw, topic_end)[0]
    if not (size >= 0 and topic <= topic_end and properties <= properties_end == end):
        raise BadFormat(f"the parts of a stored message end at byte {properties_end - at} of {end - at}")
    return StoredMessage(
        raw[topic:topic_end].decode(), queue_id, queue_offset, place, flag, sys_flag, born_ms, born_ip, born_port,
        stored_ms, store_ip, store_port, times, prepared, raw[begin : begin + size],
        raw[properties:properties_end], crc,
    )  # fmt: skip


def _host(ip: bytes, port: int) -> str:
    shown = str(ipaddress.ip_address(ip))
    return f"[{shown}]:{port}" if len(ip) == 16 else f"{shown}:{port}"
