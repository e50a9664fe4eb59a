"""Schedules: the list, one of them with its next occurrences, and the operator's actions.

A schedule cannot be changed: it is deleted and created again, as on the command line.
"""

from datetime import UTC, datetime, tzinfo
from typing import Any, cast, get_args
from zoneinfo import ZoneInfo

from popmq.schedule import Missed, Schedule
from popmq_console.asking import Ask, Outcome, wrong
from popmq_console.sorting import Columns, ordered
from popmq_console.views import address, paged

#: Next occurrences that the page of a schedule shows.
UPCOMING = 10


SCHEDULES: Columns[Schedule] = {
    "Schedule": lambda one: one.name,
    "Topic": lambda one: one.topic,
    "Cron": lambda one: one.cron,
    "Zone": lambda one: one.tz,
    "Next": lambda one: one.next_ms,
    "Last": lambda one: one.last_ms,
    "Sent#": lambda one: one.sent,
    "Skipped#": lambda one: one.skipped,
    "Failed#": lambda one: one.failed,
}


async def schedules(ask: Ask) -> dict[str, Any]:
    """The list, by name, filtered by a part of the name or of the topic; needs the right admin."""
    part = ask.value("q").lower()
    listed = [one for one in await ask.client.schedules.list() if part in one.name.lower() or part in one.topic.lower()]
    order = ordered(listed, SCHEDULES, ask.value("sort"))
    rows = paged(order.items, ask.value("page"))
    return {"rows": rows, "order": order, "q": ask.value("q"), "missed": get_args(Missed)}


async def schedule(ask: Ask) -> dict[str, Any]:
    """One schedule. Raises ScheduleNotFound."""
    found = await ask.client.schedules.get(ask.value("name"), UPCOMING)
    return {"schedule": found, "upcoming": occurrences(found)}


def occurrences(schedule: Schedule) -> list[tuple[int, str]]:
    """(ms, local time with its zone) of each next occurrence. Where the zone is not known here the time is in UTC."""
    try:
        zone: tzinfo = ZoneInfo(schedule.tz)
    except (ValueError, OSError):
        zone = UTC
    return [(ms, f"{datetime.fromtimestamp(ms / 1000, zone):%a %Y-%m-%d %H:%M %Z}") for ms in schedule.upcoming_ms]


def page_of(name: str) -> str:
    """The address of a schedule's page."""
    return address("/schedule", name=name)


async def create(ask: Ask) -> Outcome:
    """Makes a schedule. Raises AlreadyExists, TopicNotFound, InvalidField."""
    missed = ask.given("missed") or "once"
    if missed not in get_args(Missed):
        raise wrong("missed", f"{missed!r} is not one of {', '.join(get_args(Missed))}")
    schedule = await ask.client.schedules.create(
        ask.given("name"),
        ask.given("cron"),
        ask.given("topic"),
        ask.given("body"),
        tz=ask.given("tz") or "UTC",
        missed=cast(Missed, missed),
    )
    return Outcome(f"The schedule {schedule.name} sends to {schedule.topic}.", page_of(schedule.name))


async def pause(ask: Ask) -> Outcome:
    """Leaves occurrences out, or goes on with the first one after now. Raises ScheduleNotFound."""
    name = ask.given("name")
    if ask.given("paused") == "yes":
        await ask.client.schedules.pause(name)
        return Outcome(f"{name} is paused: its occurrences are left out.", page_of(name))
    await ask.client.schedules.resume(name)
    return Outcome(f"{name} goes on.", page_of(name))


async def run(ask: Ask) -> Outcome:
    """Sends the message of a schedule now, beside its occurrences. Raises ScheduleNotFound, and what a send raises."""
    name = ask.given("name")
    message_id = await ask.client.schedules.run(name)
    return Outcome(f"Sent as {message_id}.", page_of(name))


async def delete(ask: Ask) -> Outcome:
    """Removes the schedule, once the name is typed; what it has sent stays. Raises InvalidField, ScheduleNotFound."""
    name = ask.given("name")
    ask.confirm(name)
    await ask.client.schedules.delete(name)
    return Outcome(f"The schedule {name} is deleted.", "/schedules")
