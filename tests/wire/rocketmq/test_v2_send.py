"""apache.rocketmq.v2: messages in, as each check of the reference has it, and what nobody sees yet."""

from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from tests.wire.rocketmq.v2 import V2, WHOLE, message, resource
from tests.wire.stubs import TOPIC, Stubs

MIB = 1 << 20


def code(v2: V2, *messages: pb.Message) -> str:
    return pb.Code.Name(v2.send(*messages).status.code)


def in_ms(clock: FakeClock, later_ms: int) -> dict[str, int]:
    moment = clock.now_ms() + later_ms
    return {"seconds": moment // 1000, "nanos": moment % 1000 * 1_000_000}


def test_a_message_sent_here_is_popped_there_with_nothing_lost(shop: Stubs, v2: V2) -> None:
    sent = message(
        b"\x1f\x8b zipped",
        message_id="01C0FFEE",
        tag="paid",
        keys=["k1", "k2"],
        properties={"a": "1", "ä": "ö"},
        body_encoding=pb.GZIP,
        born_timestamp={"seconds": 1_700_000_000, "nanos": 123_000_000},
        born_host="laptop",
        trace_context="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    (entry,) = v2.send(sent).entries
    assert (entry.status.code, entry.message_id, entry.offset) == (pb.OK, "01C0FFEE", 0)
    assert (entry.transaction_id, entry.recall_handle) == ("", "")
    (delivery,) = shop.pop().deliveries
    assert delivery.message == WHOLE


def test_gzip_with_the_frame_of_zlib_is_zlib_for_others(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"\x78\x9c zlib", body_encoding=pb.GZIP))
    (delivery,) = shop.pop().deliveries
    assert delivery.message.encoding == native.ENCODING_ZLIB


@pytest.mark.slow
def test_a_batch_is_stored_in_order_with_an_entry_for_each(shop: Stubs, v2: V2) -> None:
    answer = v2.send(*(message(str(number).encode(), message_id=f"m{number}") for number in range(3)))
    assert [(entry.message_id, entry.offset) for entry in answer.entries] == [("m0", 0), ("m1", 1), ("m2", 2)]
    assert [delivery.message.body for delivery in shop.pop().deliveries] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"tag": " "}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": "a|b"}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": "a\nb"}, "ILLEGAL_MESSAGE_TAG"),
        ({"tag": "t" * (16 << 10) + "t"}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"keys": [" "]}, "ILLEGAL_MESSAGE_KEY"),
        ({"keys": ["a\0"]}, "ILLEGAL_MESSAGE_KEY"),
        ({"keys": ["k" * (8 << 10), "l" * (8 << 10), "m"]}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"keys": [str(number) for number in range(17)]}, "ILLEGAL_MESSAGE_KEY"),
        ({"message_group": " "}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_group": "g" * 64}, "ILLEGAL_MESSAGE_GROUP"),
        ({"message_group": "g\x7f"}, "ILLEGAL_MESSAGE_GROUP"),
        ({"orphaned_transaction_recovery_duration": {"seconds": 3601}}, "BAD_REQUEST"),
        ({"properties": {f"p{number}": "" for number in range(129)}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"properties": {"p": "x" * (16 << 10)}}, "MESSAGE_PROPERTIES_TOO_LARGE"),
        ({"properties": {"TAGS": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"properties": {"1ST_POP_TIME": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"properties": {"a\n": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"properties": {"a": "\r"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY"),
        ({"message_id": ""}, "ILLEGAL_MESSAGE_ID"),
        ({"message_id": " "}, "ILLEGAL_MESSAGE_ID"),
        ({"lite_topic": ""}, "ILLEGAL_LITE_TOPIC"),
        ({"lite_topic": "l" * 65}, "ILLEGAL_LITE_TOPIC"),
        ({"lite_topic": "a.b"}, "ILLEGAL_LITE_TOPIC"),
    ],
)
def test_a_message_that_the_protocol_does_not_allow_is_refused_with_its_whole_request(
    shop: Stubs, v2: V2, change: dict[str, Any], expected: str
) -> None:
    answer = v2.send(message(b"good"), message(b"bad", **change))
    assert pb.Code.Name(answer.status.code) == expected
    assert not answer.entries
    assert not shop.pop().deliveries


@pytest.mark.parametrize("long", [5_000 * "x", 40 * "é"], ids=["5,000 characters", "few characters of many bytes"])
def test_one_tag_key_or_property_name_has_no_limit_of_its_own(shop: Stubs, v2: V2, long: str) -> None:
    answer = v2.send(message(b"long", tag="t" + long, keys=["k" + long], properties={"p" + long: "v"}))
    assert answer.status.code == pb.OK
    (found,) = v2.receive(filter_expression=pb.FilterExpression(type=pb.TAG, expression=f"t{long} || other")).messages
    system = found.system_properties
    assert (system.tag, list(system.keys), dict(found.user_properties)) == ("t" + long, ["k" + long], {"p" + long: "v"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"", "MESSAGE_BODY_EMPTY"), (b"x" * (4 * MIB + 1), "MESSAGE_BODY_TOO_LARGE"), (b"x" * (4 * MIB), "OK")],
    ids=["empty", "too large", "largest"],
)
def test_a_body_has_1_byte_to_4_mib(shop: Stubs, v2: V2, body: bytes, expected: str) -> None:
    assert code(v2, message(body)) == expected


@pytest.mark.slow
def test_the_rust_client_gets_only_codes_that_it_knows(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, language="RUST") as rust:
        assert code(rust, message(b"")) == "MESSAGE_CORRUPTED"
        assert code(rust, message(lite_topic="a.b")) == "BAD_REQUEST"


@pytest.mark.slow
def test_a_request_has_messages_and_all_of_them_are_of_one_topic(shop: Stubs, v2: V2) -> None:
    shop.create_topic("other")
    assert code(v2) == "MESSAGE_CORRUPTED"
    assert code(v2, message(), message(topic="other")) == "MESSAGE_CORRUPTED"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("unknown", "TOPIC_NOT_FOUND"), ("a b", "ILLEGAL_TOPIC"), ("%DLQ%billing", "ILLEGAL_TOPIC")],
)
def test_a_topic_must_exist_and_be_writable(shop: Stubs, v2: V2, topic: str, expected: str) -> None:
    assert code(v2, message(topic=topic)) == expected


KINDS: dict[str, dict[str, Any]] = {
    "NORMAL": {"message_type": pb.NORMAL},
    "FIFO": {"message_type": pb.FIFO, "message_group": "g"},
    "DELAY": {"message_type": pb.DELAY, "delivery_timestamp": {"seconds": 1}},
    "TRANSACTION": {"message_type": pb.TRANSACTION},
    "PRIORITY": {"message_type": pb.PRIORITY, "priority": 3},
}


@pytest.mark.embedded("PRIORITY topics, as brokers 5.4 have", only=("PRIORITY",))
@pytest.mark.parametrize("topic_type", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_takes_messages_of_its_own_type_only(stubs: Stubs, v2: V2, topic_type: str, kind: str) -> None:
    stubs.create_topic(type=topic_type)
    expected = "OK" if kind == topic_type else "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
    assert code(v2, message(**KINDS[kind])) == expected


def test_a_delayed_message_is_recalled_by_its_handle_and_once(stubs: Stubs, v2: V2, clock: FakeClock) -> None:
    stubs.create_topic(type="DELAY")
    stubs.create_group()
    (entry,) = v2.send(
        message(message_type=pb.DELAY, message_id="late", delivery_timestamp=in_ms(clock, 60_500))
    ).entries
    answer = v2.call("RecallMessage", topic=resource(TOPIC), recall_handle=entry.recall_handle)
    assert (answer.status.code, answer.message_id) == (pb.OK, "late")
    again = v2.code("RecallMessage", topic=resource(TOPIC), recall_handle=entry.recall_handle)
    assert again == "MESSAGE_NOT_FOUND"
    clock.advance(61_000)
    assert not stubs.pop().deliveries


@pytest.mark.parametrize(
    ("topic", "handle", "expected"),
    [
        ("later", "nonsense", "BAD_REQUEST"),
        (TOPIC, "nonsense", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        ("unknown", "nonsense", "TOPIC_NOT_FOUND"),
    ],
)
def test_an_invalid_v2_recall_is_refused(shop: Stubs, v2: V2, topic: str, handle: str, expected: str) -> None:
    shop.create_topic("later", type="DELAY")
    assert v2.code("RecallMessage", topic=resource(topic), recall_handle=handle) == expected


@pytest.mark.parametrize(("resolution", "delivered"), [(pb.COMMIT, 1), (pb.ROLLBACK, 0)], ids=["commit", "rollback"])
def test_a_half_message_is_decided_once_and_may_be_decided_so_again(
    stubs: Stubs, v2: V2, resolution: pb.TransactionResolution, delivered: int
) -> None:
    stubs.create_topic(type="TRANSACTION")
    stubs.create_group()
    (entry,) = v2.send(message(message_type=pb.TRANSACTION)).entries
    assert entry.message_id == "01AB"
    assert not stubs.pop().deliveries

    def end(how: pb.TransactionResolution, transaction_id: str = entry.transaction_id) -> str:
        return v2.code(
            "EndTransaction",
            topic=resource(TOPIC),
            message_id="01AB",
            transaction_id=transaction_id,
            resolution=how,
        )

    assert end(pb.TRANSACTION_RESOLUTION_UNSPECIFIED) == "OK"
    assert [end(resolution), end(resolution)] == ["OK", "OK"]
    assert end(pb.ROLLBACK if resolution == pb.COMMIT else pb.COMMIT) == "INVALID_TRANSACTION_ID"
    assert [end(resolution, wrong) for wrong in ("", " ", "nonsense")] == ["INVALID_TRANSACTION_ID"] * 3
    assert len(stubs.pop().deliveries) == delivered


def test_a_topic_beyond_its_quota_asks_for_patience(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(quota=native.Quota(send_messages_per_s=1))
    codes = [code(v2, message()) for _ in range(4)]
    assert codes[-1] == "TOO_MANY_REQUESTS"
