"""PullMessage of apache.rocketmq.v2, as raw calls."""

from typing import Any, NamedTuple

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from tests.wire.rocketmq.v2 import PREFIX, V2, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC


class Pulled(NamedTuple):
    code: str
    bodies: list[bytes]
    next_offset: int


def begin(v2: V2, offset: int = 0, **fields: Any) -> Any:
    """A PullMessage on its way."""
    names: dict[str, Any] = {"topic": TOPIC, "group": GROUP, "queue": 0, "poll_ms": 0} | fields
    given = {name: value for name, value in fields.items() if name not in ("topic", "group", "queue", "poll_ms")}
    request = rpc.PullMessageRequest(
        group=resource(names["group"]), message_queue=queue(names["queue"], names["topic"]), offset=offset, **given
    )
    request.long_polling_timeout.FromMilliseconds(names["poll_ms"])
    call: Any = v2.channel.unary_stream(PREFIX + "PullMessage")
    return call(request.SerializeToString(), metadata=v2.headers, timeout=CALL_S)


def end(call: Any) -> Pulled:
    elements = [rpc.PullMessageResponse.FromString(raw) for raw in call]
    kinds = [element.WhichOneof("content") for element in elements]
    assert kinds[0] == "status"
    assert kinds[1:] == ["message"] * (len(kinds) - 2) + ["next_offset"] * (len(kinds) > 1)
    bodies = [element.message.body for element in elements[1:-1]]
    return Pulled(pb.Code.Name(elements[0].status.code), bodies, elements[-1].next_offset)


def pull(v2: V2, offset: int = 0, **fields: Any) -> Pulled:
    return end(begin(v2, offset, **fields))


def queue(number: int = 0, topic: str = TOPIC) -> pb.MessageQueue:
    return pb.MessageQueue(topic=resource(topic), id=number)
