"""Raw calls of apache.rocketmq.v2 with the headers of an official RocketMQ 5 client."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple

import grpc

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from tests.wire.stubs import CALL_S, GROUP, OPTIONS, TOPIC

#: A message of popmq.v1 with all that apache.rocketmq.v2 has a field for.
WHOLE = native.Message(
    message_id="01C0FFEE",
    body=b"\x1f\x8b zipped",
    tag="paid",
    keys=["k1", "k2"],
    properties={"a": "1", "ä": "ö"},
    encoding=native.ENCODING_GZIP,
    born_ms=1_700_000_000_123,
    born_host="laptop",
    trace_context=native.TraceContext(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
)
PREFIX = "/apache.rocketmq.v2.MessagingService/"
CLIENT = "host@1@0@abc"


def resource(name: str, namespace: str = "") -> pb.Resource:
    return pb.Resource(resource_namespace=namespace, name=name)


def message(body: bytes = b"body", topic: str = TOPIC, **system: Any) -> pb.Message:
    """A message as clients make them. `properties`: the user's."""
    properties = system.pop("properties", {})
    fields: dict[str, Any] = {"message_id": "01AB", "message_type": pb.NORMAL, "body_encoding": pb.IDENTITY} | system
    return pb.Message(
        topic=resource(topic), body=body, user_properties=properties, system_properties=pb.SystemProperties(**fields)
    )


class Received(NamedTuple):
    """One ReceiveMessage: how it ended, its messages, and whether the last element was the time of delivery."""

    code: pb.Code
    messages: list[pb.Message]
    timed: bool


class V2:
    """One client on one channel; `call("SendMessage", messages=[…])` is the answer."""

    def __init__(self, endpoint: str, client_id: str = CLIENT, language: str = "JAVA", **headers: str) -> None:
        self.channel: Any = grpc.insecure_channel(endpoint, options=OPTIONS)
        self.endpoint = endpoint
        names = {"x-mq-client-id": client_id, "x-mq-language": language}
        names |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers = [(name, value) for name, value in names.items() if value or name == "x-mq-namespace"]

    def call(self, name: str, /, **fields: Any) -> Any:
        """The answer of a unary call."""
        method = rpc.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name[name]
        kinds: list[Any] = [getattr(rpc, kind.name) for kind in (method.input_type, method.output_type)]
        raw = kinds[0](**fields).SerializeToString()
        return kinds[1].FromString(self.raw(name, raw))

    def raw(self, name: str, raw: bytes) -> bytes:
        answer: bytes = self.channel.unary_unary(PREFIX + name)(raw, metadata=self.headers, timeout=CALL_S)
        return answer

    def code(self, name: str, /, **fields: Any) -> str:
        """The name of the code that a unary call is answered with."""
        return pb.Code.Name(self.call(name, **fields).status.code)

    def send(self, *messages: pb.Message) -> rpc.SendMessageResponse:
        answer: rpc.SendMessageResponse = self.call("SendMessage", messages=messages)
        return answer

    def receive(self, topic: str = TOPIC, group: str = GROUP, deadline_s: float = CALL_S, **fields: Any) -> Received:
        """`poll_ms`: the wait that is asked for, 0 unless said; `invisible_s`: of the lease."""
        request = self.receive_request(topic, group, **fields)
        elements = [
            rpc.ReceiveMessageResponse.FromString(raw)
            for raw in self.channel.unary_stream(PREFIX + "ReceiveMessage")(
                request.SerializeToString(), metadata=self.headers, timeout=deadline_s
            )
        ]
        kinds = [element.WhichOneof("content") for element in elements]
        assert kinds[0] == "status"
        messages = [element.message for element in elements if element.HasField("message")]
        return Received(elements[0].status.code, messages, kinds[-1] == "delivery_timestamp")

    def receive_request(self, topic: str = TOPIC, group: str = GROUP, **fields: Any) -> rpc.ReceiveMessageRequest:
        poll_ms, invisible_s = fields.pop("poll_ms", 0), fields.pop("invisible_s", 30)
        request = rpc.ReceiveMessageRequest(
            group=resource(group),
            message_queue=pb.MessageQueue(topic=resource(topic), id=fields.pop("queue", 0)),
            **{"batch_size": 32, **fields},
        )
        request.long_polling_timeout.FromMilliseconds(poll_ms)
        if not request.auto_renew:
            request.invisible_duration.FromMilliseconds(int(invisible_s * 1000))
        return request

    def ack(self, *messages: pb.Message, topic: str = TOPIC, group: str = GROUP) -> rpc.AckMessageResponse:
        entries = [
            rpc.AckMessageEntry(
                message_id=message.system_properties.message_id, receipt_handle=message.system_properties.receipt_handle
            )
            for message in messages
        ]
        answer: rpc.AckMessageResponse = self.call(
            "AckMessage", topic=resource(topic), group=resource(group), entries=entries
        )
        return answer

    def telemetry(self) -> Telemetry:
        return Telemetry(self)

    def __enter__(self) -> V2:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.channel.close()


