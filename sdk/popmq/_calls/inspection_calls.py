"""Requests of inspection, as pure functions: statistics, leases, single messages and their histories."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

from popmq._calls.admin_calls import in_seconds, same_names
from popmq._calls.deliveries import read_delivery
from popmq._given.checking import built, from_one, listed_texts
from popmq._given.fields import filter_row, moment_ms
from popmq._transport.call import Call, Pages, error_of, paged
from popmq.errors import InvalidField
from popmq.message import Delivery
from popmq.stats import (
    AccessKey,
    AccessKeys,
    BrokerInfo,
    ClientAnswer,
    ClientSession,
    ClusterBroker,
    ClusterBrokers,
    DeadLetterReason,
    DelayedMessage,
    DelayedMessages,
    Discarded,
    FairKeyStats,
    Found,
    GroupLife,
    GroupStats,
    History,
    HistoryPoint,
    Lease,
    Leases,
    LifeEvent,
    MessageLife,
    Owner,
    Page,
    QueueStats,
    RedriveFailure,
    Redriven,
    Stats,
    StoreStats,
    TopicStats,
)
from popmq.transaction import HalfMessage, HalfMessages, MessagePreview
from popmq_proto.v1 import popmq_pb2 as pb

# ── Numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


#: Seconds that the broker waits for another client's answer.
_ANSWER_S = 5.0


def stats(topic: str, group: str) -> Call[Stats]:
    """Numbers by topic and group."""
    request = pb.GetStatsRequest(topic=topic, group=group)
    return Call("Admin.GetStats", request, _read_stats, pages=Pages("topics", also="groups"))


def history(topic: str, group: str) -> Call[History]:
    """Numbers of the last hour."""
    return Call("Admin.GetHistory", pb.GetHistoryRequest(topic=topic, group=group), _read_history)


def _read_history(reply: pb.GetHistoryResponse, _retried: bool) -> History:
    return History(tuple(map(_read_point, reply.points)), reply.step_ms / 1000, reply.now_ms, reply.left_out)


def _read_point(row: pb.HistoryPoint) -> HistoryPoint:
    broker = row.broker if row.HasField("broker") else pb.BrokerPoint(leases_late_ms=0, delayed_late_ms=0)
    point: HistoryPoint = same_names(
        HistoryPoint,
        row,
        oldest_age=in_seconds(row, "oldest_age_ms"),
        leases_late=in_seconds(broker, "leases_late_ms"),
        delayed_late=in_seconds(broker, "delayed_late_ms"),
        used_bytes=broker.used_bytes,
    )
    return point


def info() -> Call[BrokerInfo]:
    """What answers, and what it lacks."""
    return Call("Admin.GetInfo", pb.GetInfoRequest(), _read_info)


def _read_info(reply: pb.GetInfoResponse, _retried: bool) -> BrokerInfo:
    lacking = {each.capability: each.instead for each in reply.lacking}
    return BrokerInfo(reply.version, reply.engine, lacking, {each.promise: each.how for each in reply.weaker})


def cluster() -> Call[ClusterBrokers]:
    """The brokers behind a gateway."""
    return Call("Admin.ListBrokers", pb.ListBrokersRequest(), _read_brokers)


def _read_brokers(reply: pb.ListBrokersResponse, _retried: bool) -> ClusterBrokers:
    rows = tuple(same_names(ClusterBroker, row) for row in reply.brokers)
    return ClusterBrokers(rows, in_seconds(reply, "routes_age_ms"))


def set_max_size(size: int) -> Call[StoreStats]:
    """Another limit of the data file."""
    return Call(
        "Admin.SetMaxSize",
        pb.SetMaxSizeRequest(map_bytes=size),
        lambda reply, _: same_names(StoreStats, reply.store),
    )


def _read_stats(reply: pb.GetStatsResponse, _retried: bool) -> Stats:
    return Stats(
        tuple(_read_topic_stats(row) for row in reply.topics),
        tuple(read_group_stats(row) for row in sorted(reply.groups, key=attrgetter("group", "topic"))),
        same_names(StoreStats, reply.store),
    )


def _read_topic_stats(row: pb.TopicStats) -> TopicStats:
    numbers: TopicStats = same_names(
        TopicStats, row, queues=tuple(same_names(QueueStats, queue) for queue in row.queues)
    )
    return numbers


def read_group_stats(row: pb.GroupStats) -> GroupStats:
    """Numbers of one group in one topic."""
    numbers: GroupStats = same_names(
        GroupStats,
        row,
        oldest_age=in_seconds(row, "oldest_age_ms"),
        mode=pb.ConsumeMode.Name(row.mode),
        busiest_keys=tuple(same_names(FairKeyStats, key) for key in row.busiest_keys),
    )
    return numbers


class Browsed(NamedTuple):
    """What `browse` is asked for."""

    queue: int
    offset: int
    max_messages: int
    order: str
    search: str
    since: datetime | float | None
    until: datetime | float | None
    page_token: str


#: The orders over all queues.
_ORDERS = {"": pb.BY_OFFSET, "newest": pb.NEWEST_FIRST, "oldest": pb.OLDEST_FIRST}


def browse(topic: str, asked: Browsed) -> Call[Page]:
    """Reads messages with no lease."""

    def read(reply: pb.BrowseResponse, _retried: bool) -> Page:
        deliveries = tuple(read_delivery(row, topic) for row in reply.deliveries)
        places = reply.next_offset, reply.min_offset, reply.max_offset
        return Page(deliveries, *places, reply.looked_at, reply.next_page_token)

    from_one("", max_messages=asked.max_messages)
    if asked.order not in _ORDERS:
        raise InvalidField(
            f"{asked.order!r} is not one of newest, oldest, or empty for one queue by offset",
            code="INVALID_FIELD",
            field="order",
        )
    request = built(
        pb.BrowseRequest,
        "",
        topic=topic,
        queue=asked.queue,
        offset=asked.offset,
        max_messages=asked.max_messages,
        order=_ORDERS[asked.order],
        search=asked.search,
        from_ms=0 if asked.since is None else moment_ms(asked.since),
        until_ms=0 if asked.until is None else moment_ms(asked.until),
        page_token=asked.page_token,
    )
    return Call("Admin.Browse", request, read)


def leases(group: str, topic: str, max_leases: int) -> Call[Leases]:
    """Leased messages and messages in backoff, soonest first."""
    return Call(
        "Admin.ListLeases",
        pb.ListLeasesRequest(group=group, topic=topic, max_leases=max_leases),
        lambda reply, _: Leases(tuple(same_names(Lease, row) for row in reply.leases), reply.total),
        pages=paged("leases", "max_leases", max_leases),
    )


def end_lease(group: str, lease_id: str | int) -> Call[int]:
    """Ends a lease now; reads how many messages were not done."""
    request = pb.EndLeaseRequest(group=group)
    if not isinstance(lease_id, str):
        request.checkpoint_id = lease_id
    else:
        request.lease_id = lease_id
    return Call("Admin.EndLease", request, lambda reply, _: int(reply.messages))


def access_keys() -> Call[AccessKeys]:
    """The broker's access keys without their secrets."""
    return Call(
        "Admin.ListAccessKeys",
        pb.ListAccessKeysRequest(),
        lambda reply, _: AccessKeys(
            reply.enabled,
            tuple(
                same_names(AccessKey, row, allow=tuple(row.allow), certificates=tuple(row.certificates))
                for row in reply.access_keys
            ),
            reply.caller,
        ),
    )


