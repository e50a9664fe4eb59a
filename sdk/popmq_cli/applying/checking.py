"""What is wrong with a file that can be read, for this broker: all of it, before anything is changed.

Only the broker reads filters and cron expressions. So they are first tried with names that nothing has: it refuses what
it cannot read, and else says that the name is not found. Nothing is changed by either.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Callable, Iterator, Mapping

import popmq
from popmq_cli.applying.reading import Settings, Wanted

#: Names of topics that the broker makes, such as %DLQ%billing, begin so.
_BROKERS_OWN = "%"
#: How the SDK begins the name of a field of a message.
_PLACE = re.compile(r"^messages\[0\]\.")


def faults_of(
    wanted: Wanted,
    topics: Mapping[str, popmq.Topic],
    groups: Mapping[str, popmq.Group],
    prune: bool,
) -> list[str]:
    """A line for each fault, with its place. `topics` and `groups`: those that exist."""
    kept = {} if prune and "topics" in wanted.kinds else topics
    return [
        *(each for name, given in wanted.topics.items() for each in _of_topic(name, given, topics.get(name))),
        *(each for name, given in wanted.groups.items() for each in _of_group(name, given, groups.get(name))),
        *(
            f"{place}: there is no topic {topic}, and the file makes none"
            for place, topic in _named(wanted)
            if topic not in kept and topic not in wanted.topics and not topic.startswith(_BROKERS_OWN)
        ),
    ]


def _named(wanted: Wanted) -> Iterator[tuple[str, str]]:
    """The topics that groups and schedules name, with the place where they do."""
    for name, given in wanted.groups.items():
        yield from ((f"groups.{name}.filters.{topic}", topic) for topic in given["filters"])
    yield from ((f"schedules.{name}.topic", given["topic"]) for name, given in wanted.schedules.items())


def _of_topic(name: str, given: Settings, before: popmq.Topic | None) -> Iterator[str]:
    kind = given.get("type", before.type if before else "NORMAL")
    queues = given.get("queues")
    if before and kind != before.type:
        yield f"topics.{name}.type: topic {name} is {before.type}, and a type never changes"
    elif before and queues is not None and queues < before.queues:
        yield f"topics.{name}.queues: topic {name} has {before.queues}, and queues are only added"
    elif before and kind == "FIFO" and queues not in (None, before.queues):
        yield f"topics.{name}.queues: topic {name} is FIFO, and keeps its {before.queues} queues"
    elif kind == "LITE" and queues not in (None, 1):
        yield f"topics.{name}.queues: a LITE topic has one queue"
    if kind != "LITE" and "lite" in given:
        yield f"topics.{name}.lite: a {kind} topic has no lite topics"


def _of_group(name: str, given: Settings, before: popmq.Group | None) -> Iterator[str]:
    if given.get("fair_keys"):
        whole = dataclasses.replace((before and before.fair_keys) or popmq.FairKeys(), **given["fair_keys"])
        if bool(whole.property) == whole.message_key:
            yield f"groups.{name}.fair_keys needs one of property, message_key"
        if len({each.key for each in whole.exceptions}) < len(whole.exceptions):
            yield f"groups.{name}.fair_keys.exceptions: a key is there twice"


def refused(place: str, trial: Callable[[str], object]) -> Iterator[str]:
    """Why the broker cannot read a change, if so. `trial` tries it with a name."""
    try:
        trial(f"popmq-apply-{secrets.token_hex(12)}")
    except (popmq.errors.NotFound, popmq.errors.PermissionDenied):
        pass
    except popmq.errors.BadRequest as bad:
        field = bad.field.removeprefix("schedule.").replace("time_zone", "tz") if place.startswith("schedules.") else ""
        yield f"{place}{'.' if field else ''}{field}: {bad.message}"
    except (TypeError, ValueError) as wrong:  # of the SDK: a field of a schedule's message
        yield f"{place}.message: {_PLACE.sub('', str(wrong))}"
