"""Topics on one broker: create, read, delete, count; and what the broker says about itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from popmq_remoting.codes import Permission, RequestCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.names import DEFAULT_TOPIC, QUEUES_MAX
from popmq_remoting.requests import bodies
from popmq_remoting.wire.command import Request, Response, request

#: A queue as a key, as brokers write it, and what is said of it.
_QUEUE = re.compile(r'(\{"[^{}]*\}):(\{[^{}]*\})')
#: Topics of a list that are read in one go: about a millisecond.
TOPICS_A_PIECE = 100
READ_WRITE = Permission.READ | Permission.WRITE


@dataclass(frozen=True)
class TopicConfig:
    """A topic of one broker. Brokers refuse attributes that they do not know; `message.type` is one that they do."""

    topic: str
    read_queues: int
    write_queues: int
    permission: Permission = READ_WRITE
    attributes: Mapping[str, str] = field(default_factory=dict)


def create_topic(config: TopicConfig) -> Request:
    """Creates or changes it; the same once more does nothing. It also changes the type of a topic, unasked."""
    attributes = ",".join(f"+{name}={value}" for name, value in config.attributes.items())
    return request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=config.topic,
        defaultTopic=DEFAULT_TOPIC,
        readQueueNums=config.read_queues,
        writeQueueNums=config.write_queues,
        perm=int(config.permission),
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
        attributes=attributes or None,
    )


def get_topic(topic: str) -> Request:
    """Answered by `topic_config`; 17: none. Does not create one."""
    return request(RequestCode.GET_TOPIC_CONFIG, topic=topic)


def topic_config(answer: Response) -> TopicConfig:
    """Raises BadFormat, BrokerRefused."""
    return _config(bodies.members(answer.expect()))


def _config(found: Any) -> TopicConfig:
    name = found.get("topicName") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise BadFormat("the topic's settings have no name")
    attributes = found.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise BadFormat("the topic's attributes are no JSON object")
    queues = bodies.number(found, "readQueueNums"), bodies.number(found, "writeQueueNums")
    if not 0 <= min(queues) <= max(queues) <= QUEUES_MAX:
        raise BadFormat(f"topic {name!r} with {max(queues)} queues")
    return TopicConfig(
        name,
        *queues,
        Permission(bodies.number(found, "perm") & 15),
        {str(key).removeprefix("+"): str(value) for key, value in attributes.items()},
    )


def delete_topic(topic: str) -> Request:
    """Deletes it on this broker."""
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


def topic_stats(topic: str) -> Request:
    """Answered by `queue_table(answer)`: minOffset, maxOffset and lastUpdateTimestamp of each queue."""
    return request(RequestCode.GET_TOPIC_STATS_INFO, topic=topic)


def queue_table(answer: Response) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The offsetTable of 202, 208 and 222 by topic, broker and queue. Raises BadFormat, BrokerRefused."""
    try:
        return {
            (str(queue["topic"]), str(queue["brokerName"]), int(queue["queueId"])): value
            for queue, value in _pairs(answer.expect())
        }
    except (ValueError, KeyError, TypeError):
        raise BadFormat("a key of offsetTable is no queue") from None


def _pairs(answer: Response) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Queues and what is said of them. Lists of topics need thousands, so the usual form is read by the library."""
    text = answer.body.decode("utf-8", "replace")
    pairs = _QUEUE.findall(text)
    if len(pairs) != text.count('"queueId"'):
        table = bodies.table(answer, "offsetTable")
        return [(json.loads(key), value) for key, value in table.items()]
    return [*json.loads(f"[{','.join(f'[{key},{value}]' for key, value in pairs)}]")]


def all_topics() -> Request:
    """Answered by `topic_pieces`."""
    return request(RequestCode.GET_ALL_TOPIC_CONFIG)


def topic_pieces(answer: Response) -> Iterator[dict[str, TopicConfig]]:
    """The topics of a broker by name, TOPICS_A_PIECE at a time. Raises BrokerRefused; each piece raises BadFormat."""
    pieces = bodies.pieces(answer.expect(), "topicConfigTable", TOPICS_A_PIECE)
    return ({name: _config(each) for name, each in some.items()} for some in pieces)


def runtime_info() -> Request:
    """Answered by bodies.table(answer, "table"): brokerVersionDesc, brokerVersion, disk use, rates."""
    return request(RequestCode.GET_BROKER_RUNTIME_INFO)


def replication() -> Request:
    """Answered by bodies.members(answer): inSyncSlaveNums, and haConnectionInfo, a list of connected replicas."""
    return request(RequestCode.GET_BROKER_HA_STATUS)


def broker_config() -> Request:
    """Answered by `properties_of`: all settings of the broker."""
    return request(RequestCode.GET_BROKER_CONFIG)


def properties_of(answer: Response) -> dict[str, str]:
    """The lines `name=value` of the body. Raises BrokerRefused."""
    lines = answer.expect().body.decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, mark, value in pairs if mark}
