"""Status codes of gRPC, and the trailers that end a call."""

import base64
import enum

from popmq_http2.hpack import Header


class Code(enum.IntEnum):
    """Numbers and names are those of gRPC (https://grpc.io/docs/guides/status-codes/)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


#: (name, value): a name that ends with "-bin" has bytes, any other has text.
Metadata = tuple[tuple[str, str | bytes], ...]


#: Characters of a client's text that a message quotes: a text of 32 KiB would make an answer of 200 KiB.
QUOTED_MAX = 500
#: Headers that the server writes itself.
_RESERVED = {"grpc-status", "grpc-message", "content-type", "te"}


class Aborted(Exception):
    """Ends a call with a status. Handlers raise it, or call `Call.abort`."""

    def __init__(self, code: Code, message: str = "", metadata: Metadata = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.metadata = metadata


def trailers(code: Code, message: str, metadata: Metadata = ()) -> list[Header]:
    """The trailers that end a call."""
    found = [(b"grpc-status", b"%d" % code)]
    if message:
        found.append((b"grpc-message", _escaped(message)))
    return found + written(metadata)


def written(metadata: Metadata) -> list[Header]:
    """Metadata as headers. Raises ValueError for a name or a text that HTTP/2 cannot carry."""
    return [(_name(name), _value(name, value)) for name, value in metadata]


def read(name: bytes, value: bytes) -> tuple[str, str | bytes]:
    """One header as metadata. Raises ValueError for invalid base64."""
    if name.endswith(b"-bin"):
        return name.decode("ascii"), base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    return name.decode("ascii"), value.decode("latin-1")


def _name(name: str) -> bytes:
    """Header names of HTTP/2 are lower case; gRPC reserves a few of them."""
    if not name or name != name.lower() or name[0] == ":" or name in _RESERVED:
        raise ValueError(f"{name!r} is not a valid metadata name: use lower-case letters, digits, '-', '_' and '.'")
    return name.encode("ascii")


def _value(name: str, value: str | bytes) -> bytes:
    """Base64 without padding for bytes, as gRPC writes it; printable ASCII for text."""
    if name.endswith("-bin"):
        raw = value if isinstance(value, bytes) else value.encode()
        return base64.b64encode(raw).rstrip(b"=")
    text = value.encode("ascii") if isinstance(value, str) else value
    if any(not 0x20 <= byte <= 0x7E for byte in text):
        raise ValueError(f"the value of {name!r} has characters that only a name ending with '-bin' may have")
    return text


def _escaped(message: str) -> bytes:
    """Percent-encodes everything but printable ASCII, as gRPC requires."""
    raw = message.encode()
    return b"".join(b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in raw)
