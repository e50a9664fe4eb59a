"""Header blocks (RFC 7541): the decoder of one connection, and an encoder for the few blocks that gRPC writes.

    block      1xxxxxxx                 a pair of the tables, by its index
               01xxxxxx  name value     a pair that is added to the dynamic table
               001xxxxx                 a new size of the dynamic table; only at the start of a block
               000xxxxx  name value     a pair that is not added

A client that repeats a method sends the same bytes again: once its pairs are in the table, a block consists of indexes.
Such a block changes no table, so it means the same until another block changes one: `Decoder.version` tells caches of
blocks when to drop their entries.
"""

from popmq_http2.huffman import Pay
from popmq_http2.huffman import decode as decode_huffman

Header = tuple[bytes, bytes]

#: RFC 7541, appendix A; the first has index 1.
STATIC: tuple[Header, ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *((name, b"") for name in (
        b"accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control "
        b"content-disposition content-encoding content-language content-length content-location content-range "
        b"content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range "
        b"if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization range "
        b"referer refresh retry-after server set-cookie strict-transport-security transfer-encoding user-agent vary "
        b"via www-authenticate"
    ).split()),
)  # fmt: skip
_STATIC_COUNT = len(STATIC)
#: The octet of the last entry of the static table; those of the dynamic table follow.
_INDEXED_STATIC = 0x80 + _STATIC_COUNT
#: Size of a table entry beside its name and value (RFC 7541, section 4.1).
_ENTRY_BYTES = 32
#: The maximum size of a client's table: the default of HTTP/2.
TABLE_BYTES = 4096
#: Maximum number of further octets in a number: 2^28 is far above every length.
_NUMBER_OCTETS_MAX = 4


def _free(size: int) -> None:
    """The `pay` of a decoder whose Huffman strings cost nothing."""


class CompressionError(Exception):
    """The block cannot be decoded; the tables of both sides may differ from now on, so the connection ends."""


class TooManyHeaders(Exception):
    """The pairs of a block together exceed the limit: few bytes can name many large pairs."""


class Decoder:
    """Decodes the header blocks of one connection, with the dynamic table of the other side's encoder."""

    # Entries are appended, and the index counts from the end: no entry moves when one is added.
    __slots__ = ("_bytes", "_bytes_max", "_pay", "_table", "list_bytes", "version")

    def __init__(self, pay: Pay = _free) -> None:
        """`pay` gets the size of each Huffman string before it is decoded, unless that was seen before."""
        self._pay = pay
        self._table: list[Header] = []  # the newest last
        self._bytes = 0
        self._bytes_max = TABLE_BYTES
        #: Increases with every change of the table.
        self.version = 0
        #: The size of the pairs that were decoded last, as `list_bytes_max` counts them.
        self.list_bytes = 0

    def decode(self, block: bytes, list_bytes_max: int) -> list[Header]:
        """Returns the pairs of a block. Raises CompressionError, TooManyHeaders."""
        try:
            return self._decode(block, list_bytes_max)
        except IndexError:
            raise CompressionError("a header block ends in the middle of a field") from None
        except ValueError as error:
            raise CompressionError(str(error)) from None

    def _decode(self, block: bytes, list_bytes_max: int) -> list[Header]:
        headers: list[Header] = []
        left = list_bytes_max
        at, end, table = 0, len(block), self._table
        while at < end:
            first = block[at]
            if first >= 0x80:
                place = first - _INDEXED_STATIC  # of most pairs, which are read without a call
                if 0 < place <= len(table) and first != 0xFF:
                    header, at = table[-place], at + 1
                elif place <= 0 and first != 0x80:
                    header, at = STATIC[first - 0x81], at + 1
                else:
                    index, at = _number(block, at, 7)
                    header = self._entry(index)
            elif first & 0xE0 == 0x20:
                if headers:
                    raise CompressionError("the size of the table changes in the middle of a header block")
                at = self._resize(block, at)
                continue
            else:
                header, at = self._literal(block, at, 6 if first & 0x40 else 4)
                if first & 0x40:
                    self._add(header)
            headers.append(header)
            left -= len(header[0]) + len(header[1]) + _ENTRY_BYTES
            if left < 0:
                raise TooManyHeaders
        self.list_bytes = list_bytes_max - left
        return headers

    def _entry(self, index: int) -> Header:
        """Looks up an index: the static table first, then the dynamic one, newest entry first."""
        if 0 < index <= _STATIC_COUNT:
            return STATIC[index - 1]
        place = index - _STATIC_COUNT
        if not 0 < place <= len(self._table):
            raise CompressionError(f"the tables have no entry {index}")
        return self._table[-place]

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Header, int]:
        """Reads a literal pair, whose name may be an index."""
        most = (1 << bits) - 1
        index = block[at] & most
        if index < most:
            at += 1
        else:
            index, at = _number(block, at, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _text(block, at, self._pay)
        value, at = _text(block, at, self._pay)
        return (name, value), at

    def _resize(self, block: bytes, at: int) -> int:
        """Changes the size of the table, up to TABLE_BYTES."""
        size, at = _number(block, at, 5)
        if size > TABLE_BYTES:
            raise CompressionError(f"a table of {size} bytes exceeds the announced limit")
        self._bytes_max = size
        self.version += 1
        self._evict()
        return at

    def _add(self, header: Header) -> None:
        """Adds an entry. One larger than the table empties it and is not kept (RFC 7541, section 4.4)."""
        self._bytes += len(header[0]) + len(header[1]) + _ENTRY_BYTES
        self._table.append(header)
        self.version += 1
        if self._bytes > self._bytes_max:
            self._evict()

    def _evict(self) -> None:
        """Removes the oldest entries until the others fit."""
        gone = 0
        while self._bytes > self._bytes_max:
            name, value = self._table[gone]
            self._bytes -= len(name) + len(value) + _ENTRY_BYTES
            gone += 1
        del self._table[:gone]


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """(a number that starts in the last `bits` bits of the byte at `at`, where it ends). IndexError: incomplete."""
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    for octet in range(_NUMBER_OCTETS_MAX):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << 7 * octet
        if byte < 0x80:
            return number, at
    raise CompressionError("a number in a header block is too large")


def _text(block: bytes, at: int, pay: Pay) -> tuple[bytes, int]:
    """(a string, where it ends)."""
    first = block[at]
    huffman, length = first & 0x80, first & 0x7F
    if length < 0x7F:
        at += 1
    else:
        length, at = _number(block, at, 7)
    raw = block[at : at + length]
    if len(raw) < length:
        raise CompressionError("a header block ends in the middle of a text")
    return (decode_huffman(raw, pay) if huffman else raw), at + length


def encode(headers: list[Header]) -> bytes:
    """Encodes pairs without the table, for blocks that are written rarely: errors and metadata."""
    return b"".join(b"\0" + _written(name) + _written(value) for name, value in headers)


def remembered(name: bytes, value: bytes) -> bytes:
    """Encodes a pair that the reader adds to its table, with index 62 until another one is added."""
    return b"\x40" + _written(name) + _written(value)


def indexed(index: int) -> bytes:
    """Encodes a pair of the tables."""
    number = bytearray(_written_number(index, 7))
    number[0] |= 0x80
    return bytes(number)


def resized(size: int) -> bytes:
    """The prefix of the next block after the reader has asked for a smaller table."""
    number = bytearray(_written_number(size, 5))
    number[0] |= 0x20
    return bytes(number)


def _written(text: bytes) -> bytes:
    return _written_number(len(text), 7) + text


def _written_number(number: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if number < most:
        return bytes((number,))
    octets, number = [most], number - most
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*octets, number))
