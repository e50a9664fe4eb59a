"""Send, as the contract says it: each sentence a claim."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.conftest import OVER_HTTP
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, check_error, codes, refusal


def send(stubs: Stubs, *messages: pb.Message, **fields: Any) -> pb.SendResponse:
    request = pb.SendRequest(**{"topic": TOPIC, "messages": messages, **fields})
    answer: pb.SendResponse = stubs.broker.Send(request, timeout=CALL_S)
    return answer


def test_a_message_is_delivered_as_it_was_sent(either_shop: Stubs, clock: FakeClock) -> None:
    sent = pb.Message(
        message_id="é" * 64,
        body=b"\0\xff" * 500,
        tag="paid",
        keys=["k" * 128] * 16,
        properties={"name": "välue", "empty": ""},
        encoding=pb.ENCODING_ZSTD,
        trace_context=pb.TraceContext(traceparent="t" * 512, tracestate="s" * 512),
        born_ms=123,
        born_host="h" * 256,
    )
    (result,) = send(either_shop, sent).results
    (delivery,) = either_shop.pop().deliveries
    assert delivery.message == sent
    assert (delivery.queue, delivery.offset, delivery.attempt) == (result.queue, result.offset, 1)
    assert result.message_id == sent.message_id
    assert delivery.stored_ms == clock.now_ms()


@pytest.mark.skipif(OVER_HTTP, reason="JSON has only the fields that the contract names")
def test_fields_of_a_later_contract_travel_with_the_message(either_shop: Stubs) -> None:
    raw = pb.Message(message_id="m", body=b"b").SerializeToString() + b"\xa2\x06\x03new"  # field 100, "new"
    whole = pb.SendRequest(topic=TOPIC).SerializeToString() + b"\x12" + bytes([len(raw)]) + raw + b"\xaa\x06\x01!"
    either_shop.raw("Broker/Send", whole)
    (delivery,) = either_shop.pop().deliveries
    assert delivery.message.SerializeToString() == raw


@pytest.mark.slow
def test_the_broker_makes_ids_for_messages_without_one(either_shop: Stubs) -> None:
    results = send(either_shop, *(pb.Message(body=b"same") for _ in range(100))).results
    made = [result.message_id for result in results]
    assert len(set(made)) == 100
    popped = either_shop.pop(max_messages=100)
    assert [delivery.message.message_id for delivery in popped.deliveries] == made


@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        (pb.Message(), "INVALID_FIELD", "body"),
        (pb.Message(body=b"x" * ((4 << 20) + 1)), "INVALID_FIELD", "body"),
        (pb.Message(body=b"x", message_id="m" * 129), "INVALID_FIELD", "message_id"),
        (pb.Message(body=b"x", born_host="h" * 257), "INVALID_FIELD", "born_host"),
        (pb.Message(body=b"x", transaction=True, check_after_ms=999), "INVALID_FIELD", "check_after_ms"),
        (pb.Message(body=b"x", transaction=True, check_after_ms=3_600_001), "INVALID_FIELD", "check_after_ms"),
        (pb.Message(body=b"x", check_after_ms=1_000), "INVALID_FIELD", "check_after_ms"),
        (pb.Message(body=b"x", message_id="é" * 65), "INVALID_FIELD", "message_id"),
        (pb.Message(body=b"x", tag="t" * 65), "INVALID_FIELD", "tag"),
        (pb.Message(body=b"x", tag="é" * 33), "INVALID_FIELD", "tag"),
        (pb.Message(body=b"x", tag="a||b"), "INVALID_FIELD", "tag"),
        (pb.Message(body=b"x", tag="two words"), "INVALID_FIELD", "tag"),
        (pb.Message(body=b"x", tag="line\n"), "INVALID_FIELD", "tag"),
        (pb.Message(body=b"x", tag="no\u00a0break"), "INVALID_FIELD", "tag"),
        (pb.Message(body=b"x", keys=["k"] * 17), "INVALID_FIELD", "keys"),
        (pb.Message(body=b"x", keys=["k", ""]), "INVALID_FIELD", "keys[1]"),
        (pb.Message(body=b"x", keys=["k" * 129]), "INVALID_FIELD", "keys[0]"),
        (pb.Message(body=b"x", properties={str(n): "" for n in range(129)}), "INVALID_FIELD", "properties"),
        (pb.Message(body=b"x", properties={"": "v"}), "INVALID_FIELD", "properties"),
        (pb.Message(body=b"x", properties={"n" * 129: "v"}), "INVALID_FIELD", "properties"),
        (pb.Message(body=b"x", properties={"n": "v" * (64 << 10)}), "INVALID_FIELD", "properties"),
        (pb.Message(body=b"x", message_group="g"), "INVALID_FIELD", "message_group"),
        (pb.Message(body=b"x", deliver_at_ms=1), "INVALID_FIELD", "deliver_at_ms"),
        (pb.Message(body=b"x", deliver_at_ms=-(2**63)), "INVALID_FIELD", "deliver_at_ms"),
        (pb.Message(body=b"x", deliver_at_ms=2**62), "INVALID_FIELD", "deliver_at_ms"),
        (pb.Message(body=b"x", priority=-1), "INVALID_FIELD", "priority"),
        (pb.Message(body=b"x", transaction=True), "INVALID_FIELD", "transaction"),
        (pb.Message(body=b"x", encoding=5), "INVALID_FIELD", "encoding"),  # type: ignore[arg-type]
        (pb.Message(body=b"x", encoding=-1), "INVALID_FIELD", "encoding"),  # type: ignore[arg-type]
        (
            pb.Message(body=b"x", trace_context=pb.TraceContext(traceparent="t" * 513)),
            "INVALID_FIELD",
            "trace_context.traceparent",
        ),
        (
            pb.Message(body=b"x", trace_context=pb.TraceContext(tracestate="s" * 513)),
            "INVALID_FIELD",
            "trace_context.tracestate",
        ),
        (pb.Message(body=b"x", born_ms=-1), "INVALID_FIELD", "born_ms"),
        (pb.Message(body=b"x", dead_letter=pb.DeadLetter()), "INVALID_FIELD", "dead_letter"),
    ],
)
def test_a_bad_message_is_refused_and_its_neighbours_are_stored(
    shop: Stubs, message: pb.Message, code: str, field: str
) -> None:
    results = send(shop, pb.Message(body=b"before"), message, pb.Message(body=b"after")).results
    assert codes(results) == ["", code, ""]
    assert results[1].error.field == f"messages[1].{field}"
    assert not results[1].error.retryable
    check_error(results[1].error)
    assert (results[1].message_id, results[1].queue, results[1].offset) == ("", 0, 0)
    assert [results[0].offset, results[2].offset] == [0, 1]
    assert bodies(shop.pop()) == [b"before", b"after"]


@pytest.mark.embedded("messages without a time of birth")
@pytest.mark.parametrize(
    "message",
    [
        pb.Message(body=b"x"),
        pb.Message(body=b"x" * (4 << 20)),
        pb.Message(body=b"x", message_id="m" * 128),
        pb.Message(body=b"x", tag="t" * 64, keys=["k"]),
        pb.Message(body=b"x", message_id="\0\n%+/../"),
        pb.Message(body=b"x", properties={f"{n:03}": "" for n in range(128)}),
        pb.Message(body=b"x", properties={"n": "v" * ((64 << 10) - 1)}),
        pb.Message(body=b"x", born_ms=2**63 - 1),
        pb.Message(body=b"x", encoding=pb.ENCODING_ZLIB),
    ],
)
def test_a_message_just_within_the_limits_is_stored_and_delivered_unchanged(shop: Stubs, message: pb.Message) -> None:
    (result,) = send(shop, message).results
    message.message_id = message.message_id or result.message_id
    (delivery,) = shop.pop().deliveries
    assert delivery.message == message


@pytest.mark.parametrize("field", [{"delay_ms": 100}, {"transaction": True}, {"priority": 1}])
def test_a_field_of_a_message_without_a_body_is_seen_among_plain_messages(shop: Stubs, field: dict[str, Any]) -> None:
    plain = [pb.Message(message_id=f"plain-{number}", body=b"x") for number in range(3)]
    results = send(shop, *plain, pb.Message(message_id="m", **field)).results
    assert codes(results) == ["", "", "", "INVALID_FIELD"]
    assert bodies(shop.pop()) == [b"x"] * 3


@pytest.mark.parametrize(("name", "size"), [("", 0), ("é" * 200, 400)])
def test_a_bad_name_of_a_property_is_refused_as_one(shop: Stubs, name: str, size: int) -> None:
    (result,) = send(shop, pb.Message(body=b"x", properties={name: "v"})).results
    assert result.error.field == "messages[0].properties"
    assert result.error.message.startswith(f"the name of a property has {size} bytes, it must have 1–")


def test_4096_messages_fit_into_a_request_and_4097_do_not(either_shop: Stubs) -> None:
    messages = [pb.Message(body=b"x")] * 4097
    refused = refusal(either_shop.broker.Send, pb.SendRequest(topic=TOPIC, messages=messages))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "messages")
    assert len(send(either_shop, *messages[:4096]).results) == 4096
    assert refusal(either_shop.broker.Send, pb.SendRequest(topic=TOPIC)).info.field == "messages"


@pytest.mark.slow
def test_sixteen_mebibytes_fit_into_a_request_and_a_byte_more_does_not(either_shop: Stubs) -> None:
    overhead = pb.Message(message_id="m", body=b"x" * (4 << 20)).ByteSize() - (4 << 20)
    full = [pb.Message(message_id="m", body=b"x" * (4 << 20)) for _ in range(4)]
    full[3].body = full[3].body[: -4 * overhead]
    assert sum(message.ByteSize() for message in full) == 16 << 20
    assert codes(send(either_shop, *full).results) == [""] * 4
    full[3].body += b"x"
    refused = refusal(either_shop.broker.Send, pb.SendRequest(topic=TOPIC, messages=full))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "messages")


@pytest.mark.parametrize(
    "topic", [f"%DLQ%{GROUP}", f"%RETRY%{GROUP}+{TOPIC}", "%REVIVE%", "TRANS_CHECK_MAX_TIME_TOPIC"]
)
def test_the_brokers_own_topics_take_no_messages(shop: Stubs, topic: str) -> None:
    refused = refusal(shop.broker.Send, pb.SendRequest(topic=topic, messages=[pb.Message(body=b"x")]))
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", "topic")


def numbered(stubs: Stubs, number: int, *messages: pb.Message, **fields: Any) -> pb.SendResponse:
    return send(stubs, *messages, producer_id="p", request_number=number, **fields)


@pytest.mark.promise("dedup")
def test_a_repeated_request_is_answered_with_the_first_result_and_stores_nothing(shop: Stubs) -> None:
    messages = [pb.Message(body=b"x", message_id="mine"), pb.Message(), pb.Message(body=b"x"), pb.Message(body=b"x")]
    first = numbered(shop, 1, *messages)
    assert not first.duplicate
    for _ in range(3):
        again = numbered(shop, 1, *messages)
        assert again.duplicate
        assert list(again.results) == list(first.results), "made ids and refused entries included"
    stored = [delivery.message.message_id for delivery in shop.pop().deliveries]
    assert stored == [result.message_id for result in first.results if result.message_id]


def test_ids_that_the_broker_makes_for_numbered_requests_differ(either_shop: Stubs) -> None:
    answers = [
        send(either_shop, *[pb.Message(body=b"same")] * 3, producer_id=producer, request_number=number)
        for producer in ("p", "q")
        for number in (1, 2)
    ]
    assert len({result.message_id for answer in answers for result in answer.results}) == 12


@pytest.mark.parametrize(("producer_id", "number"), [("p", 0), ("", 1), ("p" * 65, 1), ("é" * 33, 1)])
def test_a_producer_and_its_number_belong_together(shop: Stubs, producer_id: str, number: int) -> None:
    request = pb.SendRequest(
        topic=TOPIC, messages=[pb.Message(body=b"x")], producer_id=producer_id, request_number=number
    )
    assert refusal(shop.broker.Send, request).code == "INVALID_FIELD"
    assert bodies(shop.pop()) == []
