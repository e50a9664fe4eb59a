"""Schedules: the broker sends a message at each time of a cron expression, exactly once.

    cron      name → settings, next_ms, counts        cronmsg   name → crc32, the message

    next_ms ≤ wall clock ──▶ the message is appended to its topic ┐ one commit: after a kill both have happened, or
                             next_ms = the occurrence after it    ┘ neither (occurrences.py)

Occurrences are wall time in the schedule's zone. Each message has its own id, `name@2026-01-31T08:00:00Z`, and two
properties: the schedule's name and its time. A schedule names its topic: if that is deleted its occurrences fail, until
a topic of this name exists again. Rows are few (SCHEDULES_MAX), so memory has their settings; messages stay in the
store.

See docs/decisions/0046-schedules.md.
"""

import zlib
from datetime import UTC, datetime

from popmq_server.contract.commands import (
    CreatedSchedule,
    CreateSchedule,
    DeleteSchedule,
    NewMessage,
    PauseSchedule,
    RunSchedule,
    queries,
)
from popmq_server.contract.commands.numbers import Rows, ScheduleRow
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.lite.lite_send import LitePlacing
from popmq_server.embedded.rules.retention.by_size import with_room
from popmq_server.embedded.rules.schedules import cron
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.sending.send import expect_topic
from popmq_server.embedded.rules.topics.topic import demand, expect
from popmq_server.embedded.state.space import GROW, messages_bytes, value_bytes
from popmq_server.embedded.state.state import first_occurrence
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U32
from popmq_server.errors import (
    Refused,
    invalid,
    schedule_not_found,
)
from popmq_server.values import permission, topic_types
from popmq_server.values.fields import MESSAGE_ID, TTL_MS, integer, without
from popmq_server.values.message import Extra, length_prefixed
from popmq_server.values.outgoing import (
    Outgoing,
    name_hash,
    pack_message,
    tag_hash,
    unpack_message,
)
from popmq_server.values.records import Schedule

#: Maximum number of schedules. A change of one may examine all of them, which takes some milliseconds.
SCHEDULES_MAX = 10_000
#: Rows of one piece of a list.
ROWS_AT_ONCE = 200
#: Properties of a sent message: the schedule's name, and the time that it is for (RFC 3339, UTC).
NAME_PROPERTY, TIME_PROPERTY = "popmq_schedule", "popmq_scheduled_for"
#: Wire tags of Message.message_id, Message.properties, and of key and value of a map's entry.
_ID, _PROPERTIES, _KEY, _VALUE = b"\x0a", b"\x2a", b"\x0a", b"\x12"


def create(tx: Tx, command: CreateSchedule) -> CreatedSchedule:
    """Creates a schedule: (schedule, whether it existed). Refused if one with other settings exists."""
    if (existing := tx.state.schedules.get(command.name)) is not None:
        if differing := _differing(tx, existing, command):
            raise Refused(
                "ALREADY_EXISTS",
                f"schedule {command.name!r} exists with another {differing}",
                field="schedule.name",
                action=f"delete it first, or name another; what it has: popmq schedule show {command.name}",
            )
        return CreatedSchedule(existing, True)
    if sum(1 for _ in tx.state.schedules) >= SCHEDULES_MAX:
        raise invalid(
            f"the broker has {SCHEDULES_MAX:,} schedules, which is its maximum",
            field="schedule.name",
            action="delete one: popmq schedule delete NAME",
        )
    try:
        cron.check(command.cron, command.zone)
    except cron.ZoneError as error:
        raise invalid(str(error), field="time_zone", action="name one such as Europe/Berlin, or UTC") from None
    except cron.CronError as error:
        raise invalid(str(error), field="cron", action="give five fields such as 0 9 * * 1-5, or @daily") from None
    topic = expect_topic(tx, command.topic)
    if (refused := topic_types.refusal(topic, command.message.extra or Extra())) is not None:
        refused.field = f"schedule.message.{refused.field}"
        raise refused
    tx.room.demand(GROW, messages_bytes([value_bytes(len(command.message.data))]))
    extra = command.message.extra or Extra()
    schedule = Schedule(
        command.name, command.cron, command.zone, command.topic, command.missed, tx.wall_ms, extra.lite_topic
    )
    put(tx, found_next(tx, schedule))
    body = pack_message(_hashed(command.message))
    tx.kv.put("cronmsg", command.name.encode(), U32.pack(zlib.crc32(body)) + body)
    return CreatedSchedule(tx.state.schedules[command.name], False)


