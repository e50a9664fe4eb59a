"""A body as the type that a handler's parameter names.

    bytes  str                              the body as it is, the body as UTF-8
    a pydantic model, a msgspec struct      by its own library, which the program has imported
    everything else                         JSON, checked against the type: numbers, lists, dicts, unions, Literal,
                                            enums, datetime, date, UUID, Decimal, dataclasses and TypedDicts

A converter is built once, when the handler is registered: a type without a converter is an error at that time.
Neither library is imported here. A class of theirs is known by its form.
"""

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NoReturn
from uuid import UUID

from popmq.outcome import BadPayload

#: Makes the value of a type from what JSON read; the second argument is its position in the body.
Check = Callable[[Any, str], Any]

_LISTS = {list: list, Sequence: list, tuple: tuple, set: set, frozenset: frozenset}
_FROM_TEXT: dict[Any, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}


def converter(kind: Any) -> Callable[[bytes], Any]:
    """What makes a `kind` of a body. Raises TypeError for a type that cannot be read; it raises BadPayload."""
    kind = named_type(kind)
    if kind is bytes:
        return lambda body: body
    if kind is str:
        return _text
    whole = _by_library(kind)
    if whole is not None:
        return whole
    check = checked(kind, {})
    return _refusing(lambda body: check(_json(body), "the body"))


def named_type(kind: Any) -> Any:
    """The type itself: without Annotated, and in place of a NewType or of an alias (`type X = …`)."""
    while (inner := type_inside(kind)) is not None:
        kind = inner
    return kind


