"""The file: names with their settings, by kind. All that is wrong with it is told at once, with its place.

topics:     NAME: the settings of popmq.Topic
groups:     NAME: the settings of popmq.Group, and `filters` by topic
schedules:  NAME: cron, topic, message, tz, missed, paused
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import IO, Any, NamedTuple

import click
import yaml

import popmq
from popmq_cli.applying.bounds import SIZES, fault_of_name, fault_of_value
from popmq_cli.readers.group import start_of
from popmq_cli.shared import rows
from popmq_cli.shared.asking import DURATION, SIZE

#: Fields that the broker sets, or that the name of an entry says.
_NOT_SET = {"name", "created_ms"}
_FILTER = ("tag", "sql")
_OF_MESSAGE = {"properties": dict, "more_keys": list}
_SCHEDULE = {"cron": str, "topic": str, "tz": str, "missed": str, "paused": bool, "message": dict}

Settings = dict[str, Any]


class Wanted(NamedTuple):
    """What the file has, by name; each entry only the settings that it names."""

    topics: dict[str, Settings]
    groups: dict[str, Settings]
    schedules: dict[str, Settings]
    #: The kinds that the file has, also those that are empty.
    kinds: frozenset[str]


class _Loader(yaml.SafeLoader):
    """YAML without tags. A name that comes twice is an error: YAML would drop the first one."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    names: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a mapping or a list is no name", key.start_mark)
        if key.value in names:
            raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
        names.add(str(key.value))
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(source: IO[bytes]) -> Wanted:
    """Reads a file. Raises UsageError with everything that is wrong."""
    try:
        content = yaml.load(source, _Loader) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise click.UsageError(f"the file is not YAML: {error}") from None
    faults: list[str] = []
    kinds = _entries(content, "", tuple(_READERS), faults)
    found = Wanted({}, {}, {}, frozenset(kind for kind, _ in kinds))
    for kind, entries in kinds:
        if entries is None:
            faults.append(f"{kind} has no value: write {{}} for none")
        for name, given in _entries(entries, kind, None, faults):
            if wrong := fault_of_name(kind, name):
                faults.append(f"{kind}.{name}: {wrong}")
            settings = _READERS[kind]({} if given is None else given, f"{kind}.{name}", faults)
            getattr(found, kind)[name] = settings
    if faults:
        raise click.UsageError("\n".join(faults))
    return found


def _entries(content: Any, place: str, known: Sequence[str] | None, faults: list[str]) -> list[tuple[str, Any]]:
    """The names of a mapping with what they have; others than `known` are faults."""
    if content is None:
        return []
    if not isinstance(content, Mapping):
        faults.append(f"{place or 'the file'} is no mapping of names")
        return []
    found = []
    for name, value in content.items():
        path = f"{place}.{name}".lstrip(".")
        if not isinstance(name, str):
            faults.append(f"{path} is no name: write it in quotes")
        elif known is not None and name not in known:
            faults.append(f"{path} is unknown: there are {', '.join(known)}")
        else:
            found.append((name, value))
    return found


def _fields(kind: type[Any], given: Any, place: str, faults: list[str], more: Sequence[str] = ()) -> Settings:
    """The settings of a dataclass that are given."""
    types = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind) if field.name not in _NOT_SET]
    found = {}
    for name, value in _entries(given, place, [*known, *more], faults):
        found[name] = value if name in more else _value(types[name], value, f"{place}.{name}", faults)
        values = found[name] if isinstance(found[name], tuple) else (found[name],)
        wrong = {fault_of_value(kind, name, each) for each in values if isinstance(each, int | float)} - {None}
        faults += [f"{place}.{name}: {value!r} is out of range: {each}" for each in wrong]
    return found


def parts_of(kind: Any) -> list[type[Any]]:
    """The dataclass that a setting is, or has: as its value, or in a list."""
    found = [each for each in (kind, *typing.get_args(kind)) if dataclasses.is_dataclass(each)]
    return typing.cast("list[type[Any]]", found)