def _hashed(message: NewMessage) -> Outgoing:
    names = (message.message_id, *message.keys)
    return Outgoing(
        message.data, tag_hash(message.tag), tuple(map(name_hash, names)), message.message_id, message.extra
    )


def _differing(tx: Tx, existing: Schedule, wanted: CreateSchedule) -> str:
    """The settings in which a creation differs from the existing schedule, as a text; "" if there are none."""
    names = [name for name in ("cron", "zone", "topic", "missed") if getattr(existing, name) != getattr(wanted, name)]
    kept = read(tx, existing.name)
    if kept is None or pack_message(kept) != pack_message(_hashed(wanted.message)):
        names.append("message")
    return ", ".join(names)


def delete(tx: Tx, command: DeleteSchedule) -> None:
    """Removes a schedule; its sent messages stay."""
    schedule = named(tx, command.name)
    tx.kv.delete("cronmsg", command.name.encode())
    tx.state.schedules.pop(command.name)
    _look_again(tx, schedule.next_ms)


def pause(tx: Tx, command: PauseSchedule) -> Schedule:
    """Pauses or resumes. A resumed schedule goes on with the first occurrence after now."""
    schedule = named(tx, command.name)
    if schedule.paused != command.paused:
        schedule = schedule._replace(paused=command.paused)
        put(tx, found_next(tx, schedule))
    return tx.state.schedules[command.name]


def run(tx: Tx, command: RunSchedule) -> str:
    """Sends the message now; returns its id. Raises Refused."""
    schedule = named(tx, command.name)
    message = message_at(tx, schedule, tx.wall_ms, f"+{schedule.sent}")
    send(tx, schedule, message)
    put(tx, schedule._replace(sent=schedule.sent + 1))
    return message.message_id


def listed(tx: Tx, query: queries.Schedules) -> Rows[ScheduleRow]:
    """Schedules by name, or one with its next occurrences."""
    if query.name:
        return Rows([_row(tx, named(tx, query.name), query.upcoming)])
    names = sorted(name for name in tx.state.schedules if name > query.after)
    most = min(query.rows_max or ROWS_AT_ONCE, ROWS_AT_ONCE)
    rows = [_row(tx, tx.state.schedules[name], query.upcoming) for name in names[:most]]
    return Rows(rows, names[most - 1] if len(names) > most else "")


def _row(tx: Tx, schedule: Schedule, upcoming: int) -> ScheduleRow:
    kept = read(tx, schedule.name)
    after_ms, times = schedule.next_ms, [schedule.next_ms] if schedule.next_ms and upcoming else []
    while 0 < len(times) < upcoming and (found := cron.following(schedule.cron, schedule.zone, after_ms)) is not None:
        times.append(found)
        after_ms = found
    return ScheduleRow(schedule, b"" if kept is None else kept.data, tuple(times))


def named(tx: Tx, name: str) -> Schedule:
    """The schedule of this name. Raises Refused."""
    schedule = tx.state.schedules.get(name)
    if schedule is None:
        raise schedule_not_found(name)
    if schedule.name != name:
        broken("schedule_has_its_name", ("cron", name.encode()), name=schedule.name)
    return schedule


def put(tx: Tx, schedule: Schedule) -> None:
    """Stores a changed or new schedule, and updates the earliest next occurrence of all schedules."""
    if schedule.paused and schedule.next_ms:
        broken("schedule_paused_has_no_time", name=schedule.name, next_ms=schedule.next_ms)
    before = tx.state.schedules.get(schedule.name)
    tx.state.schedules[schedule.name] = schedule
    first_ms = tx.state.schedule_due
    if schedule.next_ms and (not first_ms or schedule.next_ms <= first_ms):
        _set_due(tx, schedule.next_ms)
    elif before is not None:
        _look_again(tx, before.next_ms)