def type_inside(kind: Any) -> Any:
    """What an Annotated, a NewType or an alias stands for; None for the type itself."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return typing.get_args(kind)[0]
    if isinstance(kind, typing.NewType):
        return kind.__supertype__
    if is_alias(origin):  # one with parameters
        return origin.__value__[typing.get_args(kind)]
    return kind.__value__ if is_alias(kind) else None


def is_alias(kind: Any) -> bool:
    """Python 3.11 has no class for them; that of typing_extensions has the same name."""
    return type(kind).__name__ == "TypeAliasType"


def _by_library(kind: Any) -> Callable[[bytes], Any] | None:
    """pydantic and msgspec parse JSON themselves, faster and with their own rules."""
    if hasattr(kind, "model_validate_json"):
        return _refusing(kind.model_validate_json)
    if hasattr(kind, "__struct_fields__"):
        decode = sys.modules["msgspec"].json.Decoder(kind).decode
        return _refusing(decode)
    return None


def _refusing(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(body: bytes) -> Any:
        try:
            return parse(body)
        except BadPayload:
            raise
        except RecursionError as error:
            raise BadPayload("the body is nested too deeply") from error
        except ValueError as error:  # what both raise is a ValueError
            raise BadPayload(str(error)) from error

    return read


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"the body is not UTF-8: {error}") from error


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise BadPayload(f"the body is not JSON: {error}") from error


def checked(kind: Any, known: dict[Any, Check]) -> Check:
    """The check of a type, with those of the types in it. Raises TypeError.

    `known`: the checks of records and aliases; one that has itself in it calls its own.
    """
    while (inside := type_inside(kind)) is not None:
        if is_alias(kind):
            return _aliased(kind, inside, known)
        kind = inside
    if kind in (Any, object):
        return lambda value, _: value
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _any_of(kind, [checked(each, known) for each in inner])
    if origin is Literal:
        return _one_of(inner)
    if origin in _LISTS or kind in _LISTS:
        return _list(_LISTS[origin or kind], kind, inner, known)
    if origin in (dict, Mapping) or kind in (dict, Mapping):
        return _mapping(inner, known)
    return _plain(kind) or _record(kind, known) or _unknown(kind)


def _aliased(kind: Any, inside: Any, known: dict[Any, Check]) -> Check:
    if kind not in known:
        known[kind] = lambda value, place: check(value, place)
        check = known[kind] = checked(inside, known)
    return known[kind]


def _plain(kind: Any) -> Check | None:
    """Numbers, texts, None, enums, and what is written as a text."""
    if kind in (int, float, str, bool, None, type(None)):
        return _exactly(type(None) if kind is None else kind)
    if kind in _FROM_TEXT:
        return _made(kind, lambda value: _FROM_TEXT[kind](value if isinstance(value, str) else str(value)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _made(kind, kind)
    return None


def _record(kind: Any, known: dict[Any, Check]) -> Check | None:
    """Classes with named fields; fields that the class does not have are ignored, so that senders may add some."""
    if hasattr(kind, "model_validate"):
        return _made(kind, kind.model_validate)
    if hasattr(kind, "__struct_fields__"):
        convert = sys.modules["msgspec"].convert
        return _made(kind, lambda value: convert(value, kind))
    if dataclasses.is_dataclass(kind):
        hints = hints_of(kind)
        given = [each for each in dataclasses.fields(kind) if each.init]
        nothing = dataclasses.MISSING
        needed = {each.name for each in given if each.default is nothing and each.default_factory is nothing}
        return _fields(kind, {each.name: hints[each.name] for each in given}, needed, known)
    if typing.is_typeddict(kind):
        return _fields(kind, hints_of(kind), set(kind.__required_keys__), known)
    return None


def hints_of(kind: Any) -> dict[str, Any]:
    """The types of the fields of a class. Raises TypeError for one that its module does not have."""
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise TypeError(f"an annotation of {kind.__qualname__} names what its module does not have: {error}") from error


def _unknown(kind: Any) -> NoReturn:
    raise TypeError(f"a body cannot be read as {kind!r}: take popmq.Delivery or bytes, or give convert=")


def _wrong(value: Any, place: str, wanted: Any) -> BadPayload:
    name = getattr(wanted, "__name__", None) if isinstance(wanted, type) else None
    return BadPayload(f"{place} is {value!r:.80}, not {name or wanted}")


def _exactly(kind: type) -> Check:
    def check(value: Any, place: str) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _wrong(value, place, kind)

    return check


def _made(kind: Any, make: Callable[[Any], Any]) -> Check:
    def check(value: Any, place: str) -> Any:
        try:
            return make(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise BadPayload(f"{_wrong(value, place, kind)}: {error}") from error

    return check


def _any_of(kind: Any, choices: list[Check]) -> Check:
    def check(value: Any, place: str) -> Any:
        for choice in choices:
            try:
                return choice(value, place)
            except BadPayload:
                continue
        raise _wrong(value, place, kind)

    return check


def _one_of(values: tuple[Any, ...]) -> Check:
    def check(value: Any, place: str) -> Any:
        # True == 1 and 1 == 1.0 in Python, but not in JSON.
        if any(type(value) is type(each) and value == each for each in values):
            return value
        raise _wrong(value, place, " or ".join(map(repr, values)))

    return check


def _list(make: Callable[[list[Any]], Any], kind: Any, inner: tuple[Any, ...], known: dict[Any, Check]) -> Check:
    if make is tuple and inner and inner[-1] is not Ellipsis:
        return _row(kind, [checked(each, known) for each in inner])
    each = checked(inner[0] if inner else Any, known)

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(value, place, kind)
        return make([each(item, f"{place}[{index}]") for index, item in enumerate(value)])

    return check


def _row(kind: Any, checks: list[Check]) -> Check:
    """A tuple of a fixed length."""

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, list) or len(value) != len(checks):
            raise _wrong(value, place, kind)
        pairs = enumerate(zip(checks, value, strict=True))
        return tuple(each(item, f"{place}[{index}]") for index, (each, item) in pairs)

    return check


def _mapping(inner: tuple[Any, ...], known: dict[Any, Check]) -> Check:
    """JSON has only texts as keys."""
    if inner and named_type(inner[0]) not in (str, Any):
        raise TypeError(f"the keys of a JSON object are str, not {inner[0]!r}")
    each = checked(inner[1] if inner else Any, known)

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, place, dict)
        return {key: each(item, f"{place}.{key}") for key, item in value.items()}

    return check


def _fields(kind: Any, hints: dict[str, Any], needed: set[str], known: dict[Any, Check]) -> Check:
    if kind in known:
        return lambda value, place: known[kind](value, place)
    checks: dict[str, Check] = {}

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, place, kind)
        if missing := sorted(needed - value.keys()):
            raise BadPayload(f"{place} has no field {missing[0]!r}, which {kind.__name__} needs")
        given = {name: each(value[name], f"{place}.{name}") for name, each in checks.items() if name in value}
        try:
            return kind(**given)
        except (ValueError, TypeError) as error:  # of its __post_init__
            raise BadPayload(f"{place} is no {kind.__name__}: {error}") from error

    known[kind] = check  # before those of its fields, which may need it
    checks.update({name: checked(hint, known) for name, hint in hints.items()})
    return check
