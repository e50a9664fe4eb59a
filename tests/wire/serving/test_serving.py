"""The server around the calls: health, reflection, what is reserved, sizes, and bytes that are no requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from popmq_server.process import serving
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, read_refusal, refusal
from tests.wire.world import METHODS

SERVICES = ("popmq.v1.Admin", "popmq.v1.Broker")
#: Truncated, no UTF-8, a group without an end, field 0, a length beyond everything.
NO_REQUESTS = [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"\x0b", b"\x00\x00", b"\x0a" + b"\xff" * 10]
#: Requests in which field 1 is no text; one that has no field at all takes field 0 too, with some runtimes.
WITHOUT_TEXT = tuple(
    f"Admin/{name}"
    for name in (
        *("ListTopics", "ListGroups", "ListSchedules", "ListBrokers", "ListAccessKeys"),
        *("GetInfo", "Backup", "SetMaxSize"),
    )
)


def health(stubs: Stubs) -> Any:
    return health_pb2_grpc.HealthStub(stubs.channel)


def raw_refusal(stubs: Stubs, method: str, request: bytes) -> pb.ErrorInfo:
    """The refusal of bytes that are no request."""
    with pytest.raises(grpc.RpcError) as error:
        stubs.raw(method, request)
    return read_refusal(error.value).info


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_health_is_served_for_the_server_and_each_service(stubs: Stubs, service: str) -> None:
    answer = health(stubs).Check(health_pb2.HealthCheckRequest(service=service), timeout=CALL_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_health_knows_no_other_service(stubs: Stubs) -> None:
    with pytest.raises(grpc.RpcError) as error:
        health(stubs).Check(health_pb2.HealthCheckRequest(service="popmq.v2.Broker"), timeout=CALL_S)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("raw", NO_REQUESTS)
def test_bytes_that_are_no_request_are_refused_by_health_and_reflection(stubs: Stubs, raw: bytes) -> None:
    reflected = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    for called in (
        lambda: stubs.channel.unary_unary("/grpc.health.v1.Health/Check")(raw, timeout=CALL_S),
        lambda: list(stubs.channel.unary_stream("/grpc.health.v1.Health/Watch")(raw, timeout=CALL_S)),
        lambda: list(stubs.channel.stream_stream(reflected)(iter([raw]), timeout=CALL_S)),
    ):
        with pytest.raises(grpc.RpcError) as error:
            called()
        assert read_refusal(error.value).info.code == pb.INVALID_FIELD


@pytest.mark.slow
def test_a_health_watch_reports_the_stop_and_does_not_delay_it(
    broker: EmbeddedBroker, stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch lasts as long as its client: a drain that waited for it would always take its whole time."""
    monkeypatch.setattr(serving, "DRAIN_S", 3_600.0)
    watched: Iterator[Any] = health(stubs).Watch(health_pb2.HealthCheckRequest())
    assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
    broker.stop()
    assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_reflection_lists_the_services_and_gives_the_contract(stubs: Stubs) -> None:
    found = ProtoReflectionDescriptorDatabase(stubs.channel)
    assert set(found.get_services()) >= {*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    served = found.FindFileContainingSymbol("popmq.v1.Broker")
    written = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(written)
    assert served == written


def test_reflection_gives_the_other_protocol_with_what_it_imports(stubs: Stubs) -> None:
    found = ProtoReflectionDescriptorDatabase(stubs.channel)
    service = found.FindFileContainingSymbol("apache.rocketmq.v2.MessagingService")
    assert [method.name for method in service.service[0].method][:2] == ["QueryRoute", "Heartbeat"]
    for name in service.dependency:
        assert found.FindFileByName(name).name == name


@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("popmq.v1.Broker.Send", "popmq/v1/popmq.proto"),
        ("popmq.v1.SendRequest.topic", "popmq/v1/popmq.proto"),
        ("popmq.v1.SessionRequest.request", "popmq/v1/popmq.proto"),
        ("popmq.v1.ConsumeMode.PULL", "popmq/v1/popmq.proto"),
        ("popmq.v1.PULL", "popmq/v1/popmq.proto"),
        ("apache.rocketmq.v2.MessagingService.SendMessage", "apache/rocketmq/v2/service.proto"),
        ("google.rpc.Status", "google/rpc/status.proto"),
        ("grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto"),
        ("grpc.reflection.v1.ServerReflection.ServerReflectionInfo", "grpc/reflection/v1/reflection.proto"),
        ("grpc.reflection.v1.ServerReflectionResponse", "grpc/reflection/v1/reflection.proto"),
        ("popmq.v1.Broker.Nothing", ""),
        ("popmq.v1.SendRequest.nothing", ""),
        ("", ""),
    ],
)
def test_reflection_finds_what_a_name_is_a_part_of_by_both_of_its_services(
    stubs: Stubs, package: str, symbol: str, file: str
) -> None:
    assert package + ".ServerReflection" in ProtoReflectionDescriptorDatabase(stubs.channel).get_services()
    call: Any = stubs.channel.stream_stream(
        f"/{package}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
    (answer,) = call(iter([request]), timeout=CALL_S)
    assert answer.original_request == request
    files = answer.file_descriptor_response.file_descriptor_proto
    assert (FileDescriptorProto.FromString(files[0]).name if files else "") == file


def test_reflection_does_not_know_what_is_not_there(stubs: Stubs) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(stubs.channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="popmq.v1.Nothing")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=CALL_S)
    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_every_method_of_the_contract_is_served(stubs: Stubs) -> None:
    written = {
        f"{service}/{method.name}"
        for service in ("Broker", "Admin")
        for method in pb.DESCRIPTOR.services_by_name[service].methods
    }
    assert written - {"Broker/Session"} == set(METHODS)
    for method in METHODS:
        with pytest.raises(grpc.RpcError) as error:
            stubs.raw(method, b"\xff")
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT, method


