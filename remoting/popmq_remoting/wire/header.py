"""The header of a command: written as JSON, read as JSON or in the binary form, which servers can be set to write.

    JSON     {"code":0,"language":"PYTHON","version":479,"opaque":7,"flag":1,"remark":"…","extFields":{"a":"b"}}
    binary   i16 code, i8 language, i16 version, i32 opaque, i32 flag, i32 n + remark, i32 n + fields
             fields = repeated i16 n + name, i32 n + value; n = 0 is no text

A server writes all headers in one form (`rocketmq.serialize.type`), whatever the form of the requests, and reads both.
Writing binary headers would cost more in Python than JSON, whose library is C; and their code is a short, which none
of the pop requests fits into.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from popmq_remoting.codes import VERSION, Language
from popmq_remoting.errors import BadFormat
from popmq_remoting.wire.command import Command, Fields

#: Encodings: the top byte of a header's length.
JSON, BINARY = 0, 1

#: A text as JSON. A header is put together of such: an encoder would be made anew for each.
_quoted = json.encoder.encode_basestring_ascii
_BEGIN = f'"language":"{Language.PYTHON.name}","version":{VERSION}'
_HEAD = struct.Struct(">hbhiii")
_NUMBERS = ("code", "opaque", "flag", "version")
_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1


def write_json(code: int, opaque: int, flag: int, fields: Fields, remark: str = "") -> bytes:
    """A JSON header. Values of fields must be texts."""
    pairs = ",".join([f"{_quoted(name)}:{_quoted(value)}" for name, value in fields.items()])
    said = f',"remark":{_quoted(remark)}' if remark else ""
    head = f'{{"code":{code:d},{_BEGIN},"opaque":{opaque:d},"flag":{flag:d}{said},"extFields":{{{pairs}}}}}'
    return head.encode()


def read(encoding: int, raw: bytes) -> Command:
    """A command without its body. Raises BadFormat."""
    if encoding == JSON:
        return _read_json(raw)
    if encoding == BINARY:
        return _read_binary(raw)
    raise BadFormat(f"{encoding} is no encoding of a header")


def _read_json(raw: bytes) -> Command:
    try:
        header = json.loads(raw.decode())
    except (ValueError, RecursionError):
        raise BadFormat(f"a header that is no JSON: {raw[:40]!r}") from None
    if not isinstance(header, dict):
        raise BadFormat("a header that is no JSON object")
    remark, fields = header.get("remark"), header.get("extFields")
    if remark is not None and not isinstance(remark, str):
        raise BadFormat("the header's remark is no text")
    numbers = [header.get(name, 0) for name in _NUMBERS]
    for number in numbers:
        if type(number) is not int or not _INT_MIN <= number <= _INT_MAX:
            raise BadFormat(f"a number of the header is none of 32 bits: {str(number)[:40]}")
    code, opaque, flag, version = numbers
    return Command(code, opaque, flag, remark or "", {} if fields is None else _texts(fields), version=version)


def _texts(fields: Any) -> dict[str, str]:
    """The fields as text. Brokers write texts; what another server writes as a number or truth is read as well."""
    if not isinstance(fields, dict):
        raise BadFormat("the header's extFields are no JSON object")
    found = {}
    for name, value in fields.items():
        if type(value) is str:
            found[name] = value
        elif isinstance(value, bool | int | float):
            found[name] = json.dumps(value)
        elif value is not None:
            raise BadFormat(f"the field {name!r} is no text")
    return found


def _read_binary(raw: bytes) -> Command:
    try:
        code, _, version, opaque, flag, length = _HEAD.unpack_from(raw)
        remark, at = _cut(raw, _HEAD.size, length)
        (length,) = struct.unpack_from(">i", raw, at)
        fields, at = _cut(raw, at + 4, length)
        if at != len(raw):
            raise BadFormat("a binary header has bytes behind its fields")
        return Command(code, opaque, flag, remark.decode(), _binary_fields(fields), version=version)
    except struct.error:
        raise BadFormat("a binary header ends too early") from None
    except UnicodeDecodeError:
        raise BadFormat("a binary header has text that is no UTF-8") from None


def _binary_fields(raw: bytes) -> dict[str, str]:
    fields, at = {}, 0
    while at < len(raw):
        (length,) = struct.unpack_from(">h", raw, at)
        name, at = _cut(raw, at + 2, length)
        (length,) = struct.unpack_from(">i", raw, at)
        value, at = _cut(raw, at + 4, length)
        fields[name.decode()] = value.decode()
    return fields


def _cut(raw: bytes, at: int, length: int) -> tuple[bytes, int]:
    """The next `length` bytes, and the place behind them."""
    end = at + length
    if length < 0 or end > len(raw):
        raise BadFormat("a length in a binary header leads past its end")
    return raw[at:end], end
