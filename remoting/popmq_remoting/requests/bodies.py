"""Bodies as JSON: written in the standard form, read as brokers write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from popmq_remoting import loose_json
from popmq_remoting.errors import BadFormat
from popmq_remoting.wire.command import Response

_DECODER = json.JSONDecoder()
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def write(value: Mapping[str, Any]) -> bytes:
    """The body of a request."""
    return _ENCODE(value).encode()


def members(answer: Response) -> dict[str, Any]:
    """The object that the body is; an empty body has no members. Raises BadFormat."""
    value = loose_json.loads(answer.body) if answer.body.strip() else {}
    if not isinstance(value, dict):
        raise BadFormat("the answer's body is no JSON object")
    return value


def table(answer: Response, name: str) -> dict[str, Any]:
    """A member of the body that is an object; empty if it is missing. Raises BadFormat."""
    value = members(answer).get(name)
    if value is not None and not isinstance(value, dict):
        raise BadFormat(f"{name} of the answer is no JSON object")
    return value or {}


def pieces(answer: Response, name: str, count: int) -> Iterator[dict[str, Any]]:
    """As `table`, at most `count` of its members at a time, so that a caller can let others run in between.

    What is not standard JSON without blanks, as brokers write it, is read whole. Raises BadFormat.
    """
    try:
        yield from _pieces(answer.body.decode(), f'"{name}":{{', count)
    except (ValueError, IndexError, RecursionError):
        yield table(answer, name)


def _pieces(text: str, before: str, count: int) -> Iterator[dict[str, Any]]:
    """Raises ValueError, IndexError or RecursionError for another form."""
    at, found = text.index(before) + len(before), dict[str, Any]()
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        value, end = _DECODER.raw_decode(text, at + 1)
        if not isinstance(key, str) or text[at] != ":" or text[end] not in ",}":
            raise ValueError("not the form of brokers")
        found[key] = value
        at = end + (text[end] == ",")
        if len(found) == count:
            yield found
            found = {}
    yield found


def names(answer: Response, name: str) -> list[str]:
    """A member of the body that is a list of texts; empty if it is missing. Raises BadFormat."""
    value = members(answer).get(name)
    if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise BadFormat(f"{name} of the answer is no list of texts")
    return value or []


def number(data: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A member that is a whole number. Raises BadFormat."""
    value = data.get(name, default)
    if type(value) is not int:
        raise BadFormat(f"{name} of the answer is no whole number")
    return value
