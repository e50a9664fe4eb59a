"""Clients as brokers see them: heartbeats, members of groups, locks of queues, and what brokers relay to them.

A member is a connection: a broker keeps one client id for each connection and group. Groups that only produce may share
a connection; members of a group that shares queues may not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.requests import bodies
from popmq_remoting.wire.command import Request, Response, request


class MemberSubscription(NamedTuple):
    """What a member reads."""

    topic: str
    expression: str = "*"
    filter_type: str = "TAG"


class Membership(NamedTuple):
    """A group that a client is in. `consume_type`: CONSUME_POP, CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull)."""

    group: str
    subscriptions: tuple[MemberSubscription, ...] = ()
    consume_type: str = "CONSUME_PASSIVELY"


def heartbeat(client_id: str, producers: Iterable[str] = (), memberships: Iterable[Membership] = ()) -> Request:
    """Each 30 s to every broker; one that hears none for 120 s forgets the client."""
    body = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": group} for group in producers],
        "consumerDataSet": [_membership(each) for each in memberships],
        "heartbeatFingerprint": 0,
    }
    return Request(RequestCode.HEART_BEAT, {}, bodies.write(body))


def _membership(membership: Membership) -> dict[str, Any]:
    return {
        "groupName": membership.group,
        "consumeType": membership.consume_type,
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [
            {
                "topic": each.topic,
                "subString": each.expression,
                "tagsSet": [],
                "codeSet": [],
                "subVersion": 0,
                "expressionType": each.filter_type,
            }
            for each in membership.subscriptions
        ],
        "unitMode": False,
    }


def unregister(client_id: str, producer: str | None = None, consumer: str | None = None) -> Request:
    """Takes this connection out of a group."""
    return request(RequestCode.UNREGISTER_CLIENT, clientID=client_id, producerGroup=producer, consumerGroup=consumer)


def member_ids(group: str) -> Request:
    """Answered by `ids`."""
    return request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)


def ids(answer: Response) -> list[str]:
    """Ids of the members, in their order; none if the group has none. Raises BrokerRefused, BadFormat."""
    if answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.CONSUMER_NOT_ONLINE):
        return []
    return sorted(bodies.names(answer.expect(), "consumerIdList"))


def consumers(group: str) -> Request:
    """Answered by `connections`; 206: none."""
    return request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)


def producers(group: str) -> Request:
    """Answered by `connections`; 1: none."""
    return request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup=group)


def all_producers() -> Request:
    """Of all groups. Answered by `producers_by_group`."""
    return request(RequestCode.GET_ALL_PRODUCER_INFO)


class ConnectedProducer(NamedTuple):
    """A producer that a broker knows. `last_ms`: when it was heard last, by the broker's clock."""

    client_id: str
    last_ms: int


def producers_by_group(answer: Response) -> dict[str, list[ConnectedProducer]]:
    """Raises BrokerRefused, BadFormat."""
    found = bodies.members(answer.expect()).get("data") or {}
    try:
        return {
            str(group): [ConnectedProducer(str(each["clientId"]), int(each["lastUpdateTimestamp"])) for each in rows]
            for group, rows in found.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadFormat("data of the answer has another form") from None


class ConnectedClient(NamedTuple):
    """A client that a broker knows."""

    client_id: str
    address: str
    language: str
    version: int


def connections(answer: Response) -> list[ConnectedClient]:
    """None if nobody is there. Raises BrokerRefused, BadFormat."""
    if answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.CONSUMER_NOT_ONLINE):
        return []
    found = bodies.members(answer.expect()).get("connectionSet") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadFormat("connectionSet of the answer is no list of objects")
    return [
        ConnectedClient(
            str(each.get("clientId", "")),
            str(each.get("clientAddr", "")),
            str(each.get("language", "")),
            bodies.number(each, "version"),
        )
        for each in found
    ]


def running_info(group: str, client_id: str, with_stack: bool) -> Request:
    """Relayed to the member, whose answer is the broker's."""
    return request(
        RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=group, clientId=client_id, jstackEnable=with_stack
    )


def consume_directly(group: str, client_id: str, topic: str, message_id: str, broker: str) -> Request:
    """Asks the broker to relay a message to a member, which consumes it now."""
    return request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        consumerGroup=group, clientId=client_id, msgId=message_id, brokerName=broker, topic=topic,
    )  # fmt: skip


class BrokerQueue(NamedTuple):
    """A queue as brokers name it."""

    topic: str
    broker: str
    queue_id: int


def lock_queues(group: str, client_id: str, queues: Iterable[BrokerQueue]) -> Request:
    """For 60 s, in this broker's memory. Answered by `locked`."""
    return Request(RequestCode.LOCK_BATCH_MQ, {}, _queues(group, client_id, queues))


def unlock_queues(group: str, client_id: str, queues: Iterable[BrokerQueue]) -> Request:
    """Unlocks queues."""
    return Request(RequestCode.UNLOCK_BATCH_MQ, {}, _queues(group, client_id, queues))


def locked(answer: Response) -> set[BrokerQueue]:
    """The queues that are locked for the client now. Raises BrokerRefused, BadFormat."""
    found = bodies.members(answer.expect()).get("lockOKMQSet") or []
    try:
        return {BrokerQueue(str(each["topic"]), str(each["brokerName"]), int(each["queueId"])) for each in found}
    except (KeyError, TypeError, ValueError):
        raise BadFormat("lockOKMQSet of the answer has another form") from None


def _queues(group: str, client_id: str, queues: Iterable[BrokerQueue]) -> bytes:
    named = [{"topic": each.topic, "brokerName": each.broker, "queueId": each.queue_id} for each in queues]
    return bodies.write({"consumerGroup": group, "clientId": client_id, "mqSet": named, "onlyThisBroker": True})
