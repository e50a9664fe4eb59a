"""Message ids that name a place: the hex digits of a broker's IP address, its port and an offset in its commit log.

32 digits with IPv4, 56 with IPv6. Such an id names an address, so it dies with a failover; UNIQ_KEY does not.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from popmq_remoting.errors import BadFormat

_LENGTHS = {32: 4, 56: 16}


class CommitLogPlace(NamedTuple):
    """Where a message is stored."""

    address: str
    commit_log_offset: int


def write(ip: bytes, port: int, commit_log_offset: int) -> str:
    """The id of a place."""
    return (ip + struct.pack(">iq", port, commit_log_offset)).hex().upper()


def read(text: str) -> CommitLogPlace:
    """The place that an id names. Raises BadFormat."""
    length = _LENGTHS.get(len(text))
    try:
        raw = bytes.fromhex(text) if length else b""
    except ValueError:
        raw = b""
    if length is None or len(raw) != length + 12:
        raise BadFormat(f"{text[:60]!r} is no offset message id")
    port, offset = struct.unpack_from(">iq", raw, length)
    ip = ipaddress.ip_address(raw[:length])
    return CommitLogPlace(f"[{ip}]:{port}" if length == 16 else f"{ip}:{port}", offset)