def test_a_method_that_is_not_there_is_unimplemented(stubs: Stubs) -> None:
    with pytest.raises(grpc.RpcError) as error:
        stubs.raw("Broker/Nothing", b"")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_port_is_never_shared_with_a_second_broker(broker: EmbeddedBroker, shop: Stubs, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"port {broker.port} .*--port"):
        EmbeddedBroker(tmp_path / "second", port=broker.port, sync="none").start()
    shop.send(b"a")
    assert bodies(shop.pop()) == [b"a"]


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_request_of_19_mebibytes_is_refused_by_the_contract(shop: Stubs) -> None:
    messages = [pb.Message(body=b"x" * (1 << 20))] * 19
    refused = refusal(shop.broker.Send, pb.SendRequest(topic=TOPIC, messages=messages))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "messages")


def test_a_request_beyond_20_mebibytes_is_refused_by_the_transport_and_others_go_on(shop: Stubs) -> None:
    messages = [pb.Message(body=b"x" * (1 << 20))] * 21
    with pytest.raises(grpc.RpcError) as error:
        shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    shop.send(b"a")
    assert bodies(shop.pop()) == [b"a"]


@pytest.mark.slow
def test_a_full_answer_of_16_mebibytes_arrives(shop: Stubs) -> None:
    for _ in range(2):
        messages = [pb.Message(body=b"x" * ((1 << 20) - 100))] * 8
        shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    answer = shop.pop(max_bytes=16 << 20, format=pb.FORMAT_COLUMNS)
    assert len(answer.columns.body) == 16


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "request_bytes"),
    [
        (method, raw)
        for method in METHODS
        for raw in NO_REQUESTS
        if method not in WITHOUT_TEXT or raw not in (b"\x0a\x02\xff\xfe", b"\x00\x00")
    ],
)
def test_bytes_that_are_no_request_are_reported_by_their_type(stubs: Stubs, method: str, request_bytes: bytes) -> None:
    info = raw_refusal(stubs, method, request_bytes)
    assert pb.Code.Name(info.code) == "INVALID_FIELD"
    assert f"popmq.v1.{method.partition('/')[2]}Request" in info.message
    assert not info.field


