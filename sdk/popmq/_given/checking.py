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
#: The numbers that a field can carry; which of them it may have, the broker says.
_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
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
            if _is_map(kind, name):  # pairs, of which protobuf names none
                return TypeError(f"{where}{name} is {value!r:.80}: give {_wanted(kind, name)}")
            bounds = _BOUNDS.get(kind.DESCRIPTOR.fields_by_name[name].cpp_type)
            why = f"give {_wanted(kind, name)} from {bounds[0]} to {bounds[1]}" if bounds else str(refused)
            return ValueError(f"{where}{name} is {value!r:.80}: {why}")
    return error


def _wanted(kind: Any, name: str) -> str:
    field = kind.DESCRIPTOR.fields_by_name[name]
    if _is_map(kind, name):
        types = [_WANTED.get(each.cpp_type, "an int").split()[1] for each in field.message_type.fields]
        return "a dict of {} to {}".format(*types)
    one = _WANTED.get(field.cpp_type, "an int")
    return f"a list, each {one}" if field.is_repeated else one


def _is_map(kind: Any, name: str) -> bool:
    made = kind.DESCRIPTOR.fields_by_name[name].message_type
    return made is not None and bool(made.GetOptions().map_entry)


def listed_texts(values: Sequence[str], field: str) -> Sequence[str]:
    """`values`. Raises TypeError for one text, which would be read as a list of its characters, and for no list."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{field} is {values!r:.80}: give a list of texts, such as [{values!r:.80}]")
    return values


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