def _value(kind: Any, given: Any, place: str, faults: list[str]) -> Any:
    """A value as the SDK has it: durations in seconds, sizes in bytes."""
    if nested := parts_of(kind):
        return _nested(nested[0], given, place, faults)
    if given is None:
        faults.append(f"{place} has no value")
        return given
    if kind in (int, float):
        return _number(kind, given, place, faults)
    if place.endswith(".start"):
        return _start(given, place, faults)
    if place.endswith(".backoff"):
        if given == []:
            faults.append(f"{place} is empty")
        return tuple(_number(float, each, place, faults) for each in (given if isinstance(given, list) else [given]))
    choices = typing.get_args(kind)
    if choices and given not in choices:
        faults.append(f"{place}: {given!r} is none of {', '.join(map(str, choices))}")
    elif not choices and not isinstance(given, kind):
        faults.append(f"{place}: {given!r} is not {'true or false' if kind is bool else 'a text'}")
    return given


def _nested(kind: type[Any], given: Any, place: str, faults: list[str]) -> Any:
    """Settings in a setting, or a list of them."""
    if place.endswith(".fair_keys") and given is False:
        return False  # turns them off
    if not isinstance(given, list):
        return _fields(kind, given, place, faults)
    parts = [_fields(kind, each, f"{place}[{number}]", faults) for number, each in enumerate(given)]
    faults += [f"{place}[{number}].key is missing" for number, part in enumerate(parts) if not part.get("key")]
    return [] if faults else tuple(kind(**part) for part in parts)


def _start(given: Any, place: str, faults: list[str]) -> Any:
    """Where a group begins: a word, or a time, which YAML reads as a date or a moment without a zone."""
    try:
        return start_of(given.isoformat() if isinstance(given, date) else str(given), place)
    except click.BadParameter as bad:
        faults.append(f"{place}: {given!r} is {bad.message}")
        return given


def _number(kind: type[Any], given: Any, place: str, faults: list[str]) -> Any:
    """A duration, which may be a number of seconds, or a whole number, which may be a size if it is of bytes."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        faults.append(f"{place}: {given!r} is not a number")
        return given
    if kind is int and not isinstance(given, int) and place.rpartition(".")[2] not in SIZES:
        faults.append(f"{place}: {given!r} is not a whole number")
        return given
    try:
        return (SIZE if kind is int else DURATION).convert(given, None, None)
    except click.BadParameter as bad:
        faults.append(f"{place}: {bad.message}")
        return None


def _topic(given: Any, place: str, faults: list[str]) -> Settings:
    return _fields(popmq.Topic, given, place, faults)


def _group(given: Any, place: str, faults: list[str]) -> Settings:
    found = _fields(popmq.Group, given, place, faults, more=("filters",))
    filters = {}
    for topic, wanted in _entries(found.pop("filters", None), f"{place}.filters", None, faults):
        path = f"{place}.filters.{topic}"
        words = {
            name: _value(str, value, f"{path}.{name}", faults)
            for name, value in _entries(wanted, path, _FILTER, faults)
        }
        if len(words) != 1:
            faults.append(f"{path} needs one of {', '.join(_FILTER)}")
        filters[topic] = words
    return {**found, "filters": filters}


def _schedule(given: Any, place: str, faults: list[str]) -> Settings:
    found = dict(_entries(given, place, tuple(_SCHEDULE), faults))
    wrong = [name for name, value in found.items() if not isinstance(value, _SCHEDULE[name])]
    faults += [f"{place}.{name}: {found[name]!r} is not what it has to be" for name in wrong]
    faults += [f"{place}.{name} is missing" for name in ("cron", "topic", "message") if not found.get(name)]
    if "message" not in wrong:
        found["message"] = _message(dict(found.get("message") or {}), f"{place}.message", faults)
    if isinstance(missed := found.get("missed"), str):
        found["missed"] = missed.lower()  # as the broker says it
    if found.get("tz") == "":
        faults.append(f"{place}.tz is empty: write UTC, or leave it out")
    return found


def _message(row: Settings, place: str, faults: list[str]) -> popmq.Message | None:
    """The message of a schedule; None if there is a fault."""
    if "ttl" in row:
        row["ttl"] = _number(float, row["ttl"], f"{place}.ttl", faults)
    for name, kind in _OF_MESSAGE.items():
        if not isinstance(row.setdefault(name, kind()), kind):
            faults.append(f"{place}.{name}: {row.pop(name)!r} is not what it has to be")
    try:
        return rows.message_of(rows.from_json(row))
    except (ValueError, TypeError, rows.BadRow) as bad:
        faults.append(f"{place}: {bad}")
        return None


_READERS: dict[str, Callable[[Any, str, list[str]], Settings]] = {
    "topics": _topic,
    "groups": _group,
    "schedules": _schedule,
}
