"""popmq.v1.Admin: topics, groups and their filters, statistics."""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.filtering import EVERY_MESSAGE
from popmq_server.contract.commands.numbers import TopicNumbers
from popmq_server.contract.engine import BasicEngine
from popmq_server.errors import invalid, not_one_of
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.rates import Rates
from popmq_server.options import MAX_SIZE_MAX, MAX_SIZE_MIN
from popmq_server.protocols import validation
from popmq_server.protocols.native import pages, requests, responses
from popmq_server.protocols.native.native import NativeService
from popmq_server.protocols.native.requests import read
from popmq_server.values import limits
from popmq_server.values.message import (
    BODY_BYTES_MAX,
    GIVE_UP_TOPIC,
    KEY_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    TOPIC_NAME_MAX,
    check_name,
    check_range,
    check_text,
    dead_letter_topic,
    results_topic,
)
from popmq_server.values.records import FairKeys, KeyLimits

#: Entries of one backoff table.
DELAYS_MAX = 64
LEASES_DEFAULT = 100
IN_FLIGHT_LIMIT_MAX = 1_000_000


class AdminService:
    """The control plane. `native` formats a group's numbers.

    This service validates settings; the engine compares them with what exists. Changes are committed when it answers.
    """

    def __init__(self, engine: BasicEngine, native: NativeService, metrics: Metrics, rates: Rates) -> None:
        self._engine = engine
        self._native = native
        self._metrics = metrics
        self._rates = rates

    async def CreateTopic(self, raw: bytes) -> Message:
        """Creates a topic, or returns the existing one with equal settings; with other settings: ALREADY_EXISTS."""
        topic = read(pb.CreateTopicRequest, raw).topic
        kind = _type(topic.type)
        by_age, keep_ms, bytes_max = _retention(topic.retention) if topic.HasField("retention") else (False, None, 0)
        default = {"PRIORITY": limits.QUEUES_PRIORITY, "LITE": 1}.get(kind, limits.QUEUES_DEFAULT)
        queues = check_range(topic.queues, "topic.queues", 1, 1 if kind == "LITE" else limits.QUEUES_MAX, default)
        name = check_name(topic.name, "topic.name", TOPIC_NAME_MAX)
        if name == GIVE_UP_TOPIC:
            raise invalid(f"{name!r} is made by the broker", field="topic.name", action="name another")
        made, existed = await self._engine.execute(
            commands.CreateTopic(
                name=name,
                queues=queues,
                by_age=by_age,
                keep_ms=keep_ms,
                type=kind,
                bytes_max=bytes_max,
                unique_ids_ms=_unique_ids_ms(topic),
                **_quota(topic.quota),
                **_lite(topic, kind),
                permission=_permission(topic.permission or pb.READ_WRITE),
            )
        )
        return pb.CreateTopicResponse(topic=responses.topic(made), existed=existed)

    async def UpdateTopic(self, raw: bytes) -> Message:
        """Replaces the settings that may change; `queues` 0 and unset fields keep their values."""
        topic = read(pb.UpdateTopicRequest, raw).topic
        check_range(topic.queues, "topic.queues", 0, limits.QUEUES_MAX)
        retention, changes = None, dict[str, int | str]()
        if topic.HasField("retention"):
            *by_age_keep_ms, changes["bytes_max"] = _retention(topic.retention)
            retention = bool(by_age_keep_ms[0]), by_age_keep_ms[1]
        if topic.HasField("quota"):
            changes |= _quota(topic.quota)
        if topic.HasField("unique_ids_ms"):
            changes["unique_ids_ms"] = _unique_ids_ms(topic)
        if topic.HasField("lite"):
            changes |= _lite(topic, "LITE")
        if topic.permission:
            changes["permission"] = _permission(topic.permission)
        name = validation.topic_name(topic.name, "topic.name")
        kind = _type(topic.type) if topic.type else ""
        made = await self._engine.execute(
            commands.UpdateTopic(name, topic.queues, retention, tuple(changes.items()), kind)
        )
        return pb.UpdateTopicResponse(topic=responses.topic(made))

    async def GetTopic(self, raw: bytes) -> Message:
        """Settings, and the first and next offset of each queue; a retry topic is one queue of entries."""
        name = validation.browsed_name(read(pb.GetTopicRequest, raw).name, "name")
        with requests.Paths(topic="name"):
            found = (await self._engine.ask(queries.Topics(name)))[0]
        return pb.GetTopicResponse(topic=responses.topic(found.topic), queues=responses.queues(found.queues))

    async def ListTopics(self, raw: bytes) -> Message:
        """Topics by name, all or a page; those of dead letters and of results only on request."""
        request = read(pb.ListTopicsRequest, raw)
        rows = await self._engine.ask(queries.Topics(**pages.asked(request)))
        shown = [row.topic for row in rows if request.dead_letter_topics or not row.topic.is_own]
        answer = pb.ListTopicsResponse(next_page_token=pages.token(request, rows.after))
        await pages.in_turns(shown, lambda topic: answer.topics.append(responses.topic(topic)))
        return answer

    async def DeleteTopic(self, raw: bytes) -> Message:
        """Frees the name at once; the topic's data is removed later, between clients' commands (purge.py)."""
        name = validation.topic_name(read(pb.DeleteTopicRequest, raw).name, "name")
        await self._engine.execute(commands.DeleteTopic(name))
        self._forget(topic=name)
        return pb.DeleteTopicResponse()

    async def CreateGroup(self, raw: bytes) -> Message:
        """Creates a group with its dead-letter topic, or returns the existing one with equal settings."""
        group = read(pb.CreateGroupRequest, raw).group
        made, existed = await self._engine.execute(_create_group(group))
        return pb.CreateGroupResponse(group=responses.group(made), existed=existed)

    async def UpdateGroup(self, raw: bytes) -> Message:
        """Replaces all settings; fields that the request leaves unset return to their defaults."""
        wanted = _create_group(read(pb.UpdateGroupRequest, raw).group)
        made = await self._engine.execute(commands.UpdateGroup(wanted.name, vars(wanted)))
        return pb.UpdateGroupResponse(group=responses.group(made))

    async def GetGroup(self, raw: bytes) -> Message:
        """Settings, and the group's numbers in each topic that it has used."""
        name = validation.group_name(read(pb.GetGroupRequest, raw).name, "name")
        with requests.Paths(group="name"):
            group = (await self._engine.ask(queries.GroupSettings(name)))[0]
            rows = await self._engine.ask(queries.Groups("", name))
            read_by = await self._engine.ask(queries.Subscriptions(name))
        return pb.GetGroupResponse(
            group=responses.group(group),
            stats=[self._native.group_stats(row) for row in rows],
            subscriptions=[responses.subscription(*row) for row in read_by],
        )

    async def ListGroups(self, raw: bytes) -> Message:
        """Groups by name, all or a page."""
        request = read(pb.ListGroupsRequest, raw)
        rows = await self._engine.ask(queries.GroupSettings(**pages.asked(request)))
        answer = pb.ListGroupsResponse(next_page_token=pages.token(request, rows.after))
        await pages.in_turns(rows, lambda group: answer.groups.append(responses.group(group)))
        return answer

    async def SetFilter(self, raw: bytes) -> Message:
        """Sets a group's filter, from the next Pop on: docs/filters.md.

        Messages already filtered out do not come back; retries are filtered too.
        """
        request = read(pb.SetFilterRequest, raw)
        wanted = requests.wanted(request) or EVERY_MESSAGE
        topic, group = validation.topic_name(request.topic), validation.group_name(request.group)
        made = await self._engine.execute(commands.SetFilter(topic, group, wanted))
        return pb.SetFilterResponse(subscription=responses.subscription(topic, made))

    async def DeleteGroup(self, raw: bytes) -> Message:
        """Also deletes the group's positions, leases, retries and dead letters."""
        name = validation.group_name(read(pb.DeleteGroupRequest, raw).name, "name")
        await self._engine.execute(commands.DeleteGroup(name))
        self._forget(group=name)
        self._forget(topic=dead_letter_topic(name))
        self._forget(topic=results_topic(name))
        return pb.DeleteGroupResponse()

    def _forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops the rates of the deleted name."""
        self._rates.forget(group=group, topic=topic)

    async def GetStats(self, raw: bytes) -> Message:
        """Numbers of topics, groups and the store. Each part is a consistent view; the parts may differ in time.

        In pages the topics come first. A token says what a page begins with, and after which row: "t name", "g place".
        """
        request = read(pb.GetStatsRequest, raw)
        page, topic = pages.asked(request), validation.browsed_name(request.topic) if request.topic else ""
        group = validation.group_name(request.group) if request.group else ""
        kind, _, after = page["after"].partition(" ")
        answer, left, more = pb.GetStatsResponse(), page["rows_max"], ""
        if kind != "g":
            topics = await self._engine.ask(queries.Topics(name=topic, after=after, rows_max=left))
            await pages.in_turns(topics, lambda row: answer.topics.append(self._topic_stats(row)))
            after, left = "", left and left - len(topics)
            more = f"t {topics.after}" if topics.after else "g "
        if not page["rows_max"] or (left and not more.startswith("t")):
            groups = await self._engine.ask(queries.Groups(topic=topic, group=group, after=after, rows_max=left))
            groups.sort(key=lambda row: (row.group, row.topic))
            await pages.in_turns(groups, lambda row: answer.groups.append(self._native.group_stats(row)))
            more = f"g {groups.after}" if groups.after else ""
        answer.next_page_token = pages.token(request, more)
        answer.store.CopyFrom(await self._store_stats())
        return answer

    def _topic_stats(self, row: TopicNumbers) -> pb.TopicStats:
        return pb.TopicStats(
            topic=row.topic.name,
            messages=row.messages,
            sent_per_s=self._rates.per_second("Send", "", row.topic.name),
            queues=responses.queues(row.queues),
            delayed=row.delayed,
            half=row.half,
            bytes=row.bytes,
            lite_topics=row.lite_topics,
            abandoned=row.abandoned,
        )

    async def _store_stats(self) -> pb.StoreStats:
        """Sizes in bytes. Each commit is one fsync, except with `--sync none`; another engine counts no commits."""
        numbers = await self._engine.ask(queries.StoreSize())
        made, commits = pb.StoreStats(**numbers._asdict()), self._metrics.commits
        if self._metrics.has_store:
            fsyncs = commits if self._metrics.synced else 0
            made.MergeFrom(pb.StoreStats(commits=commits, fsyncs=fsyncs, **self._metrics.lateness))
        return made

    async def SetMaxSize(self, raw: bytes) -> Message:
        """Changes the limit of the data file, at once and for later starts."""
        asked = read(pb.SetMaxSizeRequest, raw).map_bytes
        await self._engine.execute(commands.SetMaxSize(check_range(asked, "map_bytes", MAX_SIZE_MIN, MAX_SIZE_MAX)))
        return pb.SetMaxSizeResponse(store=await self._store_stats())

    async def ListLeases(self, raw: bytes) -> Message:
        """The leases that the revive topic holds: soonest first, and their total number."""
        request = read(pb.ListLeasesRequest, raw)
        count = check_range(request.max_leases, "max_leases", 1, validation.ENTRIES_MAX, LEASES_DEFAULT)
        topic, group = _optional_names(request)
        asked = queries.Leases(topic, group, count, pages.begin(request))
        rows, total, page = await self._engine.ask(asked)
        leases = [
            pb.Lease(
                lease_id=row.lease_id,
                checkpoint_id=int(row.lease_id) if row.lease_id.isdecimal() else 0,  # the older name
                group=row.group,
                topic=row.topic,
                client_id=row.client,
                owner=row.owner,
                popped_ms=row.popped_ms,
                due_ms=row.due_ms,
                messages=row.members,
                undone=row.undone,
                kind=row.kind,
            )
            for row in rows
        ]
        return pb.ListLeasesResponse(leases=leases, total=total, next_page_token=pages.token(request, page))

    async def ListOwners(self, raw: bytes) -> Message:
        """Owners and what they hold; an operator releases one by ReleaseOwner with generation 0."""
        request = read(pb.ListOwnersRequest, raw)
        group = validation.group_name(request.group) if request.group else ""
        rows = await self._engine.ask(queries.Owners(group, **pages.asked(request)))
        owners = [pb.OwnerStats(**row._asdict()) for row in sorted(rows)]
        return pb.ListOwnersResponse(owners=owners, next_page_token=pages.token(request, rows.after))


def _type(kind: int) -> str:
    """The name of a topic type; unset means NORMAL."""
    if kind not in pb.TopicType.values():
        raise not_one_of("topic.type", kind, pb.TopicType.keys())
    return str(pb.TopicType.Name(kind or pb.NORMAL))


def _permission(permission: int) -> str:
    if permission not in pb.Permission.values():
        raise not_one_of("topic.permission", permission, pb.Permission.keys())
    return str(pb.Permission.Name(permission))


def _quota(quota: pb.Quota) -> dict[str, int]:
    """The quota as fields of records.Topic; 0 = no limit."""
    check_range(quota.message_bytes, "topic.quota.message_bytes", 0, BODY_BYTES_MAX)
    return {
        "send_messages_per_s": quota.send_messages_per_s,
        "send_bytes_per_s": quota.send_bytes_per_s,
        "message_bytes_max": quota.message_bytes,
        "pop_messages_per_s": quota.pop_messages_per_s,
    }


def _lite(topic: pb.Topic, kind: str) -> dict[str, int]:
    """Settings of a LITE topic as fields of records.Topic; empty for other types."""
    if kind != "LITE":
        if topic.HasField("lite"):
            raise invalid(f"a {kind} topic has no lite topics", field="topic.lite", action="leave it unset")
        return {}
    topics_max, ttl_ms = topic.lite.topics_max, topic.lite.ttl_ms
    return {
        "lite_topics_max": check_range(
            topics_max, "topic.lite.topics_max", 1, limits.LITE_TOPICS_MAX, limits.LITE_TOPICS_DEFAULT
        ),
        "lite_ttl_ms": check_range(
            ttl_ms, "topic.lite.ttl_ms", limits.LITE_TTL_MS_MIN, limits.KEEP_MS_MAX, limits.LITE_TTL_MS_DEFAULT
        ),
    }


def _unique_ids_ms(topic: pb.Topic) -> int:
    return check_range(topic.unique_ids_ms, "topic.unique_ids_ms", 0, limits.UNIQUE_IDS_MS_MAX)


def _optional_names(request: pb.ListLeasesRequest) -> tuple[str, str]:
    """(topic, group) of a request; an empty name means all."""
    topic = validation.topic_name(request.topic) if request.topic else ""
    return topic, validation.group_name(request.group) if request.group else ""


def _retention(retention: pb.Retention) -> tuple[bool, int, int]:
    """(by age, ms to keep, bytes to keep); 0 ms becomes the default. Raises Refused."""
    keep_ms = check_range(
        retention.keep_ms, "topic.retention.keep_ms", limits.KEEP_MS_MIN, limits.KEEP_MS_MAX, limits.KEEP_MS_DEFAULT
    )
    bytes_max = retention.max_bytes and check_range(
        retention.max_bytes, "topic.retention.max_bytes", limits.BYTES_MAX_MIN, requests.INT64_MAX
    )
    return retention.by_age, keep_ms, bytes_max


def _create_group(group: pb.Group) -> commands.CreateGroup:
    """Validates the settings of a group; all times ms. Raises Refused with the path of the field."""
    delays = tuple(group.backoff.delays_ms) or limits.DELAYS_MS_DEFAULT
    check_range(len(delays), "group.backoff.delays_ms", 1, DELAYS_MAX)
    for index, delay_ms in enumerate(delays):
        check_range(delay_ms, f"group.backoff.delays_ms[{index}]", 0, validation.INVISIBLE_MS_MAX)
    start_from, start_ms = requests.start_position(group.start, "group.start")
    return commands.CreateGroup(
        name=validation.group_name(group.name, "group.name"),
        max_attempts=check_range(
            group.max_attempts, "group.max_attempts", 1, requests.MAX_ATTEMPTS_MAX, limits.MAX_ATTEMPTS_DEFAULT
        ),
        delays_ms=delays,
        invisible_ms=requests.invisible_ms(group.invisible_ms, "group.invisible_ms", limits.INVISIBLE_MS_DEFAULT),
        share_number=check_range(group.share_number, "group.share_number", 0, limits.SHARE_NUMBER_MAX),
        start_from=start_from,
        start_ms=start_ms,
        exclusive_owner=group.exclusive_owner,
        fifo=group.fifo,
        in_flight_max=check_range(group.in_flight_max, "group.in_flight_max", 0, IN_FLIGHT_LIMIT_MAX) or None,
        stop_on_failure=group.stop_on_failure,
        lite_exclusive=group.lite_exclusive,
        consume_enable=not group.HasField("consume_enable") or group.consume_enable,
        subscription_expiry_ms=_expiry_ms(group),
        snoozes_max=check_range(group.snoozes_max, "group.snoozes_max", 0, limits.SNOOZES_LIMIT_MAX) or None,
        dead_letter_expired=group.dead_letter_expired,
        results_keep_ms=group.results_keep_ms
        and check_range(group.results_keep_ms, "group.results_keep_ms", limits.KEEP_MS_MIN, limits.KEEP_MS_MAX),
        fair_keys=_fair_keys(group.fair_keys) if group.HasField("fair_keys") else None,
    )


def _fair_keys(fair: pb.FairKeys) -> FairKeys:
    """Validates fair keys. Raises Refused."""
    source = fair.WhichOneof("key")
    if source is None or (source == "message_key" and not fair.message_key):
        raise invalid(
            "the fair keys have no key", field="group.fair_keys.key", action="name a property, or set message_key"
        )
    if source == "property":
        check_text(fair.property, "group.fair_keys.property", KEY_BYTES_MAX, required=True)
    check_text(fair.label_separator, "group.fair_keys.label_separator", limits.SEPARATOR_BYTES_MAX)
    check_range(len(fair.exceptions), "group.fair_keys.exceptions", 0, limits.FAIR_EXCEPTIONS_MAX)
    exceptions = tuple(
        KeyLimits(
            check_text(one.key, f"group.fair_keys.exceptions[{index}].key", PROPERTIES_BYTES_MAX),
            *_key_limits(one, f"group.fair_keys.exceptions[{index}]"),
        )
        for index, one in enumerate(fair.exceptions)
    )
    if len({one.key for one in exceptions}) < len(exceptions):
        raise invalid("a key has two exceptions", field="group.fair_keys.exceptions", action="name each key once")
    return FairKeys(
        "property" if source == "property" else "key",
        fair.property,
        fair.label_separator,
        *_key_limits(fair, "group.fair_keys"),
        exceptions,
    )


def _key_limits(given: pb.FairKeys | pb.FairKeyLimits, field: str) -> tuple[int, int]:
    """(leased messages, messages a second) of a key; 0 = no limit."""
    return (
        check_range(given.in_flight_max, f"{field}.in_flight_max", 0, IN_FLIGHT_LIMIT_MAX),
        check_range(given.messages_per_s, f"{field}.messages_per_s", 0, limits.KEY_MESSAGES_PER_S_MAX),
    )


def _expiry_ms(group: pb.Group) -> int | None:
    """0 means never; None: unset."""
    if not group.HasField("subscription_expiry_ms"):
        return None
    field, bounds = "group.subscription_expiry_ms", (limits.EXPIRY_MS_MIN, limits.EXPIRY_MS_MAX)
    return group.subscription_expiry_ms and check_range(group.subscription_expiry_ms, field, *bounds)