def owners(group: str) -> Call[list[Owner]]:
    """Owners of a group, or of all."""
    return Call(
        "Admin.ListOwners",
        pb.ListOwnersRequest(group=group),
        lambda reply, _: sorted((same_names(Owner, row) for row in reply.owners), key=attrgetter("group", "owner")),
        pages=Pages("owners"),
    )


def sessions(group: str, recent: bool) -> Call[list[ClientSession]]:
    """Clients with a session in a group, or all; with `recent` also those that only call."""
    return Call(
        "Admin.ListSessions",
        pb.ListSessionsRequest(group=group, recent=recent),
        lambda reply, _: [same_names(ClientSession, row, topics=tuple(row.topics)) for row in reply.sessions],
        pages=Pages("sessions"),
    )


def client_stack(client_id: str) -> Call[ClientAnswer]:
    """The stacks of a client's threads."""
    request = pb.GetClientStackRequest(client_id=client_id)
    return Call(
        "Admin.GetClientStack", request, lambda reply, _: same_names(ClientAnswer, reply), wait=_ANSWER_S, once=True
    )


def verify_message(client_id: str, topic: str, queue: int, offset: int) -> Call[ClientAnswer]:
    """How a client fares with a message."""
    request = pb.VerifyMessageRequest(client_id=client_id, topic=topic, queue=queue, offset=offset)
    return Call(
        "Admin.VerifyMessage", request, lambda reply, _: same_names(ClientAnswer, reply), wait=_ANSWER_S, once=True
    )


# ── Single messages ──────────────────────────────────────────────────────────────────────────────────────────────────


def peek(topic: str, group: str, max_messages: int, tag: str | None, sql: str | None) -> Call[list[Delivery]]:
    """What the next pop would deliver."""
    from_one("", max_messages=max_messages)
    request = pb.PeekRequest(topic=topic, group=group, max_messages=max_messages, filter=filter_row(tag, sql))
    return Call(
        "Broker.Peek", request, lambda reply, _: [read_delivery(row, topic, group) for row in reply.deliveries], "pop"
    )


def look_up(
    topic: str,
    message_id: str,
    key: str,
    max_messages: int,
    since: datetime | float | None,
    until: datetime | float | None,
) -> Call[Found]:
    """Messages by id or key, newest first."""
    from_one("", max_messages=max_messages)
    request = pb.LookUpRequest(
        topic=topic,
        message_id=message_id,
        key=key,
        max_messages=max_messages,
        from_ms=0 if since is None else moment_ms(since),
        until_ms=0 if until is None else moment_ms(until),
    )
    return Call(
        "Admin.LookUp",
        request,
        lambda reply, _: Found(tuple(read_delivery(row, topic) for row in reply.deliveries), reply.more),
    )


