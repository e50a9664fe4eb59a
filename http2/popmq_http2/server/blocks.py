"""The header blocks of answers."""

from popmq_http2.hpack import TABLE_BYTES, Header, encode, remembered, resized

STATUS_200 = b"\x88"
CONTENT_TYPE: Header = (b"content-type", b"application/grpc")
OK: Header = (b"grpc-status", b"0")
#: Both blocks once the reader's table has their entries.
KNOWN_BEGIN, KNOWN_OK = b"\x88\xbf", b"\xbe"
#: The size of both entries in the reader's table.
_REMEMBERED_BYTES = sum(len(name) + len(value) + 32 for name, value in (CONTENT_TYPE, OK))


class Blocks:
    """The two header blocks of almost every answer, encoded with two entries in the reader's table.

    The first block that contains an entry adds it. `_known` counts them: the entry added last has index 62.
    """

    __slots__ = ("_known", "_prefix", "_remember")

    def __init__(self) -> None:
        self._known = 0
        self._remember = True
        self._prefix = b""

    def resize(self, table_bytes: int) -> None:
        """Handles the size that the reader wants its table to have: the next block empties the table and says so.

        Of several sizes before that block it expects the smallest first (RFC 7541, section 4.2): 0 is not larger.
        """
        size = min(table_bytes, TABLE_BYTES)
        self._prefix = resized(0) + (resized(size) if size else b"")
        self._remember, self._known = size >= _REMEMBERED_BYTES, 0

    def begin(self) -> bytes:
        """`:status 200`, `content-type application/grpc`."""
        if not self._remember:
            return self._with(STATUS_200 + encode([CONTENT_TYPE]))
        if self._known:
            return self._with(b"\x88\xbe" if self._known == 1 else KNOWN_BEGIN)
        self._known = 1
        return self._with(STATUS_200 + remembered(*CONTENT_TYPE))

    def ok(self) -> bytes:
        """`grpc-status 0`."""
        if not self._remember or not self._known:
            return self._with(encode([OK]))
        if self._known == 2:
            return self._with(KNOWN_OK)
        self._known = 2
        return self._with(remembered(*OK))

    @property
    def settled(self) -> bool:
        """Whether `begin` is now KNOWN_BEGIN, and `ok` KNOWN_OK."""
        return self._known == 2 and not self._prefix

    def plain(self, block: bytes) -> bytes:
        """A block that changes no table."""
        return self._with(block)

    def _with(self, block: bytes) -> bytes:
        prefix, self._prefix = self._prefix, b""
        return prefix + block
