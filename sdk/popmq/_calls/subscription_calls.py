"""Requests about a group in a topic, as pure functions: filter, consume mode, offsets, message groups."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from popmq._calls.admin_calls import enum_of, given_start, read_subscription, same_names
from popmq._given import checking
from popmq._given.fields import filter_row, moment_ms
from popmq._transport.call import Call, paged
from popmq.errors import InvalidField
from popmq.stats import MessageGroups, MessageGroupState, QueueOffsets
from popmq.topic import Place, Start, Subscription
from popmq_proto.v1 import popmq_pb2 as pb


def set_filter(topic: str, group: str, tag: str | None, sql: str | None) -> Call[Subscription]:
    """Replaces the filter; neither: everything."""
    return Call(
        "Admin.SetFilter",
        pb.SetFilterRequest(topic=topic, group=group, filter=filter_row(tag, sql)),
        lambda reply, _: read_subscription(reply.subscription),
    )


def set_consume_mode(
    topic: str, group: str, mode: str, share_number: int, start: Start | None = None
) -> Call[Subscription | None]:
    """Switches between POP and PULL. Reads None when a try whose answer was lost has set `start`."""
    request = pb.SetConsumeModeRequest(
        topic=topic,
        group=group,
        mode=enum_of(pb.ConsumeMode, mode, "mode"),
        share_number=share_number,
        start=None if start is None else given_start(start),
    )

    def read(reply: pb.SetConsumeModeResponse | None, _retried: bool) -> Subscription | None:
        return None if reply is None else read_subscription(reply.subscription)

    return Call("Admin.SetConsumeMode", request, read, done=() if start is None else (InvalidField,))


def check_begun(topic: str, group: str, rows: Iterable[QueueOffsets], start: Start) -> None:
    """Raises InvalidField unless the group is where `start` puts it: then a try whose answer was lost has done that.

    Otherwise it had a position before, and the try was refused, or never arrived.
    """
    for row in rows:
        places = {"earliest": row.min_offset, "latest": row.max_offset}
        if row.committed != (places[start] if isinstance(start, str) else row.at_timestamp):
            raise InvalidField(
                f"group {group!r} has its position in topic {topic!r} already",
                code="INVALID_FIELD",
                field="start",
                action="leave it out, or move the group: client.offsets.reset",
            )


# ── Offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def query_offsets(topic: str, group: str, at: datetime | float | None) -> Call[list[QueueOffsets]]:
    """First, next and committed offset of each queue, and that of a time."""
    request = pb.QueryOffsetsRequest(topic=topic, group=group, timestamp_ms=None if at is None else moment_ms(at))
    return Call(
        "Broker.QueryOffsets", request, lambda reply, _: [same_names(QueueOffsets, row) for row in reply.queues]
    )


def reset_offsets(topic: str, group: str, to: Place | Mapping[int, int]) -> Call[dict[int, int]]:
    """Moves a group to a position: of all queues, or of those that are named. A bare number could be any of these."""
    if isinstance(to, Mapping):
        request = checking.built(pb.ResetOffsetsRequest, "", topic=topic, group=group, offsets=to)
    elif isinstance(to, str | datetime):
        request = pb.ResetOffsetsRequest(topic=topic, group=group, to=given_start(to))
    else:
        raise InvalidField(
            f"{to!r} is no place to move to",
            code="INVALID_FIELD",
            field="to",
            action='give "earliest", "latest", a datetime, or {queue: offset}',
        )
    return Call("Admin.ResetOffsets", request, lambda reply, _: dict(reply.offsets), "settle")


def clone_offsets(topic: str, from_group: str, group: str) -> Call[dict[int, int]]:
    """Gives a group the offsets of another one."""
    request = pb.CloneOffsetsRequest(topic=topic, from_group=from_group, group=group)
    return Call("Admin.CloneOffsets", request, lambda reply, _: dict(reply.offsets), "settle")


# ── Message groups ───────────────────────────────────────────────────────────────────────────────────────────────────


def list_message_groups(topic: str, group: str, max_message_groups: int, stopped_only: bool) -> Call[MessageGroups]:
    """Message groups that wait, are locked or stopped."""
    request = pb.ListMessageGroupsRequest(
        topic=topic, group=group, max_message_groups=max_message_groups, stopped_only=stopped_only
    )

    def read(reply: pb.ListMessageGroupsResponse, _retried: bool) -> MessageGroups:
        rows = {row.message_group: same_names(MessageGroupState, row) for row in reply.message_groups}
        return MessageGroups(tuple(rows.values()), reply.waiting, reply.stopped)

    pages = paged("message_groups", "max_message_groups", max_message_groups)
    return Call("Admin.ListMessageGroups", request, read, pages=pages)


def resume_message_group(topic: str, group: str, message_group: str, dead_letter: bool) -> Call[None]:
    """Resumes a stopped message group."""
    request = pb.ResumeMessageGroupRequest(
        topic=topic, group=group, message_group=message_group, dead_letter=dead_letter
    )
    return Call("Admin.ResumeMessageGroup", request, lambda reply, _: None)
