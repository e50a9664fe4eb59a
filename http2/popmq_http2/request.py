"""The head of a request: validates its header block, once for each distinct block.

not valid HTTP/2      Malformed: the stream is reset                       pseudo-headers, names, values, te
valid, but not gRPC   answered as plain HTTP, with 405 or 415              another method than POST, a content-type
gRPC, but invalid     ended with a status, the handler is not called       an unreadable timeout or metadata value,
                                                                           an encoding that we cannot unpack
"""

import re
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

from popmq_http2.hpack import Header
from popmq_http2.status import QUOTED_MAX, Code, Metadata, read

#: Connection-specific headers, which HTTP/2 forbids (RFC 9113, section 8.2.2).
_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
_PSEUDO = frozenset({b":method", b":path", b":scheme", b":authority"})
#: Headers that are read here and are not metadata of the call.
_OURS = {b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding", b"content-length"}
#: Characters of a header name: no capitals, no white space, no line ends.
_NAME_LETTERS = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT_DIGITS_MAX = 8
#: Valid headers that were read before, as metadata, and their maximum length: clients repeat most of them in each call.
_known: dict[Header, tuple[str, str | bytes]] = {}
_KNOWN_MAX, _KNOWN_BYTES = 4096, 128
#: The cached value for headers that are not metadata.
_NO_METADATA: tuple[str, str | bytes] = ("", "")
#: Octets that HTTP/2 forbids in values.
_FORBIDDEN = re.compile(rb"[\0\r\n]")
#: `application/grpc`, with a format of the messages or a parameter; not the likes of `application/grpc-web`.
_GRPC = re.compile(rb"application/grpc($|[+;])")
#: The encodings of messages that an Inbox unpacks.
ENCODINGS = (b"identity", b"gzip", b"deflate")
_ACCEPTED: Metadata = (("grpc-accept-encoding", b",".join(ENCODINGS).decode()),)
#: In `HeadReader`: stands for grpc-timeout, which is not metadata.
_TIMEOUT = -1
#: Digits of a content-length: 2^63 has 19.
_LENGTH_DIGITS_MAX = 19


class Malformed(Exception):
    """The request is not valid HTTP/2: its stream is reset."""


class Head(NamedTuple):
    """`length`: content-length, or -1. `refusal`: (status, why, metadata) of a call that ends without a handler.

    `http_status`: above 200 for a request that is not gRPC and is answered as plain HTTP.
    """

    path: str
    metadata: Metadata
    timeout_s: float | None
    encoding: bytes
    length: int
    refusal: tuple[Code, str, Metadata] | None
    http_status: int


class HeadReader:
    """Reads the heads of one connection. A call differs from the one before it in few headers: a timeout, an id.

    Headers that two blocks name by one entry of the table are the same object, so `is` finds those that differ.
    """

    __slots__ = ("_head", "_headers", "_places")

    def __init__(self) -> None:
        self._headers: list[Header] = []
        self._head: Head | None = None
        #: Which of the last headers may differ, and where the metadata have them; _TIMEOUT: they do not.
        self._places: dict[int, int] = {}

    def read(self, headers: list[Header]) -> Head:
        """Returns what `head` returns, faster for headers like the last ones. Raises Malformed."""
        read = self._from_last(headers)
        if read is None:
            read = head(headers)
            self._places = _places(headers)
        self._head, self._headers = read, headers
        return read

    def _from_last(self, headers: list[Header]) -> Head | None:
        """The last head with the values of these headers; None if another header differs, or a value is invalid."""
        last, before = self._head, self._headers
        if last is None or last.refusal is not None or len(headers) != len(before):
            return None
        metadata, timeout_s = list(last.metadata), last.timeout_s
        for index in compress(count(), map(is_not, headers, before)):
            (name, value), place = headers[index], self._places.get(index)
            if place is None or name != before[index][0] or _FORBIDDEN.search(value):
                return None
            if place != _TIMEOUT:
                metadata[place] = metadata[place][0], value.decode("latin-1")
                continue
            try:
                timeout_s = _timeout(value)
            except ValueError:
                return None
        return Head(last.path, tuple(metadata), timeout_s, last.encoding, last.length, None, 200)


def _places(headers: list[Header]) -> dict[int, int]:
    """By the index of each header that is text or the timeout: its place in the metadata, or _TIMEOUT."""
    places: dict[int, int] = {}
    place = 0
    for index, (name, value) in enumerate(headers):
        if name == b"grpc-timeout":
            places[index] = _TIMEOUT
        elif name not in _PSEUDO and name not in _OURS:
            if not name.endswith(b"-bin"):
                places[index] = place
                place += 1
            else:
                place += 1 + value.count(b",")
    return places


def head(headers: list[Header]) -> Head:
    """Reads the headers of a request. Raises Malformed."""
    pseudo: dict[bytes, bytes] = {}
    found: dict[bytes, bytes] = {}
    metadata: list[tuple[str, str | bytes]] = []
    faults: list[ValueError] = []
    for header in headers:
        if header[0] in _PSEUDO:
            if metadata or found or header[0] in pseudo:
                raise Malformed(f"the pseudo-header {header[0]!r} occurs twice or after other headers")
            pseudo[header[0]] = header[1]
        elif (pair := _known.get(header) or _read(header, faults)) is _NO_METADATA:
            found[header[0]] = header[1]
        else:
            metadata.append(pair)
    if faults and len(apart := _apart(headers)) > len(headers):
        return head(apart)
    if not pseudo.get(b":method") or not pseudo.get(b":path") or not pseudo.get(b":scheme"):
        raise Malformed("a request needs :method, :path and :scheme")
    return _checked(pseudo, found, tuple(metadata), faults)


def _apart(headers: list[Header]) -> list[Header]:
    """Splits headers of bytes (`-bin`) whose values a proxy has joined with a comma."""
    apart: list[Header] = []
    for name, value in headers:
        apart += ((name, one.strip()) for one in value.split(b",")) if name.endswith(b"-bin") else ((name, value),)
    return apart


def _read(header: Header, faults: list[ValueError]) -> tuple[str, str | bytes]:
    """One header as metadata, or _NO_METADATA; raises Malformed. Adds to `faults` why its value cannot be read."""
    check_header(*header)
    try:
        pair = _NO_METADATA if header[0] in _OURS else read(*header)
    except ValueError as error:
        faults.append(error)
        return "-", ""  # no handler sees it
    if len(header[0]) + len(header[1]) <= _KNOWN_BYTES:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[header] = pair
    return pair


def _checked(
    pseudo: dict[bytes, bytes], found: dict[bytes, bytes], metadata: Metadata, faults: list[ValueError]
) -> Head:
    """Checks whether valid HTTP/2 is a valid gRPC call. Raises Malformed for an invalid content-length."""
    refusal: tuple[Code, str, Metadata] | None = None
    http_status, timeout_s, length = 200, None, _length(found.get(b"content-length"))
    if b"grpc-timeout" in found:
        try:
            timeout_s = _timeout(found[b"grpc-timeout"])
        except ValueError as error:
            faults = [error]
    encoding = found.get(b"grpc-encoding", b"identity")
    if faults:
        metadata, refusal = (), (Code.INTERNAL, f"a header cannot be read: {faults[0]}", ())
    elif encoding not in ENCODINGS:
        quoted = encoding[:QUOTED_MAX].decode("latin-1")
        refusal = Code.UNIMPLEMENTED, f"messages in the encoding {quoted!r} cannot be unpacked", _ACCEPTED
    if pseudo[b":method"] != b"POST":
        why = "" if pseudo[b":method"] == b"HEAD" else "gRPC calls are made with POST"  # the answer to HEAD has no body
        http_status, refusal = 405, (Code.INTERNAL, why, ())
    elif not _GRPC.match(found.get(b"content-type", b"")):
        http_status, refusal = 415, (Code.INTERNAL, "the content-type of gRPC calls is application/grpc", ())
    return Head(pseudo[b":path"].decode("latin-1"), metadata, timeout_s, encoding, length, refusal, http_status)


def check_trailers(headers: list[Header]) -> None:
    """Validates a client's trailers: no pseudo-headers. Raises Malformed."""
    for name, value in headers:
        if name[:1] == b":":
            raise Malformed("a pseudo-header in trailers")
        check_header(name, value)


def check_header(name: bytes, value: bytes) -> None:
    """Raises Malformed for a header that HTTP/2 forbids."""
    if not name or not _NAME_LETTERS.issuperset(name):
        raise Malformed(f"{name!r} is not a valid header name")
    if name in _CONNECTION or (name == b"te" and value != b"trailers"):
        raise Malformed(f"HTTP/2 has no header {name!r}")
    if _FORBIDDEN.search(value):
        raise Malformed(f"the value of {name!r} contains a line break")


def _length(text: bytes | None) -> int:
    """The content-length, -1 without one. Raises Malformed if it is not a number (int() accepts signs and blanks)."""
    if text is None:
        return -1
    if not text.isdigit() or len(text) > _LENGTH_DIGITS_MAX:
        raise Malformed(f"content-length {text!r} is not a number of bytes")
    return int(text)


def _timeout(text: bytes) -> float:
    """The seconds of a grpc-timeout. Raises ValueError."""
    digits, unit = text[:-1], text[-1:]
    if not digits.isdigit() or len(digits) > _TIMEOUT_DIGITS_MAX or unit not in _UNITS:
        raise ValueError(
            f"grpc-timeout {text[:QUOTED_MAX]!r}: at most {_TIMEOUT_DIGITS_MAX} digits and one of H M S m u n"
        )
    return int(digits) * _UNITS[unit]
