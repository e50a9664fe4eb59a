"""Pops, acks, changes of leases, notifications and peeks: JSON headers only, whose codes fit no other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.messages import stored
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.pops import acks, infos
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.pops.handles import PopHandle
from popmq_remoting.wire.command import Request, Response, request

#: Messages of one pop.
MESSAGES_MAX = 32
#: Answers of a pop without messages: none is there, or the wait is over.
EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT)
#: In the remark of a POLLING_TIMEOUT that says nothing of messages: by the broker's clock the pop is too old.
_TOO_OLD = "timeout too much"


@dataclass(frozen=True)
class BrokerPop:
    """`queue_id` -1: all queues of the broker. `from_start`: a new group begins with the first message, not the last.

    `born_ms`: BrokerClock.pop_born_ms. `filter_type`: "TAG" or "SQL92"; tags are compared by hash, so compare again.
    """

    topic: str
    group: str
    invisible_ms: int
    born_ms: int
    messages_max: int = MESSAGES_MAX
    queue_id: int = -1
    poll_ms: int = 0
    from_start: bool = True
    ordered: bool = False
    filter_type: str | None = None
    expression: str | None = None
    attempt_id: str | None = None
    broker: str | None = None


class PopOutcome(NamedTuple):
    """What a pop took; `rest`: messages that are left in the queues that it looked at.

    `is_too_old`: the broker did not look, since its clock is further ahead than `born_ms` says.
    """

    rows: list[infos.PoppedMessage]
    pop_ms: int
    rest: int
    is_too_old: bool = False


def pop(asked: BrokerPop) -> Request:
    """Answered by `popped`."""
    return request(
        RequestCode.POP_MESSAGE,
        consumerGroup=asked.group,
        topic=asked.topic,
        queueId=asked.queue_id,
        maxMsgNums=asked.messages_max,
        invisibleTime=asked.invisible_ms,
        pollTime=asked.poll_ms,
        bornTime=asked.born_ms,
        initMode=0 if asked.from_start else 1,
        expType=asked.filter_type,
        exp=asked.expression,
        order=asked.ordered,
        attemptId=asked.attempt_id,
        bname=asked.broker,
    )


def popped(answer: Response, broker: str) -> PopOutcome:
    """The messages with their handles; none if there is none. Raises BrokerRefused, BadFormat."""
    if answer.code in EMPTY:
        return PopOutcome([], answer.number("popTime", 0), answer.number("restNum", 0), _TOO_OLD in answer.remark)
    answer.expect()
    fields = answer.fields
    said = infos.PopInfos(
        broker,
        answer.number("popTime"),
        answer.number("invisibleTime"),
        answer.number("reviveQid"),
        infos.read_starts(fields.get("startOffsetInfo", "")),
        infos.read_offsets(fields.get("msgOffsetInfo", "")),
        infos.read_starts(fields.get("orderCountInfo", "")),
    )
    return PopOutcome(infos.popped(stored.read_all(answer.body), said), said.pop_ms, answer.number("restNum", 0))


def ack(topic: str, group: str, handle: PopHandle) -> Request:
    """One message. Late and repeated acks are answered 0 and do nothing. `topic`: never a retry topic."""
    return request(
        RequestCode.ACK_MESSAGE,
        consumerGroup=group,
        topic=handle.topic(topic, group),
        queueId=handle.queue_id,
        extraInfo=handle.text(),
        offset=handle.queue_offset,
        bname=handle.broker,
    )


def batch_ack(broker: str, many: Iterable[PopAck]) -> Request:
    """Many messages of a broker, which stores one record. Since 5.1.3; asks for no rights. Raises BadFormat."""
    return Request(RequestCode.BATCH_ACK_MESSAGE, {}, acks.batch_body(broker, many))


def change(topic: str, group: str, handle: PopHandle, invisible_ms: int) -> Request:
    """A new end of the lease, counted from now. Answered by `changed`."""
    return request(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        consumerGroup=group,
        topic=handle.topic(topic, group),
        queueId=handle.queue_id,
        extraInfo=handle.text(),
        offset=handle.queue_offset,
        invisibleTime=invisible_ms,
        bname=handle.broker,
    )


def changed(answer: Response, handle: PopHandle) -> PopHandle | None:
    """The handle from now on; None: an ordered delivery that is over already. Raises BrokerRefused, BadFormat."""
    answer.expect()
    pop_ms = answer.number("popTime", 0)
    if not pop_ms:
        return None
    return handle.renewed(pop_ms, answer.number("invisibleTime"), answer.number("reviveQid"))


def notification(
    topic: str, group: str, poll_ms: int, born_ms: int, queue_id: int = -1, ordered: bool = False
) -> Request:
    """Waits until there may be messages, without taking any. Answered by `has_messages`."""
    return request(
        RequestCode.NOTIFICATION,
        consumerGroup=group,
        topic=topic,
        queueId=queue_id,
        pollTime=poll_ms,
        bornTime=born_ms,
        order=ordered,
    )


def has_messages(answer: Response) -> bool:
    """Raises BrokerRefused; with POLLING_FULL if the broker parks no more."""
    if answer.code in EMPTY:
        return False
    answer.expect()
    if answer.fields.get("pollingFull") == "true":
        Response(ResponseCode.POLLING_FULL, "too many requests are parked").expect()
    return answer.fields.get("hasMsg") == "true"


def peek(topic: str, group: str, messages_max: int, queue_id: int = -1) -> Request:
    """Answered by `messages`. Takes no lease and no filter."""
    return request(
        RequestCode.PEEK_MESSAGE, consumerGroup=group, topic=topic, queueId=queue_id, maxMsgNums=messages_max
    )


def messages(answer: Response) -> list[StoredMessage]:
    """Those of the body; none if there is none. Raises BrokerRefused, BadFormat."""
    none = (*EMPTY, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.QUERY_NOT_FOUND)
    return [] if answer.code in none else stored.read_all(answer.expect().body)
