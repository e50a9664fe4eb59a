"""OPTIONS of a backend in TASKS, and what the check framework says about them. Nothing here asks a broker."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.core import checks
from django.db import connections

import popmq
from popmq.duration import Duration, seconds_of

#: Options of a client. They reach popmq.Client and popmq.AsyncClient as they are.
CONNECTION = ("endpoint", "access_key", "secret", "tls", "tls_ca", "client_cert", "client_key")
#: What an outbox can ask. Another database sends after its commit.
VENDORS = ("mysql", "postgresql", "sqlite")
#: A name of a topic, or of a part of one.
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
NAME_MAX, GROUP_NAME_MAX = 127, 120
#: Seconds for which a group keeps results.
KEEP_S = (60.0, 10 * 365 * 86_400.0)


@dataclass(frozen=True, slots=True)
class Options:
    """What OPTIONS may have beside the connection."""

    topic_prefix: str = "django-"  # a queue is the topic of this and its name
    group: str = "django"  # the group of the workers
    results_keep: Duration = "72h"  # how long results are kept, 1 min – 10 years
    max_attempts: int = 1  # how often a task that raises is run; a killed worker does not count as raising
    database: str = "default"  # the alias of the database whose transactions decide


NAMES = (*CONNECTION, *(each.name for each in fields(Options)))


def read(given: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """(options of a client, the others). Names that nobody knows are left to the checks."""
    ours = {each.name: given[each.name] for each in fields(Options) if each.name in given}
    return {name: given[name] for name in CONNECTION if name in given}, Options(**ours)


def decides(database: Any) -> bool:
    """Whether an outbox can ask this database of Django how its transactions ended."""
    in_memory = database.vendor == "sqlite" and database.is_in_memory_db()
    return database.vendor in VENDORS and not in_memory


def checked(alias: str, given: Mapping[str, Any], queues: Iterable[str]) -> Iterator[checks.CheckMessage]:
    """What is wrong in TASKS[alias]."""
    place = f"TASKS[{alias!r}]"
    for name in sorted(set(given) - set(NAMES)):
        near = difflib.get_close_matches(str(name), NAMES, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Those that there are: {', '.join(NAMES)}."
        yield checks.Error(f"{place} has an unknown option {name!r}.", hint=hint, id="popmq.E001")
    connection, options = read(given)
    if not given.get("endpoint") and not os.environ.get("POPMQ_ENDPOINT"):
        hint = f"Set {place}['OPTIONS']['endpoint'] to host:port, or POPMQ_ENDPOINT in the environment."
        yield checks.Error(f"{place} has no endpoint of a broker.", hint=hint, id="popmq.E002")
    else:
        try:
            popmq.Client(**connection).close()
        except (popmq.PopMQError, TypeError, ValueError, OSError) as error:
            yield checks.Error(f"{place} cannot make a client: {error}", id="popmq.E003")
    yield from _values(place, options)
    for queue in sorted(queues):
        topic = f"{options.topic_prefix}{queue}"
        if not (_NAME.fullmatch(topic) and len(topic) <= NAME_MAX):
            hint = f"A topic has up to {NAME_MAX} letters, digits, '_', '-' and '.'."
            yield checks.Error(f"{place}: the queue {queue!r} is no topic, {topic!r:.140}.", hint=hint, id="popmq.E005")


def _values(place: str, options: Options) -> Iterator[checks.CheckMessage]:
    if not isinstance(options.max_attempts, int) or options.max_attempts < 1:
        yield checks.Error(f"{place}: max_attempts is {options.max_attempts!r}, no number from 1 on.", id="popmq.E004")
    try:
        if not KEEP_S[0] <= seconds_of(options.results_keep, "results_keep") <= KEEP_S[1]:
            raise ValueError(f"{options.results_keep!r} is not between 1 minute and 10 years")
    except (popmq.PopMQError, TypeError, ValueError) as error:
        yield checks.Error(f"{place}: results_keep: {error}.", id="popmq.E004")
    for name, most in (("group", GROUP_NAME_MAX), ("topic_prefix", NAME_MAX)):
        text = getattr(options, name)
        is_name = isinstance(text, str) and _NAME.fullmatch(text) and len(text) <= most
        if not is_name and not (name == "topic_prefix" and text == ""):
            hint = f"It has up to {most} letters, digits, '_', '-' and '.'."
            yield checks.Error(f"{place}: {name} is {text!r:.140}.", hint=hint, id="popmq.E004")
    if options.database not in connections:
        known = ", ".join(map(repr, connections))
        yield checks.Error(
            f"{place}: database is {options.database!r}.", hint=f"DATABASES has {known}.", id="popmq.E006"
        )
    elif not decides(connections[options.database]):
        vendor = connections[options.database].vendor
        yield checks.Warning(
            f"{place}: an outbox cannot ask the database {options.database!r} ({vendor}), so tasks of a transaction "
            "are sent after its commit.",
            hint="A process killed between the two loses them. PostgreSQL, MySQL and SQLite in a file can be asked.",
            id="popmq.W001",
        )
