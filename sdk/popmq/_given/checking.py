"""Checks of what a caller gave, so that an error names the parameter. Pure.

Most are made by protobuf, which refuses a wrong type without saying of which field: `built` finds it afterwards, so a
request that is right costs no check.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor

from popmq.errors import InvalidField

T = TypeVar("T")

_WANTED = {
    FieldDescriptor.CPPTYPE_STRING: "a str",
    FieldDescriptor.CPPTYPE_BOOL: "True or False",
    FieldDescriptor.CPPTYPE_MESSAGE: "what its documentation says",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
}


def built(kind: type[T], where: str, /, **fields: Any) -> T:
    """A message of the contract. Raises TypeError or ValueError that names the field, after `where`."""
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise named(error, kind, where, fields) from None


def named(error: TypeError | ValueError, kind: Any, where: str, fields: dict[str, Any]) -> TypeError | ValueError:
    """The error of the first field that the message cannot take; `error` itself if it takes each of them."""
    for name, value in fields.items():
        try:
            kind(**{name: value})
        except (TypeError, ValueError) as refused:
            if isinstance(refused, TypeError):
                return TypeError(
                    f"{where}{name} is {value!r:.80}, of type {type(value).__name__}: give {_wanted(kind, name)}"
                )
            return ValueError(f"{where}{name} is {value!r:.80}: {refused}")
    return error


def _wanted(kind: Any, name: str) -> str:
    field = kind.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "a dict of str to str"
    one = _WANTED.get(field.cpp_type, "an int")
    return f"a list, each {one}" if field.is_repeated else one


def listed_texts(values: Sequence[str], field: str) -> Sequence[str]:
    """`values`. Raises TypeError for one text, which would be read as a list of its characters."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{field} is {values!r:.80}: give a list of texts, such as [{values!r:.80}]")
    return values


def instance(value: Any, kind: type[T], field: str) -> T | None:
    """`value` if it is None or of this class. Raises TypeError."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{field} is {value!r:.80}: give a popmq.{kind.__name__}")
    return value


def from_one(field: str, **values: float | None) -> None:
    """Refuses numbers below 0, and 0, which the contract has for "not given", where None says so here.

    Raises InvalidField.
    """
    for name, value in values.items():
        if value is not None and (not value or (isinstance(value, (int, float)) and value < 0)):
            raise InvalidField(
                f"{name} is {value or 0}: it begins above 0",
                code="INVALID_FIELD",
                field=f"{field}{name}",
                action="leave it out for the default",
            )


def known_names(given: Iterable[str], names: Collection[str], where: str, hint: str = "") -> None:
    """Raises TypeError for a name that is not one of `names`, with the one that may be meant."""
    for name in given:
        if name not in names:
            from difflib import get_close_matches  # only for errors

            close = get_close_matches(name, names, 1)
            meant = f": did you mean {close[0]}?" if close else f"; it has {', '.join(sorted(names))}"
            raise TypeError(f"{where} has no option {name!r}{meant}{hint}")
