"""A type as JSON Schema: of the bodies that converting.py reads as this type, no more and no fewer.

    Schemas(prefix).of(list[Invoice]) ─▶ {"type": "array", "items": {"$ref": prefix + "Invoice"}}
                    .named            ─▶ {"Invoice": {"type": "object", …}}          records and aliases, by their names

Draft 7, which AsyncAPI means where it says nothing else. pydantic and msgspec describe their own classes.
"""

import dataclasses
import json
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

from popmq._worker.converting import hints_of, is_alias, type_inside

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    UUID: {"type": "string", "format": "uuid"},
    Decimal: {"type": ["string", "number"]},
}
_LISTS = (list, Sequence, tuple, set, frozenset)


class Schemas:
    """The schemas of one document. `prefix`: of references to named ones, such as "#/components/schemas/"."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.named: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def name_of(self, kind: Any) -> str:
        """The name of a type that `of` refers to; "" for one that has none."""
        return self._names.get(kind, "")

    def of(self, kind: Any) -> Schema:
        """The schema of a type that a handler may take."""
        while (inside := type_inside(kind)) is not None:
            if is_alias(kind):
                return self._as_named(kind, kind.__name__, lambda: self.of(inside))
            kind = inside
        if kind in (Any, object):
            return {}
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.of(each) for each in inner]}
        if origin is Literal:
            return {"enum": [*inner]}
        if origin in _LISTS or kind in _LISTS:
            return self._list(origin or kind, inner)
        if origin in (dict, Mapping) or kind in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1])} if inner else {"type": "object"}
        return dict(_PLAIN[kind]) if kind in _PLAIN else self._record(kind)

    def _list(self, origin: Any, inner: tuple[Any, ...]) -> Schema:
        if origin is tuple and inner and inner[-1] is not Ellipsis:
            items = [self.of(each) for each in inner]
            return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": self.of(inner[0])} if inner else {"type": "array"}

    def _record(self, kind: Any) -> Schema:
        if hasattr(kind, "model_json_schema"):
            return self._of_library(kind, kind.model_json_schema(ref_template=self._prefix + "{model}"))
        if hasattr(kind, "__struct_fields__"):
            template = self._prefix + "{name}"
            return self._of_library(kind, sys.modules["msgspec"].json.schema(kind, ref_template=template))
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [each.value for each in kind]}
        return self._as_named(kind, kind.__name__, lambda: self._fields(kind))

    def _as_named(self, kind: Any, name: str, make: Any) -> Schema:
        """A reference to a schema that is made once: it may have a reference to itself."""
        if kind not in self._names:
            self._names[kind] = free = self._free(name)
            self.named[free] = {}
            self.named[free] = make()
        return {"$ref": self._prefix + self._names[kind]}

    def _free(self, name: str) -> str:
        """The name, or with a number, if another type has it."""
        name = re.sub(r"[^\w.-]", "_", name)
        taken = self.named.keys()
        return next(
            each for each in (name, *(f"{name}{number}" for number in range(2, len(taken) + 3))) if each not in taken
        )

    def _of_library(self, kind: Any, schema: Schema) -> Schema:
        """The schema that a library made, with its definitions moved to ours. Names that are taken get a number."""
        if kind in self._names:
            return {"$ref": self._prefix + self._names[kind]}
        inner: dict[str, Schema] = schema.pop("$defs", {})
        if "$ref" in schema and schema["$ref"].startswith(self._prefix):
            own = schema["$ref"].removeprefix(self._prefix)
        else:
            own = kind.__name__
            inner[own] = schema
        renamed: dict[str, str] = {}
        for name, each in inner.items():
            if name != own and self.named.get(name) == each:
                continue  # the same definition came with another type
            renamed[name] = self._free(name)
            self.named[renamed[name]] = each
        for name in renamed.values():
            self.named[name] = self._referring(self.named[name], renamed)
        self._names[kind] = renamed[own]
        return {"$ref": self._prefix + renamed[own]}

    def _referring(self, schema: Any, renamed: Mapping[str, str]) -> Any:
        """The same with the new names."""
        if isinstance(schema, dict):
            whole = {key: self._referring(value, renamed) for key, value in schema.items()}
            name = str(whole.get("$ref", "")).removeprefix(self._prefix)
            return {**whole, "$ref": self._prefix + renamed[name]} if name in renamed else whole
        return [self._referring(each, renamed) for each in schema] if isinstance(schema, list) else schema

    def _fields(self, kind: Any) -> Schema:
        """A dataclass or a TypedDict. Senders may add fields, which are ignored, so others are not refused."""
        hints = hints_of(kind)
        if typing.is_typeddict(kind):
            properties, needed = (
                {name: self.of(_required(hint)) for name, hint in hints.items()},
                kind.__required_keys__,
            )
        else:
            given = [each for each in dataclasses.fields(kind) if each.init]
            nothing = dataclasses.MISSING
            needed = {each.name for each in given if each.default is nothing and each.default_factory is nothing}
            properties = {each.name: {**self.of(hints[each.name]), **_default(each)} for each in given}
        described = {"description": text} if (text := doc_of(kind)) else {}
        required = {"required": [name for name in properties if name in needed]} if needed else {}
        return {"type": "object", **described, "properties": properties, **required}


def _required(hint: Any) -> Any:
    """A field of a TypedDict without Required, NotRequired and ReadOnly."""
    while getattr(typing.get_origin(hint), "_name", "") in ("Required", "NotRequired", "ReadOnly"):
        (hint,) = typing.get_args(hint)
    return hint


def _default(field: "dataclasses.Field[Any]") -> Schema:
    """The default of a field, if JSON can say it, and its schema is no reference, beside which nothing counts."""
    value = field.default
    plain = value is None or type(value) in (int, float, str, bool)
    return {"default": value} if plain and value == json.loads(json.dumps(value)) else {}


def doc_of(thing: Any) -> str:
    """The first paragraph of a docstring of its own; a dataclass gets one that only repeats its fields."""
    text = thing.__dict__.get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    if not text or (isinstance(thing, type) and text.startswith(f"{thing.__name__}(")):
        return ""
    return " ".join(str(text).strip().partition("\n\n")[0].split())
