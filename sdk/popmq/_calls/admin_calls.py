"""Requests of the control plane, as pure functions: topics and groups."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

from popmq._given.fields import instance, moment_ms, ms
from popmq._runtime.later import Later
from popmq._transport.call import Call, Pages
from popmq.duration import Duration, seconds_of
from popmq.errors import GroupNotFound, InvalidField, TopicNotFound
from popmq.topic import (
    FairKeyLimits,
    FairKeys,
    Group,
    LiteTopics,
    Permission,
    Quota,
    Retention,
    Start,
    Subscription,
    Topic,
    TopicType,
)
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq._given import checking
else:
    checking = Later("popmq._given.checking")

#: The last second that a datetime can name; earlier brokers took any number for the time of a start.
_LAST_S = 253_402_300_799
_DEFAULT = Group("")
#: Seconds by which a time may be ahead of this machine's clock: brokers tell times of their own.
AHEAD_S = 60.0
#: The contract's limit of the queues of a topic.
QUEUES_MAX = 1024

# ── Topics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_topic(
    name: str,
    queues: int | None,
    type: str,
    retention: Retention | None,
    quota: Quota | None,
    unique_ids: Duration,
    lite: LiteTopics | None,
    permission: str,
) -> Call[Topic]:
    """Creates a topic; succeeds when it exists with the same settings. Raises InvalidField."""
    row = checking.built(
        pb.Topic,
        "topic.",
        name=name,
        type=enum_of(pb.TopicType, type, "topic.type"),
        queues=_queues(queues),
        # What is left out stays unset: an engine that has no retention or quotas of topics serves it.
        retention=None
        if retention is None
        else _retention_row(instance(retention, Retention, "retention") or Retention()),
        quota=None if quota is None else _quota_row(instance(quota, Quota, "quota") or Quota()),
        unique_ids_ms=ms(unique_ids, "unique_ids"),
        lite=_lite_row(lite),
        permission=enum_of(pb.Permission, permission, "topic.permission"),
    )
    return Call("Admin.CreateTopic", pb.CreateTopicRequest(topic=row), _read_its_topic)


def update_topic(
    name: str,
    queues: int | None,
    retention: Retention | None,
    quota: Quota | None,
    unique_ids: Duration | None,
    lite: LiteTopics | None = None,
    permission: str | None = None,
) -> Call[Topic]:
    """Replaces what is given of what may change."""
    row = checking.built(
        pb.Topic,
        "topic.",
        name=name,
        queues=_queues(queues),
        retention=None
        if retention is None
        else _retention_row(instance(retention, Retention, "retention") or Retention()),
        quota=None if quota is None else _quota_row(instance(quota, Quota, "quota") or Quota()),
        unique_ids_ms=None if unique_ids is None else ms(unique_ids, "unique_ids"),
        lite=_lite_row(lite),
        permission=None if permission is None else enum_of(pb.Permission, permission, "topic.permission"),
    )
    return Call("Admin.UpdateTopic", pb.UpdateTopicRequest(topic=row), _read_its_topic)


def _queues(queues: int | None) -> int:
    """A number of queues as the contract has it, where 0 leaves the number to the broker. Raises InvalidField."""
    if not isinstance(queues, Integral | None):
        raise TypeError(f"queues is {queues!r:.80}, of type {type(queues).__name__}: give an int")
    if queues is not None and not 1 <= queues <= QUEUES_MAX:
        raise InvalidField(
            f"a topic has at least one queue and at most {QUEUES_MAX}, not {queues}",
            code="INVALID_FIELD",
            field="topic.queues",
            action="leave it out for the number that the type of the topic has",
        )
    return queues or 0


def get_topic(name: str) -> Call[Topic]:
    """One topic."""
    return Call("Admin.GetTopic", pb.GetTopicRequest(name=name), _read_its_topic)


def list_topics(dead_letter_topics: bool) -> Call[list[Topic]]:
    """All topics; the %DLQ% and %RESULT% ones when asked for."""
    return Call(
        "Admin.ListTopics",
        pb.ListTopicsRequest(dead_letter_topics=dead_letter_topics),
        lambda reply, _: [_read_topic(row) for row in reply.topics],
        pages=Pages("topics"),
    )


def delete_topic(name: str) -> Call[None]:
    """Removes the topic and everything in it."""
    return Call("Admin.DeleteTopic", pb.DeleteTopicRequest(name=name), _nothing, done=(TopicNotFound,))


def purge_topic(name: str) -> Call[int]:
    """Drops all messages of a topic; reads how many."""
    return Call("Admin.PurgeTopic", pb.PurgeTopicRequest(name=name), lambda reply, _: int(reply.dropped))


def _retention_row(retention: Retention) -> pb.Retention:
    checking.from_one("retention.", keep=retention.keep)
    return checking.built(
        pb.Retention, "retention.", by_age=retention.by_age, keep_ms=ms(retention.keep), max_bytes=retention.max_bytes
    )


def _lite_row(lite: LiteTopics | None) -> pb.LiteTopics | None:
    if (lite := instance(lite, LiteTopics, "lite")) is None:
        return None
    checking.from_one("lite.", topics_max=lite.topics_max, ttl=lite.ttl)
    return checking.built(pb.LiteTopics, "lite.", topics_max=lite.topics_max, ttl_ms=ms(lite.ttl))


def _quota_row(quota: Quota) -> pb.Quota:
    return checking.built(pb.Quota, "quota.", **asdict(quota))


def _read_topic(row: pb.Topic) -> Topic:
    kept = row.retention
    return Topic(
        row.name,
        cast(TopicType, pb.TopicType.Name(row.type)),
        row.queues,
        Retention(kept.keep_ms / 1000, kept.by_age, kept.max_bytes),
        row.created_ms,
        same_names(Quota, row.quota),
        row.unique_ids_ms / 1000,
        LiteTopics(row.lite.topics_max, row.lite.ttl_ms / 1000) if row.HasField("lite") else None,
        cast(Permission, pb.Permission.Name(row.permission or pb.READ_WRITE)),
    )


def _read_its_topic(reply: Any, _retried: bool) -> Topic:
    return _read_topic(reply.topic)


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_group(group: Group) -> Call[Group]:
    """Creates a group; succeeds when it exists with the same settings."""
    given_start(group.start)
    checking.from_one("group.", in_flight_max=group.in_flight_max)
    return Call("Admin.CreateGroup", pb.CreateGroupRequest(group=_group_row(group)), _read_its_group)


def update_group(group: Group) -> Call[Group]:
    """Replaces the settings of a group."""
    return Call("Admin.UpdateGroup", pb.UpdateGroupRequest(group=_group_row(group)), _read_its_group)


def get_group(name: str) -> Call[Group]:
    """One group."""
    return Call("Admin.GetGroup", pb.GetGroupRequest(name=name), _read_its_group)


def subscriptions(group: str) -> Call[list[Subscription]]:
    """How the group reads each of its topics."""
    return Call(
        "Admin.GetGroup",
        pb.GetGroupRequest(name=group),
        lambda reply, _: [read_subscription(row) for row in reply.subscriptions],
    )


def read_subscription(row: pb.Subscription) -> Subscription:
    """How a group reads one topic."""
    mode = pb.ConsumeMode.Name(row.mode)
    return Subscription(row.topic, row.filter.tag, row.filter.sql92, mode, row.share_number)


def list_groups() -> Call[list[Group]]:
    """All groups."""
    return Call(
        "Admin.ListGroups",
        pb.ListGroupsRequest(),
        lambda reply, _: [_read_group(row) for row in reply.groups],
        pages=Pages("groups"),
    )


def delete_group(name: str) -> Call[None]:
    """Removes the group, its positions, leases, retries and dead letters."""
    return Call("Admin.DeleteGroup", pb.DeleteGroupRequest(name=name), _nothing, done=(GroupNotFound,))


def delays_of(backoff: Duration | Sequence[Duration]) -> list[float]:
    """Delays in seconds; one alone is a list of one. Raises InvalidField."""
    given = [backoff] if isinstance(backoff, str | float | int | timedelta) else backoff
    return [seconds_of(delay, "backoff") for delay in given]


def changed_group(group: Group, changes: dict[str, Any]) -> Group:
    """`group` with the changes that are not None."""
    checking.from_one("group.", in_flight_max=changes["in_flight_max"])
    if changes["start"] is not None:
        given_start(changes["start"])
    given = {name: value for name, value in changes.items() if value is not None}
    if given.get("fair_keys") is False:
        given["fair_keys"] = None
    return replace(group, **given)


def start_position(start: Start) -> pb.StartPosition:
    """Where a group starts: "earliest", "latest", or a time. Raises InvalidField."""
    if not isinstance(start, str):
        return pb.StartPosition(**{"from": pb.TIMESTAMP, "timestamp_ms": moment_ms(start)})
    if start.lower() not in ("earliest", "latest"):
        raise InvalidField(
            f"{start!r} is no place to start",
            code="INVALID_FIELD",
            field="start",
            action='give "earliest", "latest" or a datetime',
        )
    return pb.StartPosition(**{"from": pb.StartFrom.Value(start.upper())})


def given_start(start: Start) -> pb.StartPosition:
    """The same of one that the caller has just given: no time in the future, which would skip what comes until then.

    Raises InvalidField.
    """
    position = start_position(start)
    if position.timestamp_ms > (time.time() + AHEAD_S) * 1000:
        raise InvalidField(
            f"{start} is in the future: what is sent until then would be skipped",
            code="INVALID_FIELD",
            field="start",
            action='give a time that is over, or "latest" for what comes from now on',
        )
    return position


def _read_start(row: pb.StartPosition) -> Start:
    kind = getattr(row, "from")
    if kind == pb.TIMESTAMP:
        return datetime.fromtimestamp(min(row.timestamp_ms / 1000, _LAST_S), UTC)
    return "latest" if kind == pb.LATEST else "earliest"


def _group_row(group: Group) -> pb.Group:
    checking.from_one("group.", max_attempts=group.max_attempts, invisible=group.invisible)
    return checking.built(
        pb.Group,
        "group.",
        name=group.name,
        max_attempts=group.max_attempts,
        backoff=pb.Backoff(delays_ms=[ms(delay) for delay in group.backoff]),
        invisible_ms=ms(group.invisible),
        share_number=group.share_number,
        start=start_position(group.start),
        exclusive_owner=group.exclusive_owner,
        fifo=group.fifo,
        # A default stays unset, and means the broker's, which is the same: an engine without the setting serves it, and
        # says 0 of a group that is read and changed.
        in_flight_max=None if group.in_flight_max in (0, _DEFAULT.in_flight_max) else group.in_flight_max,
        stop_on_failure=group.stop_on_failure,
        lite_exclusive=group.lite_exclusive,
        consume_enable=group.consume_enable,
        subscription_expiry_ms=None
        if group.subscription_expiry == _DEFAULT.subscription_expiry
        else ms(group.subscription_expiry),
        dead_letter_expired=group.dead_letter_expired,
        snoozes_max=None if group.snoozes_max in (0, _DEFAULT.snoozes_max) else group.snoozes_max,
        results_keep_ms=ms(group.results_keep),
        fair_keys=_fair_keys_row(group.fair_keys),
    )


def _read_group(row: pb.Group) -> Group:
    return Group(
        row.name,
        row.max_attempts,
        tuple(delay / 1000 for delay in row.backoff.delays_ms),
        row.invisible_ms / 1000,
        row.share_number,
        _read_start(row.start),
        row.exclusive_owner,
        row.created_ms,
        row.fifo,
        row.in_flight_max,
        row.stop_on_failure,
        row.lite_exclusive,
        row.consume_enable or not row.HasField("consume_enable"),
        row.subscription_expiry_ms / 1000,
        row.snoozes_max,
        row.dead_letter_expired,
        row.results_keep_ms / 1000,
        _read_fair_keys(row.fair_keys) if row.HasField("fair_keys") else None,
    )


def _fair_keys_row(given: FairKeys | None) -> pb.FairKeys | None:
    if (fair := instance(given or None, FairKeys, "fair_keys")) is None:
        return None
    if bool(fair.property) == fair.message_key:
        raise InvalidField(
            "fair keys have a property or message_key=True",
            code="INVALID_FIELD",
            field="group.fair_keys.key",
            action="give one of the two",
        )
    field = "group.fair_keys."
    return checking.built(
        pb.FairKeys,
        field,
        property=fair.property or None,
        message_key=fair.message_key or None,
        label_separator=fair.label_separator,
        in_flight_max=fair.in_flight_max,
        messages_per_s=fair.messages_per_s,
        exceptions=[
            checking.built(
                pb.FairKeyLimits,
                f"{field}exceptions[{index}].",
                key=one.key,
                in_flight_max=one.in_flight_max,
                messages_per_s=one.messages_per_s,
            )
            for index, one in enumerate(fair.exceptions)
        ],
    )


def _read_fair_keys(row: pb.FairKeys) -> FairKeys:
    exceptions = tuple(FairKeyLimits(one.key, one.in_flight_max, one.messages_per_s) for one in row.exceptions)
    limits = row.in_flight_max, row.messages_per_s
    return FairKeys(row.property, row.message_key, row.label_separator, *limits, exceptions)


def _read_its_group(reply: Any, _retried: bool) -> Group:
    return _read_group(reply.group)


# ── Shared ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def same_names(kind: Any, row: Any, **given: Any) -> Any:
    """A dataclass whose fields have the names of the message's, but for those that are given. None: an unset number."""
    fields = row.DESCRIPTOR.fields_by_name
    names: Sequence[str] = [name for name in kind.__slots__ if name not in given]
    return kind(**given, **{name: _value(row, fields[name]) for name in names})


def _value(row: Any, field: Any) -> Any:
    return None if field.has_presence and not row.HasField(field.name) else getattr(row, field.name)


def in_seconds(row: Any, field: str) -> float | None:
    """An optional field of ms in seconds; None: it is unset."""
    return getattr(row, field) / 1000 if row.HasField(field) else None


def enum_of(kind: Any, name: str, field: str) -> Any:
    words = [word for word in map(str, kind.keys()) if not word.endswith("_UNSPECIFIED")]
    if not isinstance(name, str) or name.upper() not in words:
        raise InvalidField(f"{name!r} is not one of {', '.join(words)}", code="INVALID_FIELD", field=field)
    return kind.Value(name.upper())


def _nothing(_reply: Any, _retried: bool) -> None:
    return None
