"""What brokers write and this client only reads: stored messages, binary headers. Written after the formats' tables."""

import socket
import struct
import zlib
from collections.abc import Mapping

MAGIC_V1, MAGIC_V2 = -626843481, -626843477


def packed_host(host: str, port: int) -> bytes:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host) + struct.pack(">i", port)


def stored_message(
    topic: str = "orders",
    body: bytes = b"hello",
    properties: bytes = b"",
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    commit_log_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_ms: int = 1_000,
    born_host: str = "10.0.0.7",
    stored_ms: int = 2_000,
    store_host: str = "10.0.0.1",
    port: int = 10911,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    magic: int = MAGIC_V1,
) -> bytes:
    """One record."""
    sys_flag |= (16 if ":" in born_host else 0) | (32 if ":" in store_host else 0)
    name = topic.encode()
    rest = b"".join(
        (
            struct.pack(">iiii", magic, zlib.crc32(body) & 0x7FFFFFFF, queue_id, flag),
            struct.pack(">qqi", queue_offset, commit_log_offset, sys_flag),
            struct.pack(">q", born_ms) + packed_host(born_host, port),
            struct.pack(">q", stored_ms) + packed_host(store_host, port),
            struct.pack(">iq", reconsume_times, prepared_offset),
            struct.pack(">i", len(body)) + body,
            (struct.pack(">B", len(name)) if magic == MAGIC_V1 else struct.pack(">h", len(name))) + name,
            struct.pack(">h", len(properties)) + properties,
        )
    )
    return struct.pack(">i", len(rest) + 4) + rest


def binary_header(
    code: int, opaque: int, flag: int, remark: str, fields: Mapping[str, str], version: int = 479
) -> bytes:
    """The form of servers that are set to it; JAVA is language 0."""
    pairs = b"".join(
        struct.pack(">h", len(name.encode())) + name.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for name, value in fields.items()
    )
    text = remark.encode()
    return b"".join(
        (
            struct.pack(">hbhii", code, 0, version, opaque, flag),
            struct.pack(">i", len(text)) + text,
            struct.pack(">i", len(pairs)) + pairs,
        )
    )


def frame(encoding: int, header: bytes, body: bytes = b"") -> bytes:
    """A frame with this header."""
    return struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body
