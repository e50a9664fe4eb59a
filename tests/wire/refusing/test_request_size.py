"""Requests of more bytes or elements than a valid one has are refused before they are parsed."""

from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as v2
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.store.store_pb2 import SendView, SettleView, StageView
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.errors import Refused
from popmq_server.protocols.access import request_size
from popmq_server.protocols.native.requests import read
from popmq_server.protocols.validation import ENTRIES_MAX
from popmq_server.values.message import REASON_BYTES_MAX, TOPIC_NAME_MAX
from tests.wire.stubs import GROUP, TOPIC, Stubs, refusal

MIB = 1 << 20


def field(number: int, payload: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
    size, head = len(payload), b""
    while size > 0x7F:
        head += bytes((size & 0x7F | 0x80,))
        size >>= 7
    return bytes((number << 3 | 2,)) + head + bytes((size,)) + payload


def many(number: int, size: int = MIB) -> bytes:
    """A list of empty elements in `size` bytes."""
    return field(number, b"") * (size // 2)


class Unparsed:
    """A kind of request that may not be parsed."""

    def __init__(self, kind: Any) -> None:
        self.DESCRIPTOR = kind.DESCRIPTOR

    def FromString(self, _: bytes) -> None:
        raise AssertionError("the request was parsed")


def why(kind: Any, raw: bytes) -> str:
    """The refusal of a request that may not be parsed."""
    unparsed: Any = Unparsed(kind)
    with pytest.raises(Refused) as refused:
        read(unparsed, raw)
    assert refused.value.code == "INVALID_FIELD"
    assert refused.value.action
    return refused.value.message


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (StageView, many(2, 3 * MIB)),
        (SendView, many(2, 3 * MIB)),
        (pb.CommitBatchRequest, many(3)),
        (pb.DropStagesRequest, many(2)),
        (pb.SendBackRequest, many(3)),
        (pb.ChangeInvisibleTimeRequest, many(2)),
        (pb.EndTransactionRequest, many(1)),
        (pb.PullRequest, many(13)),
        (pb.PopRequest, field(11, field(7, many(1, MIB // 2)))),
        (rpc.SendMessageRequest, many(1)),
        (rpc.QueryRouteRequest, field(2, many(2, MIB // 2))),
        (rpc.TelemetryCommand, field(2, field(6, many(2)))),
    ],
    ids=lambda each: each.DESCRIPTOR.name if hasattr(each, "DESCRIPTOR") else "",
)
def test_a_request_of_too_many_elements_is_refused_before_it_is_parsed(kind: Any, raw: bytes) -> None:
    assert "more than 10000 elements" in why(kind, raw)


def test_a_request_without_messages_has_at_most_a_mebibyte() -> None:
    raw = pb.RedriveDeadLettersRequest(offsets=[1] * 2 * MIB).SerializeToString()
    expected = f"the request has {len(raw)} bytes, at most 1048576 are allowed in a popmq.v1.RedriveDeadLettersRequest"
    assert why(pb.RedriveDeadLettersRequest, raw) == expected


NAME, LONG = "t" * TOPIC_NAME_MAX, "s" * 128


@pytest.mark.parametrize(
    "request_",
    [
        pb.CommitBatchRequest(stages=[pb.StageName(stage_id=LONG, topic=NAME, messages=9_999)] * ENTRIES_MAX),
        pb.HeartbeatRequest(topics=[NAME] * ENTRIES_MAX),
        pb.AckRequest(handles=[LONG] * ENTRIES_MAX),
        pb.EndTransactionRequest(ends=[pb.TransactionEnd(transaction_id=LONG)] * ENTRIES_MAX),
        pb.RedriveDeadLettersRequest(offsets=[1 << 62] * ENTRIES_MAX, message_ids=[LONG] * ENTRIES_MAX),
        pb.ChangeInvisibleTimeRequest(
            changes=[pb.InvisibleTimeChange(handle=LONG, reject=pb.Reject(reason="r" * REASON_BYTES_MAX))] * ENTRIES_MAX
        ),
        StageView(messages=[b"b" * 4_000] * ENTRIES_MAX),
        SettleView(handles=[LONG] * ENTRIES_MAX, sends=[b"b" * 4_000] * ENTRIES_MAX),
        rpc.SendMessageRequest(messages=[v2.Message(body=b"b" * 4_000)] * ENTRIES_MAX),
        rpc.AckMessageRequest(
            entries=[rpc.AckMessageEntry(message_id="m" * 64, receipt_handle="h" * 64)] * ENTRIES_MAX
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_largest_request_of_each_kind_is_parsed(request_: Any) -> None:
    kind: Any = type(request_)
    raw = request_.SerializeToString()
    assert len(raw) > request_size.FREE_BYTES
    assert read(kind, raw) == request_


def test_an_ack_of_all_its_handles_is_not_counted_whoever_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handles of an engine in front of a cluster have 150 characters."""
    counted: list[bytes] = []
    too_many = request_size._too_many

    def count(raw: bytes, parts: request_size.Parts) -> bool:
        counted.append(raw)
        return too_many(raw, parts)

    monkeypatch.setattr(request_size, "_too_many", count)
    raw = pb.AckRequest(group=GROUP, handles=["h" * 150] * ENTRIES_MAX).SerializeToString()
    assert len(raw) > request_size.FREE_BYTES
    read(pb.AckRequest, raw)
    assert counted == []
    with pytest.raises(Refused, match="more than 10000 elements"):
        read(pb.AckRequest, pb.AckRequest(handles=["h"] * (request_size.ELEMENTS_MAX + 1) * 5).SerializeToString())
    assert counted


@pytest.mark.parametrize("end", [b"\xff" * MIB, b"\x12\xff\xff\xff\xff\x7f", b"\x08", b"\x12\xff"])
def test_bytes_that_are_no_protobuf_are_left_to_the_parser(end: bytes) -> None:
    raw = field(2, b"x" * 2 * MIB) + end
    request_size.check(StageView, raw)
    with pytest.raises(Refused, match="the request's bytes are not"):
        read(StageView, raw)


@pytest.mark.parametrize(("size", "named"), [(MIB, "messages"), (3 * MIB, "")])
def test_a_send_of_too_many_messages_is_refused(stubs: Stubs, size: int, named: str) -> None:
    raw = pb.SendRequest(topic=TOPIC).SerializeToString() + many(2, size)
    call: Any = stubs.channel.unary_unary("/popmq.v1.Broker/Send")
    refused = refusal(call, raw)
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", named)


def test_a_pop_names_at_most_as_many_queues_as_a_topic_has(stubs: Stubs) -> None:
    stubs.create_topic()
    stubs.create_group()
    assert not stubs.pop(queues=[0] * 1_024).deliveries
    refused = refusal(stubs.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, queues=[0] * 1_025))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "queues")
