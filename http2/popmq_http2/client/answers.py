"""The header blocks of answers: head, trailers, or both in one; and the gRPC status of a reset or of plain HTTP."""

from __future__ import annotations

import re
from typing import NamedTuple

from popmq_http2.client.call import DONE, Status
from popmq_http2.frame_reader import decoded
from popmq_http2.frames import (
    CANCEL,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    NO_ERROR,
    REFUSED_STREAM,
    U32,
    WINDOW_MAX,
    ConnectionFault,
)
from popmq_http2.hpack import Decoder, Header
from popmq_http2.limits import Limits
from popmq_http2.request import Malformed, check_header
from popmq_http2.status import Code, Metadata, read

#: INADEQUATE_SECURITY of HTTP/2, which has no other use here.
_INADEQUATE_SECURITY = 0xC
#: Header blocks in the cache, and their maximum size.
_BLOCKS_MAX, _BLOCK_BYTES = 128, 1024
#: Headers that are read here, or are of no use to a caller.
_OURS = {b"content-type", b"grpc-status", b"grpc-message", b"grpc-encoding", b"grpc-accept-encoding"}
#: https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
_BY_HTTP = {
    400: Code.INTERNAL,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}
_BY_RESET = {
    REFUSED_STREAM: Code.UNAVAILABLE,
    CANCEL: Code.CANCELLED,
    ENHANCE_YOUR_CALM: Code.RESOURCE_EXHAUSTED,
    _INADEQUATE_SECURITY: Code.PERMISSION_DENIED,
}


#: A byte of a grpc-message that is percent-encoded.
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")
NO_STATUS = Status(Code.UNKNOWN, "the server ended the stream without a status")


class Answer(NamedTuple):
    """A decoded header block.

    `refusal`: why it is not an answer of gRPC; only a head (with :status) can have one.
    `status`: of trailers, or of a head that is the whole answer.
    """

    encoding: bytes
    refusal: Status | None
    status: Status | None


class AnswerReader:
    """Decodes the blocks of one connection; knows a block by its bytes while no other one changes the table."""

    __slots__ = ("_decoder", "_known", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoder = Decoder()
        self._known: dict[bytes, Answer] = {}

    def read(self, block: bytes) -> Answer:
        """Reads a block. Raises ConnectionFault if it cannot be decoded, Malformed if it is not an answer."""
        known = self._known.get(block)
        if known is not None:
            return known
        if len(block) > self._limits.header_block_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "the headers of an answer are too large")
        version = self._decoder.version
        pairs = decoded(self._decoder, block, self._limits, "an answer")
        if version != self._decoder.version or len(self._known) >= _BLOCKS_MAX:
            self._known.clear()
        result = answer(pairs)
        if version == self._decoder.version and len(block) <= _BLOCK_BYTES:
            self._known[block] = result
        return result


def answer(headers: list[Header]) -> Answer:
    """Reads a block. Raises Malformed."""
    found: dict[bytes, bytes] = {}
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name == b":status":
            found[name] = value
            continue
        check_header(name, value)
        if name in _OURS:
            found[name] = value
        else:
            values = value.split(b",") if name.endswith(b"-bin") else (value,)  # a proxy may have joined them
            try:
                metadata += [read(name, one.strip()) for one in values]
            except ValueError as error:
                raise Malformed(str(error)) from None
    refusal = _refusal(found) if b":status" in found else None
    return Answer(found.get(b"grpc-encoding", b"identity"), refusal, _status(found, tuple(metadata)))


def reset_status(code: int) -> Status:
    """The status of a stream that the server has reset."""
    return Status(_BY_RESET.get(code, Code.INTERNAL), f"the server reset the stream (HTTP/2 error {code})")


def goaway(payload: bytes) -> tuple[int, str]:
    """(the last stream that the server took, its reason: "" for none) of a GOAWAY. Raises ConnectionFault."""
    if len(payload) < 8:
        raise ConnectionFault(FRAME_SIZE_ERROR, "a GOAWAY has 8 bytes and more")
    last, code = U32.unpack_from(payload)[0] & WINDOW_MAX, U32.unpack_from(payload, 4)[0]
    text = payload[8:].decode("utf-8", "replace") or f"HTTP/2 error {code}"
    return last, "" if code == NO_ERROR else f"the server ended the connection: {text}"


def _refusal(found: dict[bytes, bytes]) -> Status | None:
    """Why a head is not one of gRPC; None if it is. Raises Malformed."""
    if not found[b":status"].isdigit() or len(found[b":status"]) != 3:
        raise Malformed(f":status {found[b':status'][:10]!r}")
    http = int(found[b":status"])
    kind = found.get(b"content-type", b"").decode("latin-1")
    if http != 200:
        return Status(_BY_HTTP.get(http, Code.UNKNOWN), f"the server answers with HTTP status {http}")
    if not kind.startswith("application/grpc"):
        return Status(Code.UNKNOWN, f"the server answers with content-type {kind or 'none'!r}: it is not one of gRPC")
    return None


# Almost every call ends with grpc-status 0 and nothing else: that needs no object of its own.
def _status(found: dict[bytes, bytes], metadata: Metadata) -> Status | None:
    text = found.get(b"grpc-status")
    if text is None:
        return None
    if text == b"0" and not metadata and b"grpc-message" not in found:
        return DONE
    number = int(text) if text.isdigit() and len(text) < 10 else -1
    code = Code(number) if number in _CODES else Code.UNKNOWN
    return Status(code, _plain(found.get(b"grpc-message", b"")), metadata)


_CODES = frozenset(Code)


def _plain(text: bytes) -> str:
    """A grpc-message without its percent-encoding; invalid sequences stay as they are."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), text).decode("utf-8", "replace")
