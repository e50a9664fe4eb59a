"""The control plane as pure functions: topics, groups, numbers."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from popmq._calls import Call, ms, read_delivery
from popmq.errors import InvalidField
from popmq.stats import GroupStats, Lease, Leases, Owner, Page, QueueStats, Stats, StoreStats, TopicStats
from popmq.topic import Group, Retention, Start, Topic
from popmq_proto.v1 import popmq_pb2 as pb

# ── Topics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_topic(topic: Topic) -> Call[Topic]:
    """Makes a topic; succeeds when it exists with the same settings."""
    return Call("Admin.CreateTopic", pb.CreateTopicRequest(topic=_topic_row(topic)), _read_its_topic)


def update_topic(topic: Topic) -> Call[Topic]:
    """Replaces what may change: queues (upwards only), retention."""
    return Call("Admin.UpdateTopic", pb.UpdateTopicRequest(topic=_topic_row(topic)), _read_its_topic)


def get_topic(name: str) -> Call[Topic]:
    """One topic."""
    return Call("Admin.GetTopic", pb.GetTopicRequest(name=name), _read_its_topic)


def list_topics(dead_letter_topics: bool) -> Call[list[Topic]]:
    """All topics; the %DLQ% ones when asked for."""
    return Call(
        "Admin.ListTopics",
        pb.ListTopicsRequest(dead_letter_topics=dead_letter_topics),
        lambda reply, _: [_read_topic(row) for row in reply.topics],
    )


def delete_topic(name: str) -> Call[None]:
    """Removes the topic and everything in it."""
    return Call("Admin.DeleteTopic", pb.DeleteTopicRequest(name=name), _nothing)


def changed_topic(topic: Topic, queues: int | None, retention: Retention | None) -> Topic:
    """`topic` with what was given; the contract replaces settings as a whole."""
    return replace(
        topic,
        queues=topic.queues if queues is None else queues,
        retention=topic.retention if retention is None else retention,
    )


def _topic_row(topic: Topic) -> pb.Topic:
    kind = _enum(pb.TopicType, topic.type, "topic.type")
    retention = pb.Retention(by_age=topic.retention.by_age, keep_ms=ms(topic.retention.keep))
    return pb.Topic(name=topic.name, type=kind, queues=topic.queues, retention=retention)


def _read_topic(row: pb.Topic) -> Topic:
    retention = Retention(row.retention.keep_ms / 1000, row.retention.by_age)
    return Topic(row.name, pb.TopicType.Name(row.type), row.queues, retention, row.created_ms)


def _read_its_topic(reply: Any, _retried: bool) -> Topic:
    return _read_topic(reply.topic)


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_group(group: Group) -> Call[Group]:
    """Makes a group; succeeds when it exists with the same settings."""
    return Call("Admin.CreateGroup", pb.CreateGroupRequest(group=_group_row(group)), _read_its_group)


def update_group(group: Group) -> Call[Group]:
    """Replaces the settings of a group."""
    return Call("Admin.UpdateGroup", pb.UpdateGroupRequest(group=_group_row(group)), _read_its_group)


def get_group(name: str) -> Call[Group]:
    """One group."""
    return Call("Admin.GetGroup", pb.GetGroupRequest(name=name), _read_its_group)


def list_groups() -> Call[list[Group]]:
    """All groups."""
    return Call("Admin.ListGroups", pb.ListGroupsRequest(), lambda reply, _: [_read_group(row) for row in reply.groups])


def delete_group(name: str) -> Call[None]:
    """Removes the group, its positions, leases, retries and dead letters."""
    return Call("Admin.DeleteGroup", pb.DeleteGroupRequest(name=name), _nothing)


def changed_group(group: Group, changes: dict[str, Any]) -> Group:
    """`group` with the changes that are not None."""
    return replace(group, **{name: value for name, value in changes.items() if value is not None})


def start_position(start: Start) -> pb.StartPosition:
    """Where a new group starts. A datetime without a zone is local time, as everywhere in Python."""
    if isinstance(start, datetime):
        return pb.StartPosition(**{"from": pb.TIMESTAMP, "timestamp_ms": ms(start.timestamp())})
    return pb.StartPosition(**{"from": _enum(pb.StartFrom, start, "start")})


def _read_start(row: pb.StartPosition) -> Start:
    kind = getattr(row, "from")
    if kind == pb.TIMESTAMP:
        return datetime.fromtimestamp(row.timestamp_ms / 1000, UTC)
    return "latest" if kind == pb.LATEST else "earliest"


def _group_row(group: Group) -> pb.Group:
    return pb.Group(
        name=group.name,
        max_attempts=group.max_attempts,
        backoff=pb.Backoff(delays_ms=[ms(delay) for delay in group.backoff]),
        invisible_ms=ms(group.invisible),
        share_number=group.share_number,
        start=start_position(group.start),
        exclusive_owner=group.exclusive_owner,
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
    )


def _read_its_group(reply: Any, _retried: bool) -> Group:
    return _read_group(reply.group)


# ── Numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def stats(topic: str, group: str) -> Call[Stats]:
    """Numbers by topic and group."""
    return Call("Admin.GetStats", pb.GetStatsRequest(topic=topic, group=group), _read_stats)


def _read_stats(reply: pb.GetStatsResponse, _retried: bool) -> Stats:
    return Stats(
        tuple(_read_topic_stats(row) for row in reply.topics),
        tuple(read_group_stats(row) for row in reply.groups),
        _same_names(StoreStats, reply.store),
    )


def _read_topic_stats(row: pb.TopicStats) -> TopicStats:
    queues = tuple(QueueStats(queue.queue, queue.min_offset, queue.max_offset) for queue in row.queues)
    return TopicStats(row.topic, row.messages, row.sent_per_s, queues)


def read_group_stats(row: pb.GroupStats) -> GroupStats:
    """Numbers of one group in one topic."""
    numbers: GroupStats = _same_names(GroupStats, row, oldest_age=row.oldest_age_ms / 1000)
    return numbers


def browse(topic: str, queue: int, offset: int, max_messages: int) -> Call[Page]:
    """Reads messages by position, with no lease."""

    def read(reply: pb.BrowseResponse, _retried: bool) -> Page:
        deliveries = tuple(read_delivery(row, topic) for row in reply.deliveries)
        return Page(deliveries, reply.next_offset, reply.min_offset, reply.max_offset)

    request = pb.BrowseRequest(topic=topic, queue=queue, offset=offset, max_messages=max_messages)
    return Call("Admin.Browse", request, read)


def leases(group: str, topic: str, max_leases: int) -> Call[Leases]:
    """What is leased or in backoff, soonest first."""
    return Call(
        "Admin.ListLeases",
        pb.ListLeasesRequest(group=group, topic=topic, max_leases=max_leases),
        lambda reply, _: Leases(tuple(_same_names(Lease, row) for row in reply.leases), reply.total),
    )


def owners(group: str) -> Call[list[Owner]]:
    """Owners of a group, or of all."""
    return Call(
        "Admin.ListOwners",
        pb.ListOwnersRequest(group=group),
        lambda reply, _: [_same_names(Owner, row) for row in reply.owners],
    )


# ── Shared ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _same_names(kind: Any, row: Any, **given: Any) -> Any:
    """A dataclass whose fields have the names of the message's, but for those that are given."""
    names: Sequence[str] = [name for name in kind.__slots__ if name not in given]
    return kind(**given, **{name: getattr(row, name) for name in names})


def _enum(kind: Any, name: str, field: str) -> Any:
    try:
        return kind.Value(name.upper())
    except ValueError:
        words = ", ".join(kind.keys())
        raise InvalidField(f"{name!r} is none of {words}", code="INVALID_FIELD", field=field) from None


def _nothing(_reply: Any, _retried: bool) -> None:
    return None
