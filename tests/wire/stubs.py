"""The tools of a client in any language: generated stubs on a channel, and the stock helper that reads refusals."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import grpc
import lmdb
from grpc_status import rpc_status

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc
from tests.wire.connect.channel import HttpChannel

TOPIC, GROUP = "orders", "billing"
#: No call of a test may take longer, in seconds: a broker that hangs fails its test with DEADLINE_EXCEEDED.
CALL_S = 60.0
OPTIONS = [
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),
]


class Refusal(NamedTuple):
    """A refused call: the gRPC status, and the one ErrorInfo in its details."""

    status: grpc.StatusCode
    info: pb.ErrorInfo

    @property
    def code(self) -> str:
        return pb.Code.Name(self.info.code)


class Stubs:
    """One channel. Lower-case methods are calls that tests make often; everything else goes through the stubs."""

    def __init__(self, endpoint: str, http_url: str = "") -> None:
        """`http_url`: of a port over which the unary calls go instead."""
        self.channel: Any = grpc.insecure_channel(endpoint, options=OPTIONS)
        if http_url:
            self.channel = HttpChannel(http_url, self.channel)
        self.broker: Any = rpc.BrokerStub(self.channel)
        self.admin: Any = rpc.AdminStub(self.channel)

    def create_topic(self, name: str = TOPIC, **settings: Any) -> pb.Topic:
        request = pb.CreateTopicRequest(topic=pb.Topic(name=name, **settings))
        answer: pb.CreateTopicResponse = self.admin.CreateTopic(request, timeout=CALL_S)
        return answer.topic

    def create_group(self, name: str = GROUP, **settings: Any) -> pb.Group:
        request = pb.CreateGroupRequest(group=pb.Group(name=name, **settings))
        answer: pb.CreateGroupResponse = self.admin.CreateGroup(request, timeout=CALL_S)
        return answer.group

    def send(self, *bodies: bytes, topic: str = TOPIC) -> list[pb.SendResult]:
        messages = [pb.Message(message_id=body[:64].decode(), body=body) for body in bodies]
        answer: pb.SendResponse = self.broker.Send(pb.SendRequest(topic=topic, messages=messages), timeout=CALL_S)
        assert [result.error.code for result in answer.results] == [0] * len(bodies)
        return list(answer.results)

    def pop(self, topic: str = TOPIC, group: str = GROUP, **fields: Any) -> pb.PopResponse:
        answer: pb.PopResponse = self.broker.Pop(pb.PopRequest(topic=topic, group=group, **fields), timeout=CALL_S)
        return answer

    def pop_later(self, topic: str = TOPIC, group: str = GROUP, wait_ms: int = 60_000, **fields: Any) -> Any:
        """A long poll on its way: a grpc.Future."""
        request = pb.PopRequest(topic=topic, group=group, wait_ms=wait_ms, **fields)
        return self.broker.Pop.future(request, timeout=CALL_S)

    def ack(self, *handles: str, group: str = GROUP) -> list[str]:
        """The codes of the entries; "" = done."""
        answer: pb.AckResponse = self.broker.Ack(pb.AckRequest(group=group, handles=handles), timeout=CALL_S)
        return codes(answer.results) or [""] * len(handles)

    def change(self, handle: str, group: str = GROUP, **change: Any) -> pb.InvisibleTimeResult:
        """One of extend, release, reject for one handle."""
        request = pb.ChangeInvisibleTimeRequest(group=group, changes=[pb.InvisibleTimeChange(handle=handle, **change)])
        (result,) = self.broker.ChangeInvisibleTime(request, timeout=CALL_S).results
        assert isinstance(result, pb.InvisibleTimeResult)
        return result

    def stats(self, topic: str = TOPIC, group: str = GROUP) -> pb.GroupStats:
        answer: pb.GetStatsResponse = self.admin.GetStats(pb.GetStatsRequest(topic=topic, group=group), timeout=CALL_S)
        (numbers,) = answer.groups
        return numbers

    def counted(self, topic: str = TOPIC, group: str = GROUP) -> dict[str, Any]:
        """The numbers of a group in a topic that are not 0."""
        return {field.name: value for field, value in self.stats(topic, group).ListFields() if value}

    def attach(self, owner: str = "query", lease_ms: int = 60_000, **fields: Any) -> pb.AttachOwnerResponse:
        request = pb.AttachOwnerRequest(**{"group": GROUP, "owner": owner, "lease_ms": lease_ms, **fields})
        answer: pb.AttachOwnerResponse = self.broker.AttachOwner(request, timeout=CALL_S)
        return answer

    def raw(self, method: str, request: bytes) -> bytes:
        """A call with bytes as they are; `method` as "Broker/Send"."""
        if method == "Admin/Backup":
            stream: Any = self.channel.unary_stream(f"/popmq.v1.{method}")
            return b"".join(stream(request, timeout=CALL_S))
        call: Any = self.channel.unary_unary(f"/popmq.v1.{method}")
        answer: bytes = call(request, timeout=CALL_S)
        return answer

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Stubs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def codes(results: Iterable[Any]) -> list[str]:
    """The codes of the entries of an answer, "" for those that succeeded."""
    return [pb.Code.Name(result.error.code) if result.HasField("error") else "" for result in results]


def bodies(answer: pb.PopResponse) -> list[bytes]:
    return [delivery.message.body for delivery in answer.deliveries]


def handles(answer: pb.PopResponse) -> list[str]:
    return [delivery.handle for delivery in answer.deliveries]


def reject(shop: Stubs, reason: str, *texts: bytes, topic: str = TOPIC) -> None:
    """Makes dead letters of new messages."""
    shop.send(*texts, topic=topic)
    for handle in handles(shop.pop(topic, max_messages=len(texts))):
        shop.change(handle, reject=pb.Reject(reason=reason))


def refusal(call: Callable[..., Any], request: Any) -> Refusal:
    """Makes a call that must be refused, and reads why as every language would: by the stock helper."""
    try:
        answer = call(request, timeout=CALL_S)
    except grpc.RpcError as error:
        return read_refusal(error)
    raise AssertionError(f"answered {answer!r} instead of refusing")


def read_refusal(error: Any) -> Refusal:
    """The ErrorInfo of a failed call; AssertionError when it does not keep what the contract says of every refusal."""
    rich = rpc_status.from_call(error)
    assert rich is not None, f"{error.code()} {error.details()} carries no google.rpc.Status"
    info = pb.ErrorInfo()
    assert len(rich.details) == 1
    assert rich.details[0].Unpack(info), rich.details[0].type_url
    assert rich.code == error.code().value[0]
    assert rich.message == error.details() == info.message
    check_error(info)
    return Refusal(error.code(), info)


def check_error(info: pb.ErrorInfo) -> None:
    """Checks what every ErrorInfo must have, of a call or of an entry."""
    assert info.code in pb.Code.values()
    assert info.code != pb.CODE_UNSPECIFIED
    assert info.message, "why"
    assert info.action, f"{info.message}: what to do about it"
    assert info.retry_after_ms >= 0
    assert info.retryable or not info.retry_after_ms, "a hint when to retry what cannot succeed"


def dump(folder: Path) -> dict[str, dict[bytes, bytes]]:
    """Everything that the data file holds, by database. The broker may run, but must be idle: a copy is read."""
    found: dict[str, dict[bytes, bytes]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copy(folder / "popmq.mdb", scratch)
        with lmdb.open(str(copy), subdir=False, readonly=True, lock=False, max_dbs=64) as store, store.begin() as view:
            for name, _ in view.cursor():
                database = store.open_db(bytes(name), view, create=False)
                found[bytes(name).decode()] = dict(view.cursor(database))
    return found
