"""Checksums of rows: what the broker keeps about messages must not change unnoticed on a disk.

    stored value    the value · crc32 of the key and the value [4], little-endian

The crc of a key and a stored value is then always `RESIDUE`. A crc32 also tells which bit is wrong, if it is only one:
`corrected` returns the row as it was. Two or three wrong bits are never taken for one in rows of up to 11 KB.

BARE databases have no such checksum: their values contain one (message.py, history_rows.py, delay.py, …), and
`popmq check` compares their keys with other rows. Stores of older formats have none at all (formats.py).

See docs/decisions/0047-checksums-of-rows.md.
"""

import logging
import operator
import zlib
from typing import Any, TypeAlias

from popmq_server.errors import UnreadableRow

log = logging.getLogger("popmq.store")

BARE = frozenset({"log", "hist", "sched", "tsched", "hmsg", "stage", "cronmsg"})
#: A stored value: bytes, or a view of them, as the transaction was opened.
Stored: TypeAlias = Any

#: Rows of `meta` that are read before it is known whether the store has checksums: text, or refused when unknown.
BARE_META = frozenset({b"format", b"max_size"})
#: Longer rows are corrected by a repair only: the search takes 0.1 µs for each bit.
_CORRECTED_BYTES_MAX = 1 << 16

#: At the beginning of a key of `due`.
_DEADLINE_BYTES = 8
#: Length of a checksum.
BYTES = 4
_VALUE = operator.itemgetter(slice(None, -BYTES))
#: The crc of a key and a stored value.
RESIDUE = 0x2144DF1C
_POLYNOMIAL = 0xEDB88320


def is_bare(name: str, key: bytes) -> bool:
    """Whether a row has no checksum of this kind."""
    return name in BARE or (name == "meta" and key in BARE_META)


def with_checksum(key: bytes, value: bytes) -> bytes:
    """The stored value of a row."""
    return value + zlib.crc32(value, zlib.crc32(key)).to_bytes(BYTES, "little")


def is_whole(key: bytes | memoryview, stored: bytes | memoryview) -> bool:
    """Whether a stored row is as it was written."""
    return len(stored) >= BYTES and zlib.crc32(stored, zlib.crc32(key)) == RESIDUE


def opened(name: str, key: bytes, stored: Stored) -> Stored:
    """The value of a stored row; if one bit of it is wrong, as it was written. Raises UnreadableRow."""
    if zlib.crc32(stored, zlib.crc32(key)) == RESIDUE:
        return stored[:-BYTES]
    return stored if is_bare(name, key) else _mended(name, bytes(key), stored)


def all_opened(name: str, keys: list[bytes], stored: list[bytes]) -> list[bytes]:
    """`opened` of many rows, as copies."""
    if set(map(zlib.crc32, stored, map(zlib.crc32, keys))) <= {RESIDUE}:
        return list(map(_VALUE, stored))
    return [bytes(opened(name, key, value)) for key, value in zip(keys, stored, strict=True)]


def _mended(name: str, key: bytes, stored: memoryview) -> memoryview:
    found = corrected(key, stored) if len(stored) <= _CORRECTED_BYTES_MAX else None
    if found is None or not is_usable(name, key, found[0]):
        raise UnreadableRow(name, key, "it does not match its checksum")
    log.warning(
        "a bit of row %s of table %r has flipped: its value is used as it was written; test the disk, and run "
        "`popmq check`",
        key.hex(),
        name,
    )
    return memoryview(found[1])


def is_usable(name: str, key: bytes, right: bytes) -> bool:
    """Whether the value of a row may be used although its key, which should be `right`, has a wrong bit.

    A lease with a wrong deadline: the rest of it is right, and an operator can end it (revive.py).
    """
    begin = _DEADLINE_BYTES if name == "due" else 0
    return key[begin:] == right[begin:]


def corrected(key: bytes, stored: bytes | memoryview) -> tuple[bytes, bytes] | None:
    """(key, value) of a row as it was written, if exactly one bit of both is wrong; else None.

    A wrong bit adds the same number to the crc whatever the other bits are: that of the last bit is the polynomial, and
    that of each bit before it follows by one step.
    """
    row = bytearray(key + bytes(stored))
    added, step = zlib.crc32(row) ^ RESIDUE, _POLYNOMIAL
    if len(stored) < BYTES:
        return None
    for bit in range(8 * len(row) - 1, -1, -1):
        if step == added:
            row[bit >> 3] ^= 1 << (bit & 7)
            return bytes(row[: len(key)]), bytes(row[len(key) : -BYTES])
        step = step >> 1 ^ (_POLYNOMIAL if step & 1 else 0)
    return None