def code(v2: V2, **fields: Any) -> str:
    """The name of the code that a ReceiveMessage ends with."""
    return pb.Code.Name(v2.receive(**fields).code)


def bodies(received: Received) -> list[bytes]:
    return [one.body for one in received.messages]


def later(v2: V2, deadline_s: float = CALL_S, **fields: Any) -> Any:
    """A ReceiveMessage on its way: an iterator of its elements, and a grpc.Call."""
    request = v2.receive_request(**fields).SerializeToString()
    call: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
    return call(request, metadata=v2.headers, timeout=deadline_s)


class Telemetry:
    """One stream; `say` a command, `hear` the next of the broker's. `within_s`: how long it may last."""

    def __init__(self, client: V2, within_s: float = CALL_S) -> None:
        self._said: queue.Queue[bytes | None] = queue.Queue()
        method = client.channel.stream_stream(PREFIX + "Telemetry")
        self.stream: Any = method(self._lines(), metadata=client.headers, timeout=within_s)

    def _lines(self) -> Iterator[bytes]:
        while (line := self._said.get()) is not None:
            yield line

    def say(self, **command: Any) -> None:
        self._said.put(rpc.TelemetryCommand(**command).SerializeToString())

    def hear(self) -> rpc.TelemetryCommand:
        return rpc.TelemetryCommand.FromString(next(self.stream))

    def agree(self, **settings: Any) -> rpc.TelemetryCommand:
        """Sends settings; returns the answer."""
        self.say(settings=pb.Settings(**settings))
        return self.hear()

    def close(self) -> None:
        self._said.put(None)

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.stream.cancel()


class Obliging(threading.Thread):
    """A client on a given channel that answers an operator's calls until the channel is closed."""

    def __init__(self, channel: Any, client_id: str = CLIENT) -> None:
        super().__init__(daemon=True)
        self.verified: list[pb.Message] = []
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._stream = channel.stream_stream(PREFIX + "Telemetry")(
            iter(self._answers.get, b""), metadata=[("x-mq-client-id", client_id)]
        )
        self._answers.put(rpc.TelemetryCommand(settings=pb.Settings(publishing=pb.Publishing())).SerializeToString())
        next(self._stream)
        self.start()

    def run(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for raw in self._stream:
                asked = rpc.TelemetryCommand.FromString(raw)
                answer = rpc.TelemetryCommand(status=pb.Status(code=pb.OK, message="done"))
                if asked.HasField("verify_message_command"):
                    self.verified.append(asked.verify_message_command.message)
                    answer.verify_message_result.nonce = asked.verify_message_command.nonce
                else:
                    answer.thread_stack_trace.nonce = asked.print_thread_stack_trace_command.nonce
                    answer.thread_stack_trace.thread_stack_trace = "main: waiting"
                self._answers.put(answer.SerializeToString())
        self._answers.put(b"")


#: Where a client says that it reached the broker.
HERE = pb.Endpoints(scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="broker.example", port=7000)])


def route(v2: V2, topic: str, endpoints: pb.Endpoints = HERE) -> Any:
    """QueryRoute of a client that reached the broker at `endpoints`."""
    return v2.call("QueryRoute", topic=resource(topic), endpoints=endpoints)


def handle(found: pb.Message) -> str:
    return found.system_properties.receipt_handle


def change(v2: V2, found: pb.Message, ms: int, **fields: Any) -> rpc.ChangeInvisibleDurationResponse:
    request = {"topic": resource(TOPIC), "group": resource(GROUP), "receipt_handle": handle(found)} | fields
    duration = {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}
    answer: rpc.ChangeInvisibleDurationResponse = v2.call(
        "ChangeInvisibleDuration", invisible_duration=duration, **request
    )
    return answer


def changed(v2: V2, found: pb.Message, ms: int, **fields: Any) -> str:
    return pb.Code.Name(change(v2, found, ms, **fields).status.code)


def dead_letter(v2: V2, found: pb.Message, **fields: Any) -> str:
    request = {
        "topic": resource(TOPIC),
        "group": resource(GROUP),
        "receipt_handle": handle(found),
        "message_id": found.system_properties.message_id,
        "delivery_attempt": 3,
        "max_delivery_attempts": 3,
    }
    return v2.code("ForwardMessageToDeadLetterQueue", **request | fields)


def acked(v2: V2, *found: pb.Message, **fields: Any) -> str:
    return pb.Code.Name(v2.ack(*found, **fields).status.code)
