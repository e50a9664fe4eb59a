"""What a request of HTTP says: its content-type, its message, also one that is compressed, and its deadline."""

import base64
import zlib
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from popmq_http2 import Aborted, Code
from popmq_http2.status import QUOTED_MAX
from popmq_server.errors import invalid
from popmq_server.protocols.connect.answers import JSON, PROTO

#: The largest body, also unpacked: the 16 MiB of messages that a Send may have, as base64 in JSON.
BODY_BYTES = 23 << 20
_GZIP = 16 + zlib.MAX_WBITS
_ENCODINGS = ("identity", "gzip")
_TIMEOUT_DIGITS_MAX, _FIELDS_MAX = 10, 16


class Asked(NamedTuple):
    """A request. `headers`: with lower-case names. `target`: the path, and the query after a `?`."""

    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Content(NamedTuple):
    """The message of a request. `kind`: JSON, PROTO, or None: neither. `is_packed`: by gzip."""

    kind: str | None
    raw: bytes
    is_packed: bool


def content(asked: Asked) -> Content:
    """Reads a GET, or another request. Raises Aborted for an unknown encoding, Refused for a broken query."""
    if asked.verb == "GET":
        kind, raw, encoding = _queried(asked.target.partition("?")[2])
    else:
        kind, raw = _kind(asked.headers.get("content-type", "")), asked.body
        encoding = asked.headers.get("content-encoding", "")
    encoding = encoding or "identity"
    if encoding not in _ENCODINGS:
        accepted = ("accept-encoding", ", ".join(_ENCODINGS))
        why = f"the encoding {encoding[:QUOTED_MAX]!r} cannot be unpacked, {_ENCODINGS[1]} can"
        raise Aborted(Code.UNIMPLEMENTED, why, (accepted,))
    return Content(kind, raw, encoding == "gzip" and bool(raw))


def unpacked(raw: bytes) -> bytes:
    """Unpacks gzip, never more than BODY_BYTES: a few bytes can stand for gigabytes. Raises Aborted, Refused."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(raw, BODY_BYTES + 1)
    except zlib.error as problem:
        raise invalid(f"the body is not valid gzip: {problem}", action="compress it again, or not at all") from None
    if len(text) > BODY_BYTES:
        raise too_large()
    if not unpacker.eof:
        raise invalid("the body ends in the middle of its gzip", action="compress it again, or not at all")
    if unpacker.unused_data:
        raise invalid("bytes follow the gzip of the body", action="compress all of it at once, or not at all")
    return text


def timeout_s(text: str | None) -> float | None:
    """Seconds of Connect-Timeout-Ms; None without one. Raises Refused INVALID_FIELD."""
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > _TIMEOUT_DIGITS_MAX:
        raise invalid(
            f"Connect-Timeout-Ms {text[:QUOTED_MAX]!r} is not a number of milliseconds",
            action=f"write at most {_TIMEOUT_DIGITS_MAX} digits",
        )
    return int(text) / 1000


def too_large() -> Aborted:
    return Aborted(Code.RESOURCE_EXHAUSTED, f"a request has at most {BODY_BYTES} bytes: divide it into several")


def _queried(query: str) -> tuple[str | None, bytes, str]:
    """(content-type, the message, its encoding) of a GET. Raises Refused INVALID_FIELD."""
    try:
        fields = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
        given = {name: values[-1] for name, values in fields.items()}
        message = given.get("message", "")
        if given.get("base64") != "1":
            raw = message.encode()
        else:
            raw = base64.b64decode(message + "=" * (-len(message) % 4), altchars=b"-_", validate=True)
    except ValueError as problem:
        raise invalid(f"the query cannot be read: {problem}", action="encode it as Connect's GET does") from None
    kind = {"json": JSON, "proto": PROTO}.get(given.get("encoding", "json"))
    return kind, raw, given.get("compression", "")


def _kind(content_type: str) -> str | None:
    """JSON or PROTO; None: another content-type, or another charset than UTF-8."""
    kind, _, parameter = content_type.partition(";")
    charset = parameter.strip().lower().removeprefix("charset=").strip('"')
    if charset not in ("", "utf-8"):
        return None
    return kind if (kind := kind.strip().lower()) in (JSON, PROTO) else None
