"""Both protocols of a broker on a real port: the first byte chooses a method, the rest is its request.

A wrong request gets an answer that the contract knows; it is never a bug of the broker, and its store stays sound.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from popmq_proto.rocketmq import definition_pb2 as v2
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from tests.fuzz.target import Running, errors
from tests.wire import world as worlds
from tests.wire.contract import errors_of_page
from tests.wire.refusing.mutation import Mutator
from tests.wire.rocketmq.v2 import CLIENT, PREFIX, V2, message, resource
from tests.wire.stubs import GROUP, TOPIC, Stubs, handles, read_refusal

#: Requests after which the broker gets a new store: wrong requests delete what the next ones need.
RENEW = 400
#: What no request may be answered with.
BUGS = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.DATA_LOSS,
}
METHODS = {name: getattr(pb, name.partition("/")[2] + "Request") for name in worlds.METHODS}
V2_METHODS = {
    method.name: getattr(rpc, method.input_type.name)
    for method in rpc.DESCRIPTOR.services_by_name["MessagingService"].methods
    if not method.client_streaming
}
STREAMED = {"ReceiveMessage", "PullMessage"}


class World:
    """A broker with something of every kind, made anew after RENEW requests."""

    def __init__(self) -> None:
        self._used = RENEW
        self._broker: EmbeddedBroker | None = None
        self.stubs: Stubs
        self.v2: V2
        self.good: dict[str, Message] = {}
        self.names: list[str] = []

    def ready(self) -> None:
        if self._used == RENEW:
            self.close()
            self._open()
        self._used += 1

    def _open(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="popmq-fuzz-")
        folder, clock = Path(self._folder.name) / "data", FakeClock()
        self._broker = EmbeddedBroker(folder, clock=clock, sync="none").__enter__()
        self.stubs, self.v2 = Stubs(self._broker.endpoint), V2(self._broker.endpoint)
        world = worlds.build(self.stubs, folder, clock)
        self.good = worlds.good_requests(world)
        self.names = [TOPIC, GROUP, worlds.OTHER_TOPIC, worlds.OTHER_GROUP, worlds.OWNER, world.live, CLIENT]
        self.names += handles(self.stubs.pop(max_messages=2))
        self._used = 0

    def close(self) -> None:
        """Fails if the store is not sound."""
        if self._broker is None:
            return
        self.stubs.close()
        self.v2.channel.close()
        self._broker.__exit__(None, None, None)
        self._broker = None
        assert check_folder(Path(self._folder.name) / "data") == []
        self._folder.cleanup()


def _face(
    kinds: dict[str, Any], good: Callable[[World], dict[str, Message]], call: Callable[[World, str, bytes], None]
) -> Iterator[Running]:
    """A target over the methods of a protocol."""
    names, world = sorted(kinds), World()
    with errors("popmq") as logged:
        world.ready()

        def run(raw: bytes) -> None:
            if not raw:
                return
            world.ready()
            name = names[raw[0] % len(names)]
            call(world, name, without_waits(kinds[name], raw[1:]))
            logged.check()

        def mutate(raw: bytes, seed: int) -> bytes:
            kind = kinds[names[raw[0] % len(names)]] if raw else kinds[names[0]]
            try:
                request = kind.FromString(raw[1:])
            except DecodeError:
                request = kind()
            return raw[:1] + Mutator(seed, world.names)(request)

        requests = good(world)
        yield Running(
            run,
            [
                bytes([number]) + requests.get(name, kinds[name]()).SerializeToString()
                for number, name in enumerate(names)
            ],
            mutate,
        )
        world.close()


@contextmanager
def native() -> Iterator[Running]:
    """popmq.v1: a refusal has a code that the contract's page names for its method."""
    documented = errors_of_page()

    def call(world: World, name: str, raw: bytes) -> None:
        try:
            world.stubs.raw(name, raw)
            return
        except grpc.RpcError as error:
            refused = read_refusal(error)
        assert refused.status not in BUGS, f"{name} {raw!r} → {refused}"
        assert refused.code in documented[name.partition("/")[2]], f"{name} is not said to end so: {refused}"

    yield from _face(METHODS, lambda world: world.good, call)


@contextmanager
def rocketmq() -> Iterator[Running]:
    """apache.rocketmq.v2: an answer has a status, and none says that the broker failed."""

    def call(world: World, name: str, raw: bytes) -> None:
        if name in STREAMED:
            stream = world.v2.channel.unary_stream(PREFIX + name)(raw, metadata=world.v2.headers, timeout=60)
            answers = list(stream)
        else:
            answers = [world.v2.raw(name, raw)]
        for answer in answers:
            read = getattr(rpc, f"{name}Response").FromString(answer)
            if name not in STREAMED or read.HasField("status"):
                assert v2.Code.Name(read.status.code) not in BROKEN, f"{name} {raw!r} → {read}"

    yield from _face(V2_METHODS, _good_v2, call)


BROKEN = ("INTERNAL_SERVER_ERROR", "INTERNAL_ERROR", "CODE_UNSPECIFIED")


def _good_v2(world: World) -> dict[str, Message]:
    """A request for some methods that succeeds; the others begin with an empty one."""
    named: dict[str, Any] = {"topic": resource(TOPIC), "group": resource(GROUP)}
    queue = v2.MessageQueue(topic=resource(TOPIC), id=0)
    return {
        "SendMessage": rpc.SendMessageRequest(messages=[message(tag="t", keys=["k"], properties={"a": "1"})]),
        "ReceiveMessage": world.v2.receive_request(TOPIC, GROUP),
        "PullMessage": rpc.PullMessageRequest(group=resource(GROUP), message_queue=queue, batch_size=2),
        "QueryRoute": rpc.QueryRouteRequest(topic=resource(TOPIC)),
        "QueryAssignment": rpc.QueryAssignmentRequest(**named),
        "Heartbeat": rpc.HeartbeatRequest(group=resource(GROUP), client_type=v2.PUSH_CONSUMER),
        "AckMessage": rpc.AckMessageRequest(**named, entries=[rpc.AckMessageEntry(receipt_handle=world.names[-1])]),
        "GetOffset": rpc.GetOffsetRequest(group=resource(GROUP), message_queue=queue),
        "QueryOffset": rpc.QueryOffsetRequest(message_queue=queue),
        "UpdateOffset": rpc.UpdateOffsetRequest(group=resource(GROUP), message_queue=queue, offset=1),
        "ChangeInvisibleDuration": rpc.ChangeInvisibleDurationRequest(**named, receipt_handle=world.names[-1]),
        "ForwardMessageToDeadLetterQueue": rpc.ForwardMessageToDeadLetterQueueRequest(
            **named, receipt_handle=world.names[-1]
        ),
    }


def without_waits(kind: type[Message], raw: bytes) -> bytes:
    """The same bytes, unless the request would be parked: time stands still here."""
    try:
        request: Any = kind.FromString(raw)
    except DecodeError:
        return raw
    if getattr(request, "wait_ms", 0) > 0:
        request.wait_ms = 0
    elif "long_polling_timeout" in request.DESCRIPTOR.fields_by_name:
        request.long_polling_timeout.FromSeconds(0)  # without the field, the deadline of the call is what it waits for
    else:
        return raw
    return bytes(request.SerializeToString())
