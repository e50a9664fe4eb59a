"""Groups: the list, one of them with its numbers in each topic, and the operator's actions.

The numbers of a group are those of its topics, summed where that means something; dead letters are the group's own,
since it has one dead-letter topic for all topics.
"""

from typing import Any, cast

import popmq
from popmq.topic import Place, Start
from popmq_console import charts
from popmq_console.asking import Ask, Outcome, moment_of, wrong
from popmq_console.numbers import backlog, by_group, greatest, total
from popmq_console.pages import fair_keys
from popmq_console.sorting import Columns, ordered
from popmq_console.views import address, paged

TOPICS: Columns[popmq.GroupStats] = {
    "Topic": lambda row: row.topic,
    "Mode": lambda row: row.mode,
    "Filter": None,
    "Ready#": lambda row: row.ready,
    "In flight#": lambda row: row.in_flight,
    "Retry#": lambda row: row.retry,
    "Backoff#": lambda row: row.backoff,
    "Waiting#": lambda row: row.waiting,
    "Oldest#": lambda row: row.oldest_age,
    "Popped/s#": lambda row: row.popped_per_s,
    "Acked/s#": lambda row: row.acked_per_s,
    "Acked#": lambda row: row.acked,
}


async def groups(ask: Ask) -> dict[str, Any]:
    """The list, filtered by a part of the name, by name or by a number."""
    part = ask.value("q")
    settings = [one for one in await ask.client.groups.list() if part.lower() in one.name.lower()]
    rows = by_group((await ask.login.numbers.stats()).groups)
    totals = {one.name: sums(rows.get(one.name, [])) for one in settings}
    columns: Columns[popmq.Group] = {
        "Group": lambda one: one.name,
        "Backlog#": lambda one: totals[one.name]["backlog"],
        "In flight#": lambda one: totals[one.name]["in_flight"],
        "Oldest#": lambda one: totals[one.name]["oldest"],
        "Acked/s#": lambda one: totals[one.name]["acked_per_s"],
        "Dead#": lambda one: totals[one.name]["dead"],
        "Topics#": lambda one: totals[one.name]["topics"],
        "Sessions#": lambda one: totals[one.name]["sessions"],
    }
    order = ordered(settings, columns, ask.value("sort"))
    return {"rows": paged(order.items, ask.value("page")), "order": order, "sums": totals, "q": part}


def sums(rows: list[popmq.GroupStats]) -> dict[str, float | None]:
    """The numbers of a group over its topics."""
    return {
        "topics": len(rows),
        "backlog": sum(map(backlog, rows)),
        "in_flight": total(row.in_flight for row in rows),
        "dead": max((row.dead for row in rows), default=0),
        "oldest": greatest(row.oldest_age for row in rows),
        "acked_per_s": sum(row.acked_per_s for row in rows),
        "sessions": total(row.sessions for row in rows),
    }


async def group(ask: Ask) -> dict[str, Any]:
    """One group. Raises GroupNotFound."""
    name = ask.value("name")
    settings = await ask.client.groups.get(name)
    stats = await ask.client.broker.stats(group=name)
    order = ordered(stats.groups, TOPICS, ask.value("sort"))
    return {
        "group": settings,
        "order": order,
        "rows": [(row, backlog(row)) for row in order.items],
        "subscriptions": {one.topic: one for one in await ask.client.groups.subscriptions(name)},
        "dead": max((row.dead for row in stats.groups), default=0),
        "fair": fair_keys.shown(settings.fair_keys),
        "waiting_keys": [(row.topic, one) for row in stats.groups for one in row.busiest_keys],
        **await charts.drawn(ask, charts.of_group, group=name),
    }


def page_of(name: str) -> str:
    """The address of a group's page."""
    return address("/group", name=name)


async def create(ask: Ask) -> Outcome:
    """Makes a group. Raises AlreadyExists, InvalidField."""
    start = ask.given("start")
    if start not in ("earliest", "latest"):
        raise wrong("start", f"a group starts earliest or latest, not {start!r}")
    group = await ask.client.groups.create(
        ask.given("name"),
        max_attempts=ask.number("max_attempts", 1) or 17,
        invisible=ask.given("invisible") or "60s",
        start=cast(Start, start),
        stop_on_failure=bool(ask.given("stop_on_failure")),
    )
    return Outcome(f"The group {group.name} is there.", page_of(group.name))


async def change(ask: Ask) -> Outcome:
    """Changes the settings of a group. Raises InvalidField, GroupNotFound."""
    name = ask.given("name")
    backoff = ask.given("backoff").replace(",", " ").split()
    await ask.client.groups.update(
        name,
        max_attempts=ask.number("max_attempts", 1),
        backoff=backoff or None,
        invisible=ask.given("invisible") or None,
        in_flight_max=ask.number("in_flight_max", 1),
        results_keep=ask.given("results_keep") or None,
        stop_on_failure=bool(ask.given("stop_on_failure")),
    )
    return Outcome(f"The settings of {name} are changed.", page_of(name))


async def pause(ask: Ask) -> Outcome:
    """Stops the group's pops and pulls, or lets them go on. Raises GroupNotFound."""
    name, paused = ask.given("name"), ask.given("paused") == "yes"
    await ask.client.groups.update(name, consume_enable=not paused)
    return Outcome(f"{name} is {'paused: it gets no messages' if paused else 'reading again'}.", page_of(name))


async def delete(ask: Ask) -> Outcome:
    """Removes the group, once its name is typed. Raises InvalidField, GroupNotFound."""
    name = ask.given("name")
    ask.confirm(name)
    await ask.client.groups.delete(name)
    return Outcome(f"The group {name} is deleted.", "/groups")


async def reset(ask: Ask) -> Outcome:
    """Moves a group in a topic, once its name is typed. Raises InvalidField, TopicNotFound, GroupNotFound."""
    name, topic, to = ask.given("name"), ask.given("topic"), ask.given("to")
    ask.confirm(name)
    start = _start(to, ask.given("at"))
    await ask.client.offsets.reset(topic, name, start)
    return Outcome(f"{name} reads {topic} from {start} on.", page_of(name))


def _start(to: str, at: str) -> Place:
    """A position of the form. Raises InvalidField."""
    return cast(Place, to) if to in ("earliest", "latest") else moment_of(at)


async def filter(ask: Ask) -> Outcome:
    """Replaces the filter of a group in a topic. Raises InvalidFilter, InvalidField, TopicNotFound, GroupNotFound."""
    name, topic = ask.given("name"), ask.given("topic")
    await ask.client.groups.set_filter(topic, name, tag=ask.given("tag") or None, sql=ask.given("sql") or None)
    return Outcome(f"{name} has another filter in {topic}.", page_of(name))
