"""The header blocks of requests.

    :method :scheme          of the static table
    :path :authority te      added to the server's table by the first block that has them, then one byte each
    content-type user-agent
    grpc-timeout, metadata   written out: they change, and a signature should not stay in a table

A block that adds nothing is kept: the same call with the same metadata and timeout sends the same bytes again, which
servers like ours know by their bytes. Entries are added while there is room, so that none is ever evicted.
"""

from __future__ import annotations

from math import ceil

from popmq_http2.hpack import STATIC, TABLE_BYTES, Header, encode, indexed, remembered, resized
from popmq_http2.status import Metadata, written

_POST = b"\x83"
_SCHEMES = {"http": b"\x86", "https": b"\x87"}
_FIRST_DYNAMIC = len(STATIC) + 1
_ENTRY_BYTES = 32
_KNOWN_MAX = 256
#: Digits of a grpc-timeout are at most 8.
_TIMEOUT_MAX = 99_999_999


class RequestBlocks:
    """Encodes the blocks of one connection, in the order in which they are sent: each may add to the server's table.

    `_table` has the places of its entries, in the order in which they were added: the newest has index 62.
    """

    __slots__ = ("_always", "_known", "_prefix", "_room", "_scheme", "_table")

    def __init__(self, scheme: str, authority: str, agent: str) -> None:
        self._scheme = _SCHEMES[scheme]
        self._always: tuple[Header, ...] = (
            (b":authority", authority.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", agent.encode()),
        )
        self._table: dict[Header, int] = {}
        self._room = TABLE_BYTES
        self._known: dict[tuple[str, Metadata, bytes], bytes] = {}
        self._prefix = b""

    def resize(self, table_bytes: int) -> None:
        """Handles the size that the server wants its table to have: the next block empties the table and says so."""
        self._room = min(table_bytes, TABLE_BYTES)
        self._table.clear()
        self._known.clear()
        self._prefix = resized(0) + (resized(self._room) if self._room else b"")

    def block(self, path: str, metadata: Metadata, timeout_s: float | None) -> bytes:
        """The block of a call. Raises ValueError for metadata that HTTP/2 cannot carry."""
        timeout = b"" if timeout_s is None else timeout_text(timeout_s)
        known = self._known.get((path, metadata, timeout))
        if known is not None:
            return known
        last = encode([(b"grpc-timeout", timeout)] if timeout else []) + encode(written(metadata))
        prefix, self._prefix = self._prefix, b""
        before = len(self._table)
        middle = b"".join(map(self._pair, ((b":path", path.encode()), *self._always)))
        block = prefix + _POST + self._scheme + middle + last
        if before != len(self._table):
            self._known.clear()  # the indexes of the entries before have changed
        elif not prefix:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[path, metadata, timeout] = block
        return block

    def _pair(self, header: Header) -> bytes:
        """One header by its index, or added to the table, or written out if the table is full."""
        place = self._table.get(header)
        if place is not None:
            return indexed(_FIRST_DYNAMIC + len(self._table) - 1 - place)
        size = len(header[0]) + len(header[1]) + _ENTRY_BYTES
        if size > self._room:
            return encode([header])
        self._room -= size
        self._table[header] = len(self._table)
        return remembered(*header)


def timeout_text(timeout_s: float) -> bytes:
    """A grpc-timeout that is not shorter: whole milliseconds, so that calls with the same timeout write the same."""
    if timeout_s * 1000 <= _TIMEOUT_MAX:
        return b"%dm" % max(1, ceil(timeout_s * 1000))
    return b"%dS" % min(ceil(timeout_s), _TIMEOUT_MAX)
