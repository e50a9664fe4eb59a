"""What the load's threads call: a client of popmq.v1, or one of apache.rocketmq.v2, which RocketMQ's proxies speak too.

Each call ends with an answer or with Failed, in CALL_S. The one of popmq.v1 is the SDK, which tries again by itself.
That of v2 does what official clients do: a connection that is lost is opened again, with its settings, within the call,
and one whose telemetry stream has ended, as a broker that stops ends it, before the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc

import popmq
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from tests.wire.rocketmq.v2 import V2, Telemetry, message, resource

INVISIBLE_S = 20.0
POP_WAIT_S = 0.5
CALL_S = 15.0
#: Of the client of v2, between two tries.
_PAUSE_S = 0.05
T = TypeVar("T")


class Failed(Exception):
    """A call that was refused, or had no answer; the text says why."""


class Taken(NamedTuple):
    """One delivery. `queue`: of a first attempt; -1: it is not known. `ack` raises Failed."""

    message_id: str
    body: bytes
    attempt: int
    queue: int
    ack: Callable[[], None]


class Caller(Protocol):
    """One client, for one thread."""

    def send(self, topic: str, message_id: str, message_group: str = "") -> int:
        """The queue in which it was stored; -1 if the answer does not say. Raises Failed."""
        ...

    def pop(self, topic: str, group: str) -> list[Taken]:
        """Raises Failed."""
        ...

    def close(self) -> None: ...


class SdkCaller:
    """popmq.Client. `retry`: of sends and pops; acks are tried until their answer comes, as any gateway takes them."""

    def __init__(self, endpoint: str, retry: popmq.Retry | None = None) -> None:
        timeouts = popmq.Timeouts.all(CALL_S)
        self._client = popmq.Client(endpoint, timeouts=timeouts, retry=retry or popmq.Retry())
        self._acks = popmq.Client(endpoint, timeouts=timeouts)

    def send(self, topic: str, message_id: str, message_group: str = "") -> int:
        sent = popmq.Message(message_id.encode(), message_id=message_id, message_group=message_group)
        return _told(lambda: self._client.send(topic, sent)).queue

    def pop(self, topic: str, group: str) -> list[Taken]:
        found = _told(lambda: self._client.pop(topic, group, wait=POP_WAIT_S, invisible=INVISIBLE_S))
        return [
            Taken(
                each.message_id,
                each.body,
                each.attempt,
                each.queue if each.attempt == 1 else -1,
                # `each.ack()` would ack in the background, and nobody would hear the answer.
                lambda each=each: _told(lambda: self._acks.ack(each)),  # type: ignore[misc]  # of this turn
            )
            for each in found
        ]

    def close(self) -> None:
        self._client.close()
        self._acks.close()


def _told(call: Callable[[], T]) -> T:
    try:
        return call()
    except popmq.PopMQError as error:
        raise Failed(f"{type(error).__name__}: {error}") from error


class V2Caller:
    """A client of apache.rocketmq.v2. `tries`: of a send; 1: it is never sent again."""

    def __init__(self, endpoint: str, group: str, client_id: str, tries: int = 0) -> None:
        self._endpoint, self._group, self._id, self._tries = endpoint, group, client_id, tries
        self._open: tuple[V2, Telemetry] | None = None
        self._beat_s = 0.0
        self._turn = 0

    def send(self, topic: str, message_id: str, message_group: str = "") -> int:
        system = {"message_group": message_group, "message_type": pb.FIFO} if message_group else {}
        sent = message(message_id.encode(), topic, message_id=message_id, **system)
        sent.system_properties.born_timestamp.GetCurrentTime()
        answer = self._called(lambda v2: v2.send(sent), self._tries)
        _ok(answer.status)
        _ok(answer.entries[0].status)
        return -1

    def pop(self, topic: str, group: str) -> list[Taken]:
        self._turn += 1
        queues = self._called(
            lambda v2: v2.call("QueryAssignment", topic=resource(topic), group=resource(group), endpoints=_ENDPOINTS)
        ).assignments
        if not queues:
            return []
        queue = queues[self._turn % len(queues)].message_queue
        request = rpc.ReceiveMessageRequest(group=resource(group), message_queue=queue, batch_size=32)
        request.filter_expression.expression = "*"
        request.invisible_duration.FromMilliseconds(int(INVISIBLE_S * 1000))
        request.long_polling_timeout.FromMilliseconds(int(POP_WAIT_S * 1000))
        found = self._called(lambda v2: _received(v2, request))
        return [
            Taken(
                each.system_properties.message_id,
                each.body,
                each.system_properties.delivery_attempt,
                -1,
                lambda each=each: self._ack(topic, group, each),  # type: ignore[misc]  # the delivery of this turn
            )
            for each in found
        ]

    def _ack(self, topic: str, group: str, found: pb.Message) -> None:
        answer = self._called(lambda v2: v2.ack(found, topic=topic, group=group))
        _ok(answer.entries[0].status if answer.entries else answer.status)

    def _called(self, call: Callable[[V2], T], tries: int = 0) -> T:
        """Tries until CALL_S is over, or so many times. Raises Failed."""
        until_s, tried = time.monotonic() + CALL_S, 0
        while True:
            tried += 1
            try:
                return call(self._connected())
            except grpc.RpcError as error:
                self.close()
                if tried == tries or time.monotonic() > until_s:
                    raise Failed(str(error)) from error
                time.sleep(_PAUSE_S)

    def _connected(self) -> V2:
        """The client, with a telemetry stream and heartbeats, without which a proxy knows no settings.

        Raises grpc.RpcError.
        """
        if self._open is not None and self._open[1].stream.done():
            self.close()
        if self._open is None:
            v2 = V2(self._endpoint, self._id)
            stream = Telemetry(v2, _STREAM_S)
            self._open = v2, stream
            settings: dict[str, Any] = {"client_type": pb.SIMPLE_CONSUMER, "access_point": _ENDPOINTS}
            stream.agree(**settings, subscription=pb.Subscription(group=resource(self._group)))
        if time.monotonic() > self._beat_s + _BEAT_S:
            self._open[0].call("Heartbeat", group=resource(self._group), client_type=pb.SIMPLE_CONSUMER)
            self._beat_s = time.monotonic()
        return self._open[0]

    def close(self) -> None:
        if self._open is not None:
            v2, stream = self._open
            self._open = None
            stream.close()
            stream.stream.cancel()
            v2.channel.close()


#: As official clients do. A proxy forgets the settings of a client that it has not heard for two minutes.
_BEAT_S = 10.0
#: A telemetry stream lasts so long, then its client connects again: one that nobody answers ends, too.
_STREAM_S = 120.0
_ENDPOINTS = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)])


def _received(v2: V2, request: rpc.ReceiveMessageRequest) -> list[pb.Message]:
    method = v2.channel.unary_stream("/apache.rocketmq.v2.MessagingService/ReceiveMessage")
    answers = [
        rpc.ReceiveMessageResponse.FromString(raw)
        for raw in method(request.SerializeToString(), metadata=v2.headers, timeout=CALL_S)
    ]
    found = [each.message for each in answers if each.HasField("message")]
    statuses = [each.status for each in answers if each.HasField("status")]
    if not found and statuses and statuses[0].code not in (pb.OK, pb.MESSAGE_NOT_FOUND):
        _ok(statuses[0])
    return found


def _ok(status: pb.Status) -> None:
    if status.code != pb.OK:
        raise Failed(f"{pb.Code.Name(status.code)}: {status.message}")
