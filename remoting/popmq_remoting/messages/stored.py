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
from dataclasses import dataclass

from popmq_remoting.codes import SysFlag
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import offset_ids

MAGIC_V1, MAGIC_V2 = -626843481, -626843477

_START = struct.Struct(">iiiiiqqi")
#: What follows, by the lengths of the two hosts.
_MIDDLES = {
    (born, store): struct.Struct(f">q{born}siq{store}siiqi") for born in (4, 16) for store in (4, 16)
}  # fmt: skip


@dataclass(slots=True)
class StoredMessage:
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
    found, at = [], 0
    while at + 8 <= len(body):
        total, magic = struct.unpack_from(">ii", body, at)
        if magic not in (MAGIC_V1, MAGIC_V2):
            break
        if total < _START.size or at + total > len(body):
            raise BadFormat(f"a stored message of {total} bytes, of which {len(body) - at} are there")
        found.append(_read(body[at : at + total]))
        at += total
    return found


def _read(raw: bytes) -> StoredMessage:
    try:
        _, magic, crc, queue_id, flag, queue_offset, place, sys_flag = _START.unpack_from(raw)
        lengths = (16 if sys_flag & SysFlag.BORN_HOST_V6 else 4, 16 if sys_flag & SysFlag.STORE_HOST_V6 else 4)
        middle = _MIDDLES[lengths]
        born_ms, born_ip, born_port, stored_ms, store_ip, store_port, times, prepared, size = middle.unpack_from(
            raw, _START.size
        )
        at = _START.size + middle.size
        body, at = _cut(raw, at, size)
        topic, at = _counted(raw, at, ">B" if magic == MAGIC_V1 else ">h")
        properties, at = _counted(raw, at, ">h")
        name = topic.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise BadFormat(f"a stored message that cannot be read: {error}") from None
    if at != len(raw):
        raise BadFormat(f"a stored message of {len(raw)} bytes ends at byte {at}")
    return StoredMessage(
        name, queue_id, queue_offset, place, flag, sys_flag, born_ms, born_ip, born_port, stored_ms, store_ip,
        store_port, times, prepared, body, properties, crc,
    )  # fmt: skip


def _counted(raw: bytes, at: int, length: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(length, raw, at)
    return _cut(raw, at + struct.calcsize(length), size)


def _cut(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(raw):
        raise BadFormat(f"a stored message has a part of {size} bytes, of which {len(raw) - at} are there")
    return raw[at : at + size], at + size


def _host(ip: bytes, port: int) -> str:
    shown = str(ipaddress.ip_address(ip))
    return f"[{shown}]:{port}" if len(ip) == 16 else f"{shown}:{port}"
