"""What is to be done so that a broker has what a file says: made without changing anything, then carried out in order.

Topics come first, then groups, then schedules, since these name the ones before; what goes, goes in the other order.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import click

import popmq
from popmq.duration import seconds_of
from popmq_cli.applying.checking import faults_of, refused
from popmq_cli.applying.reading import Settings, Wanted, parts_of
from popmq_cli.readers.group import place_text
from popmq_cli.shared import rows
from popmq_cli.shared.output import seconds
from popmq_cli.shared.signals import held

CREATED, CHANGED, DELETED = "+", "~", "-"
#: What a schedule in the file has, and how a broker says it.
_OF_SCHEDULE = ("cron", "topic", "tz", "missed")


class Change(NamedTuple):
    """One step. `what`: as "topic orders". `details`: its new settings, as "queues: 8 → 16".

    `trial` does the same to something else of a given name; `place`: where the file has it.
    """

    sign: str
    what: str
    details: list[str]
    do: Callable[[], Any]
    place: str = ""
    trial: Callable[[str], Any] | None = None


def plan(client: popmq.Client, wanted: Wanted, prune: bool) -> list[Change]:
    """The changes. `prune`: also deletes what the file lacks, of the kinds that it has.

    Raises UsageError with everything that the broker would refuse, as far as it can be known.
    """
    topics = {each.name: each for each in client.topics.list()}
    groups = {each.name: each for each in client.groups.list()}
    schedules = {each.name: each for each in client.schedules.list()} if "schedules" in wanted.kinds else {}
    changes = [
        *(each for name, settings in wanted.topics.items() for each in _topic(client, name, settings, topics)),
        *(each for name, settings in wanted.groups.items() for each in _group(client, name, settings, groups)),
        *(each for name, settings in wanted.schedules.items() for each in _schedule(client, name, settings, schedules)),
    ]
    faults = faults_of(wanted, topics, groups, prune)
    faults += [each for change in changes if change.trial is not None for each in refused(change.place, change.trial)]
    if faults:
        raise click.UsageError("\n".join(faults))
    if prune and "schedules" in wanted.kinds:
        changes += _deleted("schedule", schedules.keys() - wanted.schedules.keys(), client.schedules.delete)
    if prune and "groups" in wanted.kinds:
        changes += _deleted("group", groups.keys() - wanted.groups.keys(), client.groups.delete)
    if prune and "topics" in wanted.kinds:
        changes += _deleted("topic", topics.keys() - wanted.topics.keys(), client.topics.delete)
    return changes


def _deleted(kind: str, names: set[str], delete: Callable[[str], None]) -> list[Change]:
    return [Change(DELETED, f"{kind} {name}", [], functools.partial(delete, name)) for name in sorted(names)]


def _topic(client: popmq.Client, name: str, given: Settings, there: dict[str, popmq.Topic]) -> Iterator[Change]:
    before = there.get(name)
    if before is None:
        yield Change(
            CREATED,
            f"topic {name}",
            _shown(given),
            lambda: client.topics.create(name, **_made(popmq.Topic(name), given)),
        )
        return
    if differs := _differences(before, given):
        changed = {field: value for field, value in _made(before, given).items() if field != "type"}
        yield Change(CHANGED, f"topic {name}", differs, lambda: client.topics.update(name, **changed))


def _group(client: popmq.Client, name: str, given: Settings, there: dict[str, popmq.Group]) -> Iterator[Change]:
    settings = {field: value for field, value in given.items() if field != "filters"}
    before = there.get(name)
    if before is None:
        made = {field: value or None if field == "fair_keys" else value for field, value in settings.items()}
        made = _made(popmq.Group(name), made)
        yield Change(CREATED, f"group {name}", _shown(settings), lambda: client.groups.create(name, **made))
    elif differs := _differences(before, settings):
        changed = _made(before, settings)
        yield Change(CHANGED, f"group {name}", differs, lambda: client.groups.update(name, **changed))
    filters = {} if before is None else {each.topic: each for each in client.groups.subscriptions(name)}
    for topic, words in given.get("filters", {}).items():
        found = filters.get(topic, popmq.Subscription(topic))
        if (_tags(words.get("tag", "")), words.get("sql", "").strip()) != (_tags(found.tag), found.sql.strip()):
            told = f"{found.sql or found.tag or '*'} → {next(iter(words.values()))}"
            set_filter = functools.partial(client.groups.set_filter, topic, name, **words)
            place, what = f"groups.{name}.filters.{topic}", f"filter of group {name} in topic {topic}"
            trial = functools.partial(_try_filter, client, words)
            yield Change(CHANGED, what, [told], set_filter, place, trial)


def _try_filter(client: popmq.Client, words: dict[str, str], name: str) -> None:
    client.groups.set_filter(name, name, **words)


def _tags(text: str) -> frozenset[str] | None:
    """The tags of a filter, which a broker says in their order; None: messages with any tag, or without one."""
    return None if text.strip() in ("", "*") else frozenset(tag.strip() for tag in text.split("||")) - {""}


def _schedule(client: popmq.Client, name: str, given: Settings, there: dict[str, popmq.Schedule]) -> Iterator[Change]:
    before, paused = there.get(name), given.get("paused")
    made = {field: value for field, value in given.items() if field != "paused"}

    def trial(other: str) -> None:
        client.schedules.create(other, **{**made, "topic": other})

    place, what = f"schedules.{name}", f"schedule {name}"
    if before is None:
        create = functools.partial(_create_schedule, client, name, made, bool(paused))
        yield Change(CREATED, what, _shown(made), create, place, trial)
        return
    differs = [
        f"{field}: {getattr(before, field)} → {given[field]}"
        for field in _OF_SCHEDULE
        if given.get(field, getattr(before, field)) != getattr(before, field)
    ]
    if _content(before.message) != _content(given["message"]):
        differs.append("message")
    if differs:
        replace = functools.partial(
            _replace_schedule, client, before, made, before.paused if paused is None else paused
        )
        yield Change(CHANGED, what, differs, replace, place, trial)
    elif paused is not None and paused != before.paused:
        do = client.schedules.pause if paused else client.schedules.resume
        yield Change(CHANGED, what, [f"paused: {before.paused} → {paused}"], lambda: do(name))


def _content(message: popmq.Message) -> Settings:
    """What a schedule sends: a broker says the first key as `key`, and gives each message a time of its own."""
    fields = rows.fields_of(message)
    keys = [key for key in (fields.pop("key"), *fields.pop("more_keys")) if key]
    return fields | {"keys": keys, "born_ms": 0}


def _create_schedule(client: popmq.Client, name: str, made: Settings, paused: bool) -> None:
    client.schedules.create(name, **made)
    if paused:
        client.schedules.pause(name)


def _replace_schedule(client: popmq.Client, before: popmq.Schedule, made: Settings, paused: bool) -> None:
    """Puts the former one back if the new one is refused. Signals wait: in between there is none of them."""
    with held():
        client.schedules.delete(before.name)
        try:
            _create_schedule(client, before.name, made, paused)
        except popmq.PopMQError:
            former = {field: getattr(before, field) for field in (*_OF_SCHEDULE, "message")}
            _create_schedule(client, before.name, former, before.paused)
            raise


def _made(before: Any, given: Settings) -> Settings:
    """The settings with whole dataclasses in place of those of their fields that are given."""
    made = {}
    for name, value in given.items():
        if isinstance(value, dict):
            whole = getattr(before, name) or parts_of(typing.get_type_hints(type(before))[name])[0]()
            value = dataclasses.replace(whole, **value)
        made[name] = value
    return made


def _differences(before: Any, given: Settings) -> list[str]:
    """The given settings that differ, as "name: old → new"."""
    found = []
    for name, value in given.items():
        old = getattr(before, name) if before is not None else None
        value = value or None if name == "fair_keys" else value
        if isinstance(value, dict):
            found += [f"{name}.{each}" for each in _differences(old, value)]
        elif _plain(value) != _plain(old):
            found.append(f"{name}: {_text(old)} → {_text(value)}")
    return found


def _plain(value: Any) -> Any:
    """A value as it can be compared: a broker says times as numbers or moments, and lists as tuples."""
    if isinstance(value, datetime):
        return value.timestamp()
    return tuple(value) if isinstance(value, list | tuple) else value


def _shown(given: Settings) -> list[str]:
    """The settings of something new."""
    found = []
    for name, value in given.items():
        if isinstance(value, dict):
            found += [f"{name}.{each}" for each in _shown(value)]
        elif isinstance(value, popmq.Message):
            found.append(name)
        else:
            found.append(f"{name}: {_text(value)}")
    return found


def _text(value: Any) -> str:
    """A value as the file may have it. Numbers with a fraction are durations."""
    if isinstance(value, float):
        text = seconds(value).replace(" ", "")  # which is rounded, while what differs a little is a change, too
        return text if seconds_of(text) == value else f"{value!r}s"
    if isinstance(value, datetime):
        return place_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "–"
    return str(value)