def test_texts_are_utf8_also_in_the_middle_of_a_list(shop: Stubs) -> None:
    request = pb.AckRequest(group=GROUP, handles=["a", "b"]).SerializeToString()
    info = raw_refusal(shop, "Broker/Ack", request[:-1] + b"\xff")
    assert pb.Code.Name(info.code) == "INVALID_FIELD"


@pytest.mark.parametrize(
    "bad",
    [b"\x0a\x01\xff\x12\x01x", b"\x12\x05x", b"\xff\xff", b"\x2a\x07\x0a\x01\xff\x12\x02ab\x12\x01x"],
    ids=["an id that is no UTF-8", "truncated", "no message", "a property that is no UTF-8"],
)
def test_bytes_that_are_no_message_are_refused_and_their_neighbours_stored(shop: Stubs, bad: bytes) -> None:
    good = pb.Message(message_id="good", body=b"good").SerializeToString()
    parts = [b"\x12" + bytes([len(raw)]) + raw for raw in (good, bad, good)]
    whole = pb.SendRequest(topic=TOPIC).SerializeToString() + b"".join(parts)
    results = pb.SendResponse.FromString(shop.raw("Broker/Send", whole)).results
    assert [pb.Code.Name(result.error.code) for result in results] == [
        "CODE_UNSPECIFIED",
        "INVALID_FIELD",
        "CODE_UNSPECIFIED",
    ]
    assert results[1].error.field == "messages[1]"
    assert results[1].error.action
    assert bodies(shop.pop()) == [b"good", b"good"]


def test_unknown_fields_are_ignored(shop: Stubs) -> None:
    shop.send(b"a")
    later = b"\xa2\x06\x03new" + b"\xa8\x06\x07" + b"\xb5\x06\x01\x02\x03\x04"  # fields 100, 101, 102
    request = pb.PopRequest(topic=TOPIC, group=GROUP).SerializeToString() + later
    assert bodies(pb.PopResponse.FromString(shop.raw("Broker/Pop", request))) == [b"a"]


def test_a_request_of_another_type_is_judged_by_its_fields(shop: Stubs) -> None:
    """An Ack sent to Pop: field 1 is a topic to it, field 2 a group."""
    request = pb.AckRequest(group=TOPIC, handles=["a b"]).SerializeToString()
    info = raw_refusal(shop, "Broker/Pop", request)
    assert (pb.Code.Name(info.code), info.field) == ("INVALID_FIELD", "group")


def test_a_field_that_stands_twice_counts_as_its_last(shop: Stubs) -> None:
    shop.send(b"a")
    request = (
        pb.PopRequest(topic="nobody").SerializeToString() + pb.PopRequest(topic=TOPIC, group=GROUP).SerializeToString()
    )
    assert bodies(pb.PopResponse.FromString(shop.raw("Broker/Pop", request))) == [b"a"]


@pytest.mark.slow
def test_the_refusal_of_an_empty_request_says_what_is_missing(stubs: Stubs) -> None:
    lists = {
        "Admin/ListTopics",
        "Admin/ListGroups",
        "Admin/GetInfo",
        "Admin/ListBrokers",
        "Admin/GetStats",
        "Admin/GetHistory",
        "Admin/ListLeases",
        "Admin/ListOwners",
        "Admin/ListAccessKeys",
        "Admin/ListDelayed",
        "Admin/ListSchedules",
        "Admin/ListTransactions",
        "Admin/ListSessions",
        "Admin/Backup",
    }
    for method in METHODS:
        if method in lists:
            stubs.raw(method, b"")
        else:
            info = raw_refusal(stubs, method, b"")
            # An empty group stands for what was given up: a topic that is made when it is needed.
            code = "TOPIC_NOT_FOUND" if "DeadLetter" in method else "INVALID_FIELD"
            assert pb.Code.Name(info.code) == code, method
            assert info.field, method
