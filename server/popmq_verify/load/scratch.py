"""Creates, uses, deletes and re-creates a topic of one name while the broker is killed: nothing old may come back.

Recorded as `scratch`: the call has the topic and the number of its life, the answer the ids that a Pop
delivered. An id names the life in which it was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import grpc

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.load.history import History
from popmq_verify.load.stubs import Stubs

MESSAGES = 20
#: Statuses after which a call is repeated. RESOURCE_EXHAUSTED: the disk of a campaign is full for a while.
RETRYABLE = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


class Caller(Protocol):
    """The part of a load client that this module uses. `number`: the next life; `stop` exists at the end."""

    name: str
    number: int
    stop: Path
    stubs: Stubs

    def call(self, kind: str, method: Any, request: Any, told: Callable[[Any], dict[str, Any]], **asked: Any) -> Any:
        """The recorded answer, or None when there was none."""


def recreate(client: Caller, group: str) -> None:
    """Two lives of one name: the first ends with leases open and messages unread, the second must begin empty."""
    topic, life = f"scratch-{client.name}", client.number
    broker, admin = client.stubs.broker, client.stubs.admin
    make = pb.CreateTopicRequest(topic=pb.Topic(name=topic, queues=2))
    _insist(client, admin.CreateTopic, make)
    messages = [pb.Message(message_id=f"{life}/{i}", body=b"scratch") for i in range(MESSAGES)]
    send = pb.SendRequest(topic=topic, messages=messages, producer_id=f"{client.name}-scratch", request_number=life + 1)
    _insist(client, broker.Send, send)
    _pop(client, topic, group, life)
    _insist(client, admin.DeleteTopic, pb.DeleteTopicRequest(name=topic))
    _insist(client, admin.CreateTopic, make)
    if client.stop.exists():
        return  # perhaps not deleted: the messages may be of the first life
    _pop(client, topic, group, life + 1)
    _insist(client, admin.DeleteTopic, pb.DeleteTopicRequest(name=topic))
    client.number += 1


def _pop(client: Caller, topic: str, group: str, life: int) -> None:
    """Pops half of the messages, so that the topic is deleted while some are leased and some unread."""
    request = pb.PopRequest(topic=topic, group=group, max_messages=MESSAGES // 2, invisible_ms=1000)
    told = {"topic": topic, "life": life}
    client.call("scratch", client.stubs.broker.Pop, request, lambda answer: {"ids": _ids(answer)}, **told)


def _ids(answer: pb.PopResponse) -> list[str]:
    """The message ids of an answer."""
    return [delivery.message.message_id for delivery in answer.deliveries]


def _insist(client: Caller, method: Any, request: Any) -> None:
    """Repeats until it is done; a delete that finds nothing was done before."""
    while not client.stop.exists():
        try:
            method(request, timeout=5)
            return
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return
            if error.code() not in RETRYABLE:
                raise
            time.sleep(0.02)


def check(history: History) -> Iterator[tuple[str, str]]:
    """Every message of an earlier life."""
    for pop in history.of("scratch"):
        old = [one for one in pop.told.get("ids", ()) if not one.startswith(f"{pop.asked['life']}/")]
        if old:
            yield "phantom", f"{pop.asked['topic']}, deleted and made again, gave {old[0]} of an earlier life"
