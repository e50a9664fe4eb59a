"""Reads by offset, by key and by place; and messages that are sent back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from popmq_remoting.codes import PullFlag, RequestCode, ResponseCode
from popmq_remoting.messages import stored
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.wire.command import Request, Response, request

#: Codes of a pull that have numbers of the queue with them.
PULLED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True)
class BrokerPull:
    """`wait_ms` above 0: parked until there are messages. `filter_type`: "TAG" or "SQL92"."""

    topic: str
    group: str
    queue_id: int
    offset: int
    messages_max: int = 32
    wait_ms: int = 0
    expression: str = "*"
    filter_type: str = "TAG"
    bytes_max: int | None = None


class PulledQueue(NamedTuple):
    """What a queue holds at an offset. `better_broker_id`: which replica to ask next.

    `status`: a name of GetMessageStatus of the brokers, which tells more than the code.
    """

    code: int
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    better_broker_id: int
    status: str = ""


def pull(asked: BrokerPull) -> Request:
    """Answered by `pulled`. It carries its filter, so no heartbeat is needed; the group must exist."""
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if asked.wait_ms else 0)
    return request(
        RequestCode.PULL_MESSAGE,
        consumerGroup=asked.group,
        topic=asked.topic,
        queueId=asked.queue_id,
        queueOffset=asked.offset,
        maxMsgNums=asked.messages_max,
        sysFlag=int(flags),
        commitOffset=0,
        suspendTimeoutMillis=asked.wait_ms,
        subscription=asked.expression,
        subVersion=0,
        expressionType=asked.filter_type,
        maxMsgBytes=asked.bytes_max,
    )


def pulled(answer: Response) -> PulledQueue:
    """Raises BrokerRefused, BadFormat."""
    answer.expect(*PULLED)
    return PulledQueue(
        answer.code,
        stored.read_all(answer.body) if answer.code == ResponseCode.SUCCESS else [],
        answer.number("nextBeginOffset"),
        answer.number("minOffset"),
        answer.number("maxOffset"),
        answer.number("suggestWhichBrokerId", 0),
        answer.remark,
    )


def query_message(topic: str, key: str, messages_max: int, begin_ms: int, end_ms: int, unique: bool) -> Request:
    """By one of its keys, or by UNIQ_KEY (`unique`). An index by hashes: compare key and topic again. 22: none."""
    asked = request(
        RequestCode.QUERY_MESSAGE,
        topic=topic,
        key=key,
        maxNum=messages_max,
        beginTimestamp=begin_ms,
        endTimestamp=end_ms,
    )
    return asked._replace(fields={**asked.fields, "_UNIQUE_KEY_QUERY": "true"}) if unique else asked


def view_message(topic: str, commit_log_offset: int) -> Request:
    """One message by its place. 1: it is not there."""
    return request(RequestCode.VIEW_MESSAGE_BY_ID, topic=topic, offset=commit_log_offset)


#: Delay levels of `send_back`: by the number of attempts, or no further attempt.
BY_ATTEMPTS, DEAD_LETTER = 0, -1


def send_back(group: str, topic: str, message: StoredMessage, delay_level: int, retries_max: int) -> Request:
    """To the group's retry topic, or to its dead letters. Repeated, it stores another one."""
    return request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=message.commit_log_offset,
        group=group,
        delayLevel=delay_level,
        originMsgId=message.offset_id,
        originTopic=topic,
        unitMode=False,
        maxReconsumeTimes=retries_max,
    )