def why(message_id: str, topic: str, group: str) -> Call[list[MessageLife]]:
    """The whole life of a message."""
    request = pb.WhyRequest(message_id=message_id, topic=topic, group=group)
    return Call("Admin.Why", request, lambda reply, _: [_read_life(row) for row in reply.lives])


def _read_life(row: pb.MessageLife) -> MessageLife:
    groups = tuple(
        GroupLife(
            each.group, each.state, each.explanation, tuple(same_names(LifeEvent, event) for event in each.events)
        )
        for each in row.groups
    )
    life: MessageLife = same_names(MessageLife, row, groups=groups)
    return life


def _dead_letters(
    group: str, offsets: Sequence[int], topic: str, message_ids: Sequence[str], reason: str | None, exception: str
) -> dict[str, Any]:
    """The fields of a request that say which dead letters it is about."""
    given = listed_texts(message_ids, "message_ids")
    places = {"group": group, "offsets": offsets, "topic": topic, "message_ids": given}
    return {**places, "reason": reason, "exception": exception}


def redrive(
    group: str, offsets: Sequence[int], topic: str, message_ids: Sequence[str], reason: str | None, exception: str
) -> Call[Redriven]:
    """Delivers dead letters again."""
    given = _dead_letters(group, offsets, topic, message_ids, reason, exception)
    request = built(pb.RedriveDeadLettersRequest, "", **given)
    return Call(
        "Admin.RedriveDeadLetters", request, lambda reply, _: Redriven(reply.redriven, _not_moved(reply)), "settle"
    )


def discard(
    group: str, offsets: Sequence[int], topic: str, message_ids: Sequence[str], reason: str | None, exception: str
) -> Call[Discarded]:
    """Removes dead letters."""
    given = _dead_letters(group, offsets, topic, message_ids, reason, exception)
    request = built(pb.DiscardDeadLettersRequest, "", **given)
    return Call(
        "Admin.DiscardDeadLetters", request, lambda reply, _: Discarded(reply.discarded, _not_moved(reply)), "settle"
    )


def _not_moved(reply: Any) -> tuple[RedriveFailure, ...]:
    return tuple(RedriveFailure(row.offset, row.message_id, error_of(row.error)) for row in reply.failures)


def dead_letter_reasons(group: str, topic: str) -> Call[list[DeadLetterReason]]:
    """Dead letters by reason; the numbers of all pages are added."""
    request = pb.ListDeadLetterReasonsRequest(group=group, topic=topic)
    return Call("Admin.ListDeadLetterReasons", request, _read_reasons, pages=Pages("reasons", ""))


def _read_reasons(reply: pb.ListDeadLetterReasonsResponse, _retried: bool) -> list[DeadLetterReason]:
    sums: dict[str, DeadLetterReason] = {}
    for row in reply.reasons:
        known = sums.get(row.reason)
        first_ms = min(known.first_ms, row.first_ms) if known else row.first_ms
        last_ms = max(known.last_ms, row.last_ms) if known else row.last_ms
        count = row.messages + (known.messages if known else 0)
        last_offset = max(known.last_offset, row.last_offset) if known else row.last_offset
        sums[row.reason] = DeadLetterReason(row.reason, count, first_ms, last_ms, last_offset, row.exception)
    return sorted(sums.values(), key=lambda each: (-each.messages, each.reason))


def _previewed(kind: Any, row: Any, **given: Any) -> Any:
    """A row of a list of messages that are not visible yet."""
    shown = row.preview if row.HasField("preview") else None
    preview = shown and same_names(MessagePreview, shown, keys=tuple(shown.keys))
    return same_names(kind, row, preview=preview, **given)


def _read_delayed(row: pb.DelayedMessage) -> DelayedMessage:
    whole = read_delivery(pb.Delivery(message=row.message), row.topic) if row.HasField("message") else None
    read: DelayedMessage = _previewed(DelayedMessage, row, message=whole)
    return read


def list_delayed(
    topic: str,
    until: datetime | float | None,
    max_messages: int,
    whole: bool = False,
    message_id: str = "",
    key: str = "",
) -> Call[DelayedMessages]:
    """Delayed messages, soonest first."""
    request = pb.ListDelayedRequest(
        topic=topic,
        until_ms=0 if until is None else moment_ms(until),
        max_messages=max_messages,
        whole=whole,
        message_id=message_id,
        key=key,
    )
    return Call(
        "Admin.ListDelayed",
        request,
        lambda reply, _: DelayedMessages(tuple(map(_read_delayed, reply.messages)), reply.total),
        pages=paged("messages", "max_messages", max_messages),
    )


def list_transactions(topic: str, max_messages: int) -> Call[HalfMessages]:
    """Half messages that are not ended, topic by topic, in each oldest first."""
    return Call(
        "Admin.ListTransactions",
        pb.ListTransactionsRequest(topic=topic, max_messages=max_messages),
        lambda reply, _: HalfMessages(tuple(_previewed(HalfMessage, row) for row in reply.messages), reply.total),
        pages=paged("messages", "max_messages", max_messages),
    )
