"""Groups of one broker, their positions, and numbers of queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from popmq_remoting.codes import RequestCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.requests import bodies
from popmq_remoting.wire.command import Request, Response, request

#: The policy of a group reads the delay of attempt n at the place n + 2.
_UNREAD_DELAYS = 2


@dataclass(frozen=True)
class GroupConfig:
    """A group of one broker. `retry_delays_ms`: before each further attempt, the last one repeats; empty: exponential.

    `retries_max`: attempts after the first.
    """

    group: str
    retries_max: int = 16
    ordered: bool = False
    retry_delays_ms: Sequence[int] = ()
    consume_timeout_min: int = 15
    consume_enabled: bool = True


def create_group(config: GroupConfig) -> Request:
    """Creates or changes it."""
    body: dict[str, Any] = {
        "groupName": config.group,
        "consumeEnable": config.consume_enabled,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": config.ordered,
        "retryQueueNums": 1,
        "retryMaxTimes": config.retries_max,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "groupSysFlag": 0,
        "consumeTimeoutMinute": config.consume_timeout_min,
        "attributes": {},
    }
    if config.retry_delays_ms:
        delays = [config.retry_delays_ms[0]] * _UNREAD_DELAYS + list(config.retry_delays_ms)
        body["groupRetryPolicy"] = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": delays}}
    return Request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, bodies.write(body))


def all_groups() -> Request:
    """Answered by `group_table`. Ask this whether a group exists: asking for one may create it."""
    return request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)


def group_table(answer: Response) -> dict[str, GroupConfig]:
    """Groups by name. Raises BadFormat, BrokerRefused."""
    table = bodies.table(answer.expect(), "subscriptionGroupTable")
    return {name: _config(name, each) for name, each in table.items()}


def _config(name: str, data: Any) -> GroupConfig:
    if not isinstance(data, dict):
        raise BadFormat(f"the settings of group {name!r} are no JSON object")
    policy = data.get("groupRetryPolicy") or {}
    delays = (policy.get("customizedRetryPolicy") or {}).get("next") or []
    customized = policy.get("type") == "CUSTOMIZED"
    return GroupConfig(
        name,
        bodies.number(data, "retryMaxTimes", 16),
        bool(data.get("consumeMessageOrderly")),
        tuple(delays[_UNREAD_DELAYS:]) if customized else (),
        bodies.number(data, "consumeTimeoutMinute", 15),
        bool(data.get("consumeEnable", True)),
    )


def delete_group(group: str) -> Request:
    """With its positions."""
    return request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=group, cleanOffset=True)


def query_offset(group: str, topic: str, queue_id: int) -> Request:
    """Answered by the field `offset`; 22: none. Without the last field, none may be answered as 0."""
    return request(
        RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id, setZeroIfNotFound=False
    )


def update_offset(group: str, topic: str, queue_id: int, offset: int) -> Request:
    """Silently ignored while a reset waits. On disk some seconds later."""
    return request(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset
    )


def max_offset(topic: str, queue_id: int) -> Request:
    """Answered by the field `offset`, milliseconds behind the OK of a send."""
    return request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id, committed=True)


def min_offset(topic: str, queue_id: int) -> Request:
    """Answered by the field `offset`."""
    return request(RequestCode.GET_MIN_OFFSET, topic=topic, queueId=queue_id)


def offset_at(topic: str, queue_id: int, time_ms: int, upper: bool = False) -> Request:
    """Answered by the field `offset`: of the first message from then on; `upper`: of the last one until then."""
    boundary = "UPPER" if upper else "LOWER"
    return request(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=topic, queueId=queue_id, timestamp=time_ms, boundaryType=boundary
    )


def earliest_time(topic: str, queue_id: int) -> Request:
    """Answered by the field `timestamp`: when the first message was stored."""
    return request(RequestCode.GET_EARLIEST_MSG_STORETIME, topic=topic, queueId=queue_id)


def group_stats(group: str, topic: str | None = None) -> Request:
    """Answered by topics.queue_table: brokerOffset, consumerOffset, pullOffset and lastTimestamp of each queue."""
    return request(RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic=topic)


def reset_offset(group: str, topic: str, queue_id: int, offset: int) -> Request:
    """Takes effect at the next pop or pull. For a master."""
    return request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        topic=topic, group=group, queueId=queue_id, offset=offset, timestamp=-1, isForce=True,
    )  # fmt: skip


def clone_offsets(source: str, target: str, topic: str) -> Request:
    """Also while the source is online."""
    return request(RequestCode.CLONE_GROUP_OFFSET, srcGroup=source, destGroup=target, topic=topic, offline=True)


def groups_of_topic(topic: str) -> Request:
    """Answered by bodies.names(answer, "groupList")."""
    return request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic)


def topics_of_group(group: str) -> Request:
    """Answered by bodies.names(answer, "topicList")."""
    return request(RequestCode.QUERY_TOPICS_BY_CONSUMER, group=group)


def all_request_modes() -> Request:
    """Answered by `request_modes`. Since 5.1.0."""
    return request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)


def request_modes(answer: Response) -> dict[tuple[str, str], tuple[str, int]]:
    """("PULL" or "POP", share number) by topic and group, only where one was set. Raises BadFormat, BrokerRefused."""
    table = bodies.table(answer.expect(), "messageRequestModeMap")
    try:
        return {
            (topic, group): (str(each["mode"]), bodies.number(each, "popShareQueueNum"))
            for topic, groups in table.items()
            for group, each in groups.items()
        }
    except (AttributeError, KeyError, TypeError):
        raise BadFormat("messageRequestModeMap of the answer has another form") from None


def set_request_mode(group: str, topic: str, mode: str, share_number: int = 0) -> Request:
    """`mode`: "PULL" or "POP". For every broker."""
    body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": share_number}
    return Request(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, bodies.write(body))
