"""`popmq check` of schedules.

cron → cronmsg    a schedule has its message, which matches its checksum; each message has its schedule
next_ms           is an occurrence of the expression; a paused schedule has none
"""

from collections.abc import Iterator

from popmq_server.embedded.rules.schedules import cron, schedules
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.records import Schedule

MISSED = ("SKIP", "ONCE", "ALL")


def check(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant of schedules."""
    messages = {bytes(key).decode(errors="replace"): bytes(value) for key, value in kv.scan("cronmsg")}
    for name, schedule in state.schedules.items():
        raw = messages.pop(name, None)
        if raw is None:
            yield f"schedule {name!r} has no message"
        elif schedules.opened(raw) is None:
            yield f"the message of schedule {name!r} does not match its checksum"
        yield from _check_settings(name, schedule)
    yield from (f"the message of schedule {name!r} has no schedule" for name in messages)


def _check_settings(name: str, schedule: Schedule) -> Iterator[str]:
    if schedule.name != name:
        yield f"schedule {name!r} calls itself {schedule.name!r}"
    if schedule.missed not in MISSED:
        yield f"schedule {name!r} has the unknown policy {schedule.missed!r}"
    if schedule.paused and schedule.next_ms:
        yield f"schedule {name!r} is paused, and has a next occurrence"
    try:
        found = cron.following(schedule.cron, schedule.zone, schedule.next_ms - 1) if schedule.next_ms else 0
    except cron.CronError as error:
        yield f"schedule {name!r} cannot be read: {error}"
        return
    if found != schedule.next_ms:
        yield f"schedule {name!r}: {schedule.next_ms} is not an occurrence of {schedule.cron!r}"
