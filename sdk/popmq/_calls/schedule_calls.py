"""Requests about schedules, as pure functions."""

from collections.abc import Iterable
from typing import Any, cast
from zoneinfo import ZoneInfo

from popmq._calls.admin_calls import enum_of
from popmq._calls.deliveries import encoding_name
from popmq._calls.message_rows import message_rows
from popmq._given.checking import built
from popmq._transport.call import Call, Pages
from popmq.errors import ScheduleNotFound
from popmq.message import Body, Message, TraceContext
from popmq.schedule import Missed, Schedule
from popmq_proto.v1 import popmq_pb2 as pb


def create_schedule(
    name: str, cron: str, topic: str, message: Message | Body, tz: str | ZoneInfo, missed: Missed
) -> Call[Schedule]:
    """Creates a schedule; succeeds when it exists with the same settings. Raises InvalidField, TypeError."""
    (row,) = message_rows([message], str)
    row.ClearField("born_ms")  # of the occurrence, not of the schedule: a repeat of this call has the same settings
    schedule = built(
        pb.Schedule,
        "schedule.",
        name=name,
        cron=cron,
        time_zone=tz.key if isinstance(tz, ZoneInfo) else tz,
        topic=topic,
        message=row,
        missed=enum_of(pb.Missed, missed, "schedule.missed"),
    )
    return Call("Admin.CreateSchedule", pb.CreateScheduleRequest(schedule=schedule), _read_its_schedule)


def get_schedule(name: str, upcoming: int) -> Call[Schedule]:
    """One schedule with its next occurrences."""
    return Call(
        "Admin.GetSchedule",
        pb.GetScheduleRequest(name=name, upcoming=upcoming),
        lambda reply, _: _read(reply.schedule, reply.upcoming_ms),
    )


def list_schedules() -> Call[list[Schedule]]:
    """All schedules."""
    return Call(
        "Admin.ListSchedules",
        pb.ListSchedulesRequest(),
        lambda reply, _: [_read(row) for row in reply.schedules],
        pages=Pages("schedules"),
    )


def delete_schedule(name: str) -> Call[None]:
    """Removes a schedule; what it has sent stays."""
    request = pb.DeleteScheduleRequest(name=name)
    return Call("Admin.DeleteSchedule", request, lambda _reply, _retried: None, done=(ScheduleNotFound,))


def pause_schedule(name: str) -> Call[Schedule]:
    """Leaves its occurrences out."""
    return Call("Admin.PauseSchedule", pb.PauseScheduleRequest(name=name), _read_its_schedule)


def resume_schedule(name: str) -> Call[Schedule]:
    """Goes on with the first occurrence after now."""
    return Call("Admin.ResumeSchedule", pb.ResumeScheduleRequest(name=name), _read_its_schedule)


def run_schedule(name: str) -> Call[str]:
    """Sends its message now; reads the message id. The request has no number that would make a repeat safe."""
    request = pb.RunScheduleRequest(name=name)
    return Call("Admin.RunSchedule", request, lambda reply, _: str(reply.message_id), once=True)


def _read_its_schedule(reply: Any, _retried: bool) -> Schedule:
    return _read(reply.schedule)


def _read(row: pb.Schedule, upcoming_ms: Iterable[int] = ()) -> Schedule:
    return Schedule(
        name=row.name,
        cron=row.cron,
        topic=row.topic,
        message=_message(row.message),
        tz=row.time_zone,
        missed=cast(Missed, pb.Missed.Name(row.missed).lower()),
        paused=row.paused,
        created_ms=row.created_ms,
        next_ms=row.next_ms,
        last_ms=row.last_ms,
        sent=row.sent,
        skipped=row.skipped,
        failed=row.failed,
        error=row.error,
        upcoming_ms=tuple(upcoming_ms),
    )


def _message(row: pb.Message) -> Message:
    """The message that is sent, as it was given."""
    key, *more = row.keys or [""]
    trace = row.trace_context
    return Message(
        row.body,
        key=key,
        tag=row.tag,
        properties=dict(row.properties),
        more_keys=tuple(more),
        message_group=row.message_group,
        priority=row.priority,
        encoding=encoding_name(row.encoding),
        trace_context=TraceContext(trace.traceparent, trace.tracestate) if row.HasField("trace_context") else None,
        lite_topic=row.lite_topic,
        ttl=row.ttl_ms / 1000,
    )
