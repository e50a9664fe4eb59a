"""The JSON of protobuf ↔ its bytes: fields in lowerCamelCase or as the contract names them, bytes as base64.

Stricter than protobuf's own reader where that would change what a caller meant: a body that is no base64, as a plain
text is, would be taken as other bytes, and of a name that comes twice only one value.
"""

import functools
import json
import string
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from popmq_server.errors import Refused, invalid
from popmq_server.protocols.connect.answers import PROTO

#: Values and names in a JSON: as many objects are made of it. A Send of 4,096 messages with ten fields has 90,000.
ELEMENTS_MAX = 200_000
_PIECE_BYTES = 1 << 20
#: Characters of the longest base64: a body of 4 MiB has 5.6 million. What is longer is not looked at: that takes time.
BASE64_MAX = 6 << 20
#: Both alphabets of base64.
_BASE64 = string.ascii_letters.encode() + string.digits.encode() + b"+/-_"
#: By JSON name and contract name: whether the field is bytes, or else its parts that have bytes.
Parts = dict[str, "Parts | None"]


def encoded(kind: type[Message], raw: bytes) -> bytes:
    """The bytes of a request that is JSON. Raises Refused INVALID_FIELD."""
    if _elements(raw) > ELEMENTS_MAX:
        raise invalid(
            f"the request has more than {ELEMENTS_MAX:,} elements",
            action=f"divide it into several requests, or send it as {PROTO}",
        )
    try:
        content = json.loads(raw.decode() or "{}", object_pairs_hook=_once)
        _check_pairs(raw, content)
        _check_bytes(_parts(kind.DESCRIPTOR), content, "")
        message = kind()
        json_format.ParseDict(content, message)
        return message.SerializeToString()
    except UnicodeDecodeError:
        raise _not_json(kind, "it is not UTF-8") from None
    except UnicodeEncodeError:
        raise _not_json(kind, "a text in it has half of a surrogate pair") from None
    except RecursionError:
        raise _not_json(kind, "it is nested too deeply") from None
    except (json_format.ParseError, ValueError, TypeError, AttributeError) as problem:
        raise _not_json(kind, str(problem)) from None


def decoded(kind: type[Message], raw: bytes) -> bytes:
    """An answer as JSON; fields that have their default are left out, as everywhere in protobuf's JSON."""
    return json_format.MessageToJson(kind.FromString(raw), indent=None, ensure_ascii=False).encode()


def _elements(raw: bytes) -> int:
    """At most so many values are in a JSON. Counted in pieces, between which other threads run."""
    pieces = (raw[at : at + _PIECE_BYTES] for at in range(0, len(raw), _PIECE_BYTES))
    return sum(piece.count(b",") + piece.count(b"[") + piece.count(b"{") for piece in pieces)


def _not_json(kind: type[Message], why: str) -> Refused:
    return invalid(
        f"the request is not the JSON of a {kind.DESCRIPTOR.full_name}: {why}",
        action="write the fields as the contract names them; bytes as base64, times as numbers or texts",
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError if a name comes twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _check_pairs(raw: bytes, content: Any) -> None:
    """Raises UnicodeEncodeError for half of a surrogate pair: protobuf's reader fails on it in a name."""
    if b"\\ud" in raw or b"\\uD" in raw:
        json.dumps(content, ensure_ascii=False).encode()


def _check_bytes(parts: Parts, content: Any, path: str) -> None:
    """Raises ValueError for a field of bytes that is not base64."""
    if not isinstance(content, dict):
        return
    for name, part in parts.items():
        if name not in content:
            continue
        values = content[name] if isinstance(content[name], list) else [content[name]]
        for number, value in enumerate(values):
            place = f"{path}{name}" if values is not content[name] else f"{path}{name}[{number}]"
            if part is not None:
                _check_bytes(part, value, f"{place}.")
            elif isinstance(value, str) and len(value) > BASE64_MAX:
                raise ValueError(f"{place} has {len(value):,} characters, more than any body may have")
            elif isinstance(value, str) and not _is_base64(value):
                raise ValueError(f"{place} is not base64: {value[:40]!r}")


def _is_base64(text: str) -> bool:
    """Whether it has only characters of base64, as many as it may have, with or without padding."""
    digits = text.rstrip("=")
    fits = text.isascii() and len(text) - len(digits) <= 2 and len(digits) % 4 != 1
    return fits and not digits.encode().translate(None, _BASE64)


@functools.cache
def _parts(descriptor: Descriptor) -> Parts:
    """The fields of a message that are bytes, or have bytes in them."""
    found: Parts = {}
    for field in descriptor.fields:
        part = _parts(field.message_type) if field.message_type is not None else {}
        if field.type == FieldDescriptor.TYPE_BYTES:
            found[field.name] = found[field.json_name] = None
        elif part:
            found[field.name] = found[field.json_name] = part
    return found
