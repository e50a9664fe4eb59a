"""Header blocks (RFC 7541): the decoder of one connection, and the few blocks that a gRPC server writes.

    block      1xxxxxxx                 a pair of the tables, by its index
               01xxxxxx  name value     a pair, which is put into the dynamic table
               001xxxxx                 another size of the dynamic table; only where a block begins
               000xxxxx  name value     a pair that is not remembered

A client that calls one method again and again sends the same bytes: once its pairs are in the table a block is a row of
indexes. Such a block changes no table, so it means the same until some other block changes one: `Decoder.version` tells
whoever remembers blocks by their bytes when to forget them.
"""

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
#: What an entry takes of a table's size beside its letters (RFC 7541, section 4.1).
_ENTRY_BYTES = 32
#: The table that we let a client use: the default of HTTP/2.
TABLE_BYTES = 4096
#: A number of more octets than this is none that we take: 2^28 is far above every length.
_NUMBER_OCTETS_MAX = 4


class CompressionError(Exception):
    """The block cannot be decoded; the tables of both sides may differ from now on, so the connection is over."""


class TooManyHeaders(Exception):
    """The pairs of a block together are larger than what is taken: few bytes can name many large pairs."""


class Decoder:
    """The tables of one connection, as its client's encoder has them."""

    # Entries are appended, and the index counts from the end: no entry moves when one is added.
    __slots__ = ("_bytes", "_bytes_max", "_table", "version")

    def __init__(self) -> None:
        self._table: list[Header] = []  # the newest last
        self._bytes = 0
        self._bytes_max = TABLE_BYTES
        #: Grows with every change of the table.
        self.version = 0

    def decode(self, block: bytes, list_bytes_max: int) -> list[Header]:
        """The pairs of a block. Raises CompressionError, TooManyHeaders."""
        try:
            return self._decode(block, list_bytes_max)
        except IndexError:
            raise CompressionError("a header block ends in the middle of a field") from None
        except ValueError as error:
            raise CompressionError(str(error)) from None

    def _decode(self, block: bytes, left: int) -> list[Header]:
        headers: list[Header] = []
        at, end = 0, len(block)
        while at < end:
            first = block[at]
            if first >= 0x80:
                index, at = (first & 0x7F, at + 1) if first != 0xFF else _number(block, at, 7)
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
        return headers

    def _entry(self, index: int) -> Header:
        """The static table first, then the dynamic one, its newest entry first."""
        if 0 < index <= _STATIC_COUNT:
            return STATIC[index - 1]
        place = index - _STATIC_COUNT
        if not 0 < place <= len(self._table):
            raise CompressionError(f"the tables have no entry {index}")
        return self._table[-place]

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Header, int]:
        """A pair that is written out, its name perhaps by an index."""
        index, at = _number(block, at, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return (name, value), at

    def _resize(self, block: bytes, at: int) -> int:
        """The client uses less of the table than it may, or more again."""
        size, at = _number(block, at, 5)
        if size > TABLE_BYTES:
            raise CompressionError(f"a table of {size} bytes was never agreed")
        self._bytes_max = size
        self._evict()
        return at

    def _add(self, header: Header) -> None:
        """An entry larger than the table empties it and is not kept (RFC 7541, section 4.4)."""
        self._bytes += len(header[0]) + len(header[1]) + _ENTRY_BYTES
        self._table.append(header)
        self._evict()

    def _evict(self) -> None:
        """The oldest entries go until the others fit."""
        self.version += 1
        gone = 0
        while self._bytes > self._bytes_max:
            name, value = self._table[gone]
            self._bytes -= len(name) + len(value) + _ENTRY_BYTES
            gone += 1
        del self._table[:gone]


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """(a number whose first `bits` bits end the byte at `at`, where it ends). IndexError: it does not end."""
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


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """(a text, where it ends)."""
    huffman = block[at] & 0x80
    length, at = _number(block, at, 7)
    raw = block[at : at + length]
    if len(raw) < length:
        raise CompressionError("a header block ends in the middle of a text")
    return (decode_huffman(raw) if huffman else raw), at + length


def encode(headers: list[Header]) -> bytes:
    """A block of pairs that no table remembers: what a server writes now and then, errors and metadata."""
    return b"".join(b"\0" + _written(name) + _written(value) for name, value in headers)


def remembered(name: bytes, value: bytes) -> bytes:
    """A pair that the reader puts into its table, where it has the index 62 until another one is added."""
    return b"\x40" + _written(name) + _written(value)


def resized(size: int) -> bytes:
    """What a block has to begin with after the reader asked for a smaller table."""
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
