"""The JSON of protobuf ↔ its bytes: fields in lowerCamelCase or as the contract names them, bytes as base64.

Stricter than protobuf's own reader where that would change what a caller meant: a body that is no base64, as a plain
text is, would be taken as other bytes, and of a name that comes twice only one value.
"""

import functools
import json
import re
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from popmq_server.errors import Refused, invalid
from popmq_server.protocols.connect.answers import PROTO

#: Values and names in a JSON: as many objects are made of it. A Send of 4,096 messages with ten fields has 90,000.
ELEMENTS_MAX = 200_000
#: Both alphabets of base64, with or without padding.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
#: By JSON name and contract name: whether the field is bytes, or else its parts that have bytes.
Parts = dict[str, "Parts | None"]


def encoded(kind: type[Message], raw: bytes) -> bytes:
    """The bytes of a request that is JSON. Raises Refused INVALID_FIELD."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > ELEMENTS_MAX:
        raise invalid(
            f"the request has more than {ELEMENTS_MAX:,} elements",
            action=f"divide it into several requests, or send it as {PROTO}",
        )
    try:
        content = json.loads(raw.decode() or "{}", object_pairs_hook=_once)
        _check_bytes(_parts(kind.DESCRIPTOR), content, "")
        message = kind()
        json_format.ParseDict(content, message)
        return message.SerializeToString()
    except UnicodeDecodeError:
        raise _not_json(kind, "it is not UTF-8") from None
    except RecursionError:
        raise _not_json(kind, "it is nested too deeply") from None
    except (json_format.ParseError, ValueError, TypeError, AttributeError) as problem:
        raise _not_json(kind, str(problem)) from None


def decoded(kind: type[Message], raw: bytes) -> bytes:
    """An answer as JSON; fields that have their default are left out, as everywhere in protobuf's JSON."""
    return json_format.MessageToJson(kind.FromString(raw), indent=None, ensure_ascii=False).encode()


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
            elif isinstance(value, str) and not _is_base64(value):
                raise ValueError(f"{place} is not base64: {value[:40]!r}")


def _is_base64(text: str) -> bool:
    return bool(_BASE64.fullmatch(text)) and len(text.rstrip("=")) % 4 != 1


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
