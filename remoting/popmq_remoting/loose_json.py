"""JSON as older brokers write it: keys that are bare numbers, or whole objects.

    {0:"10.0.0.1:10911"}                                    106, cluster info
    {"offsetTable":{{"brokerName":"a","queueId":0}:{…}}}    202, 208, 222

Standard JSON is read by the json library. Only what that refuses is read here: any value may be a key, and each key
becomes text; an object as a key becomes its JSON with sorted names (`key_of`). All else is as strict as standard JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

from popmq_remoting.errors import BadFormat

#: Objects and lists inside each other; the bodies of brokers have six at most.
DEPTH_MAX = 64

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
#: Digits of a number; int() takes quadratic time.
_DIGITS_MAX = 400
_WORDS = {"true": True, "false": False, "null": None}


def loads(raw: bytes) -> Any:
    """The value of a body. Raises BadFormat."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadFormat(f"JSON that is no UTF-8: {error}") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise BadFormat(f"JSON with over {DEPTH_MAX} values inside each other") from None
    except ValueError:
        return _Reader(text).whole()


def key_of(**members: str | int) -> str:
    """The text of an object that is a key, such as a queue: key_of(brokerName="a", queueId=0, topic="t")."""
    return _text_of(members)


def _text_of(key: Any) -> str:
    if isinstance(key, str):
        return key
    return json.dumps(key, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class _Reader:
    """Reads values from left to right; `_at` is the place in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decoder = json.JSONDecoder()

    def whole(self) -> Any:
        value = self._value(0)
        if self._next():
            raise self._wrong("the end")
        return value

    def _wrong(self, wanted: str) -> BadFormat:
        return BadFormat(f"JSON: {wanted} expected at character {self._at}")

    def _next(self) -> str:
        """The next character that is not blank; "" at the end."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, wanted: str) -> None:
        if self._next() != wanted:
            raise self._wrong(repr(wanted))
        self._at += 1

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise self._wrong(f"at most {DEPTH_MAX} values inside each other")
        match self._next():
            case "{":
                return self._object(depth)
            case "[":
                return self._list(depth)
            case '"':
                return self._string()
            case _:
                return self._plain()

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._take("{")
        while self._next() != "}":
            if found:
                self._take(",")
            key = _text_of(self._value(depth + 1))
            self._take(":")
            found[key] = self._value(depth + 1)
        self._take("}")
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._take("[")
        while self._next() != "]":
            if found:
                self._take(",")
            found.append(self._value(depth + 1))
        self._take("]")
        return found

    def _string(self) -> str:
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except ValueError:
            raise self._wrong("a string") from None
        return str(value)

    def _plain(self) -> int | float | bool | None:
        number = _NUMBER.match(self._text, self._at)
        if number and number.end() - self._at <= _DIGITS_MAX:
            self._at = number.end()
            return _number(number.group())
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        raise self._wrong("a value")


def _number(text: str) -> int | float:
    return float(text) if any(letter in text for letter in ".eE") else int(text)