def store_next(tx: Tx, schedule: Schedule) -> None:
    """Stores a schedule whose next occurrence is later now, without the update of `put`. The caller calls `find_first`
    after the last one: it reads all schedules, and many are due at the same minute.
    """
    before = tx.state.schedules.get(schedule.name)
    if before is not None and 0 < schedule.next_ms < before.next_ms:
        broken("schedule_goes_on", name=schedule.name, next_ms=schedule.next_ms, before_ms=before.next_ms)
    if before is not None and schedule.sent < before.sent:
        broken("schedule_sends_counted", name=schedule.name, sent=schedule.sent, before=before.sent)
    tx.state.schedules[schedule.name] = schedule


def find_first(tx: Tx) -> None:
    """Finds the earliest next occurrence of all schedules."""
    _set_due(tx, first_occurrence(tx.state.schedules.values()))


def _look_again(tx: Tx, gone_ms: int) -> None:
    """Finds the earliest next occurrence of all schedules, after the one that had it has changed."""
    if gone_ms and gone_ms == tx.state.schedule_due:
        find_first(tx)


def _set_due(tx: Tx, due_ms: int) -> None:
    tx.state.undo.save(tx.state, "schedule_due")
    tx.state.schedule_due = due_ms


def found_next(tx: Tx, schedule: Schedule) -> Schedule:
    """The schedule with its first occurrence after now; none while it is paused."""
    at_ms = None if schedule.paused else cron.following(schedule.cron, schedule.zone, tx.wall_ms)
    return schedule._replace(next_ms=at_ms or 0, looked_ms=tx.wall_ms)


def read(tx: Tx, name: str) -> Outgoing | None:
    """The message of a schedule as it was given; None if its checksum does not match."""
    raw = tx.kv.get("cronmsg", name.encode())
    return None if raw is None else opened(bytes(raw))


def opened(raw: bytes) -> Outgoing | None:
    """Decodes a value of `cronmsg`; None if its checksum does not match."""
    if len(raw) < U32.size or zlib.crc32(raw[U32.size :]) != U32.unpack_from(raw)[0]:
        return None
    return unpack_message(raw[U32.size :])


def message_at(tx: Tx, schedule: Schedule, at_ms: int, suffix: str = "") -> Outgoing:
    """The message of one occurrence. Raises Refused if the stored one is damaged.

    Its properties are appended as fields: in protobuf that is the same message with these set. Its id takes the place
    of the schedule's name, which the stored message has: what keeps results reads only the first id.
    """
    kept = read(tx, schedule.name)
    if kept is None:
        raise Refused(
            "INTERNAL",
            f"the stored message of schedule {schedule.name!r} is damaged",
            action="delete the schedule, and create it again",
        )
    shown = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message_id = f"{schedule.name}@{shown}{suffix}"
    entries = [_entry(NAME_PROPERTY, schedule.name), _entry(TIME_PROPERTY, shown)]
    (id_field,) = (_ID + field for field in length_prefixed([message_id.encode()]))
    marks = [_PROPERTIES + field for field in length_prefixed(entries)]
    extra = kept.extra or Extra()
    extra = extra._replace(lite_topic=schedule.lite_topic, ttl_ms=integer(kept.data, TTL_MS))
    return kept._replace(
        data=b"".join((id_field, without(kept.data, MESSAGE_ID), *marks)),
        hashes=(name_hash(message_id), *kept.hashes[1:]),
        message_id=message_id,
        extra=extra if any(extra) else None,
    )


def _entry(name: str, value: str) -> bytes:
    key, text = length_prefixed([name.encode(), value.encode()])
    return _KEY + key + _VALUE + text


@with_room
def send(tx: Tx, schedule: Schedule, message: Outgoing) -> None:
    """Appends one message to the schedule's topic. Raises Refused; then nothing was sent."""
    topic = expect_topic(tx, schedule.topic)
    permission.check_send(topic)
    demand(tx, topic, (message,))
    kind = LitePlacing if topic.type == "LITE" else Placing
    (place,) = kind(tx, topic).place((message,))
    if isinstance(place, Refused):
        raise place
    expect(tx, topic, (message,))
