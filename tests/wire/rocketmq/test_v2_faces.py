"""Two faces, one store: what apache.rocketmq.v2 sends popmq.v1 pops, and the other way, with nothing lost."""

from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from tests.wire.rocketmq.v2 import V2, WHOLE, code, message, resource
from tests.wire.stubs import CALL_S, TOPIC, Stubs

SECOND = 1_000


def test_a_message_of_the_other_face_is_received_with_nothing_lost(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    shop.broker.Send(native.SendRequest(topic=TOPIC, messages=[WHOLE]), timeout=CALL_S)
    (found,) = v2.receive().messages
    system = found.system_properties
    assert (found.body, dict(found.user_properties)) == (b"\x1f\x8b zipped", {"a": "1", "ä": "ö"})
    assert (system.message_id, system.tag, list(system.keys)) == ("01C0FFEE", "paid", ["k1", "k2"])
    assert (system.body_encoding, system.born_host) == (pb.GZIP, "laptop")
    assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_123
    assert system.trace_context == WHOLE.trace_context.traceparent


KINDS: list[tuple[Any, dict[str, Any], Any, dict[str, Any]]] = [
    (native.FIFO, {"message_group": "g"}, pb.FIFO, {"message_group": "g"}),
    (native.PRIORITY, {"priority": 7}, pb.PRIORITY, {"priority": 7}),
    (native.PRIORITY, {"priority": 0}, pb.PRIORITY, {"priority": 0}),
]


@pytest.mark.embedded("PRIORITY topics, as brokers 5.4 have")
@pytest.mark.parametrize(("topic_type", "sent", "kind", "expected"), KINDS, ids=["FIFO", "PRIORITY", "PRIORITY 0"])
def test_priority_and_message_group_are_kept_between_the_two_protocols(
    shop: Stubs, v2: V2, topic_type: Any, sent: dict[str, Any], kind: Any, expected: dict[str, Any]
) -> None:
    shop.create_topic("special", type=topic_type)
    plain = native.Message(message_id="01", body=b"x", **sent)
    shop.broker.Send(native.SendRequest(topic="special", messages=[plain]), timeout=CALL_S)
    v2.send(message(b"y", "special", message_id="02", message_type=kind, **expected))
    shop.create_group("other")
    for delivery in shop.pop("special", "other").deliveries:
        assert {name: getattr(delivery.message, name) for name in sent} == sent
    received: list[pb.Message] = []
    while found := v2.receive("special").messages:
        received += found
        v2.ack(*found, topic="special")
    assert sorted(one.body for one in received) == [b"x", b"y"]
    for one in received:
        assert one.system_properties.message_type == kind
        assert {name: getattr(one.system_properties, name) for name in expected} == expected


def test_a_delayed_message_of_either_face_says_when_it_was_due(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    shop.create_topic("later", type=native.DELAY)
    due_ms = clock.now_ms() + 10 * SECOND
    one = native.Message(message_id="01", body=b"x", deliver_at_ms=due_ms)
    shop.broker.Send(native.SendRequest(topic="later", messages=[one]), timeout=CALL_S)
    moment = {"seconds": due_ms // 1000, "nanos": due_ms % 1000 * 1_000_000}
    v2.send(message(b"y", "later", message_id="02", message_type=pb.DELAY, delivery_timestamp=moment))
    assert code(v2, topic="later") == "MESSAGE_NOT_FOUND"
    clock.advance(10 * SECOND)
    received = v2.receive("later").messages
    assert sorted(found.body for found in received) == [b"x", b"y"]
    for found in received:
        assert found.system_properties.message_type == pb.DELAY
        assert found.system_properties.delivery_timestamp.ToMilliseconds() == due_ms


@pytest.mark.parametrize("born_ms", [1 << 62, 253_402_300_800_000])
def test_a_time_that_this_protocol_has_no_word_for_is_reported_as_its_last_one(
    shop: Stubs, v2: V2, born_ms: int
) -> None:
    """A message that cannot be told would come back for ever."""
    request = native.SendRequest(topic=TOPIC, messages=[native.Message(body=b"late", born_ms=born_ms)])
    shop.broker.Send(request, timeout=CALL_S)
    (found,) = v2.receive().messages
    assert found.system_properties.born_timestamp.seconds == 253_402_300_799


@pytest.mark.slow
@pytest.mark.parametrize(
    ("time", "told_s"),
    [({"seconds": 10**13}, 253_402_300_799), ({"seconds": 5, "nanos": 2 * 10**9}, 7), ({"seconds": 9, "nanos": -1}, 8)],
)
def test_a_malformed_timestamp_is_not_an_error(shop: Stubs, v2: V2, time: dict[str, int], told_s: int) -> None:
    assert v2.send(message(born_timestamp=time)).status.code == pb.OK
    (found,) = v2.receive().messages
    assert found.system_properties.born_timestamp.seconds == told_s


@pytest.mark.promise("statistics")
def test_a_message_leased_by_one_protocol_can_be_acked_by_the_other(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"a", message_id="m1"), message(b"b", message_id="m2"))
    (here,) = v2.receive(batch_size=1).messages
    (there,) = shop.pop(max_messages=1).deliveries
    assert shop.ack(here.system_properties.receipt_handle) == [""]
    there_too = message()
    there_too.system_properties.receipt_handle = there.handle
    assert v2.ack(there_too).status.code == pb.OK
    assert shop.stats().acked == 2


def test_v2_calls_count_in_the_rates_of_the_group_and_the_topic(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(*(message(message_id=f"m{number}") for number in range(30)))
    v2.ack(*v2.receive(batch_size=15).messages)
    clock.advance(30 * SECOND)
    (sent,) = shop.admin.GetStats(native.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    stats = shop.stats()
    assert (sent.sent_per_s, stats.popped_per_s, stats.acked_per_s) == (1.0, 0.5, 0.5)


@pytest.mark.slow
def test_a_namespace_is_the_same_in_the_resource_and_in_the_header(shop: Stubs, v2: V2) -> None:
    shop.create_topic("shop.orders")
    shop.create_group("shop.billing")
    request = v2.receive_request()
    one = message(message_id="m1")
    one.topic.CopyFrom(resource("orders", "shop"))
    v2.send(one)
    with V2(v2.endpoint, x_mq_namespace="shop") as other:
        (found,) = other.receive("orders", "billing").messages
    assert found.topic == resource("orders")  # as it was asked for
    request.group.CopyFrom(resource("billing", "shop"))
    assert other.headers[-1] == ("x-mq-namespace", "shop")
