"""A request, an answer, and what carries either of them over a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from popmq_remoting.codes import HeaderFlag
from popmq_remoting.errors import BadFormat, BrokerRefused

Fields = Mapping[str, str]
#: As plain numbers: operations of enums cost a microsecond.
_RESPONSE, _ONEWAY = int(HeaderFlag.RESPONSE), int(HeaderFlag.ONEWAY)
NO_FIELDS: Fields = MappingProxyType({})


class Request(NamedTuple):
    """What is asked for. All values of the fields travel as text."""

    code: int
    fields: Fields = NO_FIELDS
    body: bytes = b""


class Response(NamedTuple):
    """What came back; its code may be any."""

    code: int
    remark: str = ""
    fields: Fields = NO_FIELDS
    body: bytes = b""

    def expect(self, *codes: int) -> Response:
        """Itself. Raises BrokerRefused unless its code is one of these; without any, unless it is 0."""
        if self.code in (codes or (0,)):
            return self
        raise BrokerRefused(self.code, self.remark)

    def text(self, name: str) -> str:
        """A field. Raises BadFormat if it is missing."""
        value = self.fields.get(name)
        if value is None:
            raise BadFormat(f"the answer has no field {name}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A field that is a whole number. Raises BadFormat if it is none, or missing without a default."""
        if default is not None and name not in self.fields:
            return default
        return whole_number(self.text(name), name)


@dataclass(slots=True)
class Command:
    """A request or an answer with what the connection needs: `opaque` says which answer belongs to which request."""

    code: int
    opaque: int
    flag: int = 0
    remark: str = ""
    fields: Fields = field(default_factory=dict)
    body: bytes = b""
    version: int = 0

    @property
    def is_answer(self) -> bool:
        """Looked at before `opaque`: brokers number the requests that they send to clients themselves."""
        return self.flag & _RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & _ONEWAY != 0

    def request(self) -> Request:
        """What it asks for."""
        return Request(self.code, self.fields, self.body)

    def response(self) -> Response:
        """What it says."""
        return Response(self.code, self.remark, self.fields, self.body)


def request(code: int, body: bytes = b"", /, **values: str | int | bool | None) -> Request:
    """A request whose fields are these values as text; those that are None are left out."""
    return Request(code, texts(values), body)


def texts(values: Mapping[str, str | int | bool | None]) -> dict[str, str]:
    """The values as they travel: whole numbers in digits, truth as `true` and `false`; None is left out."""
    return {
        name: value if type(value) is str else str(value) if type(value) is int else _text(value)
        for name, value in values.items()
        if value is not None
    }


def whole_number(text: str, name: str) -> int:
    """The number that a text is. Raises BadFormat; longer ones than a Java long are none."""
    try:
        if len(text) > 20:
            raise ValueError
        return int(text)
    except ValueError:
        raise BadFormat(f"{name} is {text[:40]!r}, not a whole number") from None


def _text(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
