"""apache.rocketmq.v2 ReceiveMessage: what a client gets, when, and what becomes of it when the client goes."""

import hashlib
import logging
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.protocols.rocketmq import receiving
from popmq_server.protocols.rocketmq.messages import PROPERTIES_BYTES_MAX
from tests.wire.gate import Gate
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import PREFIX, V2, bodies, code, later, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def expression(kind: Any, text: str) -> pb.FilterExpression:
    return pb.FilterExpression(type=kind, expression=text)


def elements(call: Any) -> list[rpc.ReceiveMessageResponse]:
    return [rpc.ReceiveMessageResponse.FromString(raw) for raw in call]


# ── The stream ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_status_comes_first_then_the_messages_then_the_time(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message(b"a", message_id="m1"), message(b"b", message_id="m2"))
    status, a, b, time = elements(later(v2))
    assert status.status.code == pb.OK
    assert (a.message.body, b.message.body) == (b"a", b"b")
    assert time.delivery_timestamp.ToMilliseconds() == clock.now_ms()


def test_a_receive_without_messages_has_its_own_status_and_a_time(shop: Stubs, v2: V2) -> None:
    received = v2.receive()
    assert (received.code, received.messages, received.timed) == (pb.MESSAGE_NOT_FOUND, [], True)


def test_a_delivered_message_has_every_field_that_some_client_cannot_do_without(
    shop: Stubs, v2: V2, clock: FakeClock
) -> None:
    v2.send(message(b"body", message_id="01AB", tag="paid", born_host="laptop", properties={"a": "1"}))
    (found,) = v2.receive().messages
    system = found.system_properties
    assert found.topic == resource(TOPIC)
    assert (system.message_id, system.message_type, system.body_encoding) == ("01AB", pb.NORMAL, pb.IDENTITY)
    assert (system.body_digest.type, system.body_digest.checksum) == (pb.MD5, hashlib.md5(b"body").hexdigest().upper())
    assert (system.tag, system.born_host, dict(found.user_properties)) == ("paid", "laptop", {"a": "1"})
    assert system.born_timestamp.ToMilliseconds() == system.store_timestamp.ToMilliseconds() == clock.now_ms()
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (0, 0, 1)
    assert system.receipt_handle


def test_a_v2_message_after_its_last_attempt_is_a_dead_letter_with_its_origin(
    stubs: Stubs, v2: V2, clock: FakeClock
) -> None:
    stubs.create_topic()
    stubs.create_group(max_attempts=1)
    v2.send(message(b"a", message_id="01AB"))
    v2.receive()
    clock.advance(30 * SECOND)
    assert code(v2) == "MESSAGE_NOT_FOUND"
    stubs.create_group("undertakers")
    (letter,) = v2.receive(f"%DLQ%{GROUP}", "undertakers").messages
    assert letter.topic == resource(f"%DLQ%{GROUP}")
    assert letter.body == b"a"
    origin = letter.system_properties.dead_letter_queue
    assert (origin.topic, origin.message_id) == (TOPIC, "01AB")


@pytest.mark.parametrize(("asked", "got"), [(0, 32), (-1, 32), (1, 1), (32, 32), (1000, 32)])
def test_a_batch_has_1_to_32_messages(shop: Stubs, v2: V2, asked: int, got: int) -> None:
    shop.send(*(str(number).encode() for number in range(40)))
    assert len(v2.receive(batch_size=asked).messages) == got


@pytest.mark.parametrize("queue", [-1, 0, 3, 99])
def test_any_queue_is_every_queue(shop: Stubs, v2: V2, queue: int) -> None:
    shop.create_topic("wide", queues=4)
    for number in range(8):
        v2.send(message(message_id=f"m{number}", topic="wide"))
    assert len(v2.receive("wide", queue=queue).messages) == 8


@pytest.mark.parametrize("of_the_topic", [False, True], ids=["by the group", "by SetConsumeMode"])
def test_a_named_queue_is_respected_where_queues_are_shared_but_not_of_node_clients(
    stubs: Stubs, v2: V2, of_the_topic: bool
) -> None:
    stubs.create_topic("wide", queues=4)
    stubs.create_group(share_number=0 if of_the_topic else 2)
    if of_the_topic:
        shared = native.SetConsumeModeRequest(topic="wide", group=GROUP, mode=native.POP, share_number=2)
        stubs.admin.SetConsumeMode(shared, timeout=CALL_S)
    for number in range(8):
        v2.send(message(message_id=f"m{number}", topic="wide"))
    named = v2.receive("wide", queue=3).messages
    assert [found.system_properties.queue_id for found in named] == [3, 3]
    with V2(v2.endpoint, language="HTTP") as node:
        assert len(node.receive("wide", queue=3).messages) == 6


@pytest.mark.embedded("one engine in this process")
def test_a_receive_asks_the_engine_once(shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    execute = EmbeddedEngine.run

    def noted(broker: EmbeddedEngine, command: Any) -> Any:
        asked.append(type(command).__name__)
        return execute(broker, command)

    v2.send(message())
    v2.receive()
    monkeypatch.setattr(EmbeddedEngine, "run", noted)
    v2.receive(queue=0)
    assert asked == ["Pop"]


def test_a_named_queue_of_a_fifo_topic_is_ignored_where_queues_are_shared(stubs: Stubs, v2: V2) -> None:
    """All clients name queue 0 there, since their assignment says so."""
    stubs.create_topic("ordered", queues=4, type=native.FIFO)
    stubs.create_group(share_number=2)
    for number in range(8):
        v2.send(message(message_id=f"m{number}", topic="ordered", message_type=pb.FIFO, message_group=str(number)))
    assert len(v2.receive("ordered", queue=0).messages) == 8


def test_a_filter_without_a_type_is_one_of_tags(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"1", tag="a"), message(b"2", tag="b"), message(b"3", tag="c"))
    assert bodies(v2.receive(filter_expression=expression(pb.FILTER_TYPE_UNSPECIFIED, "a || c"))) == [b"1", b"3"]


def test_the_longest_tag_that_can_be_sent_can_be_subscribed_to(shop: Stubs, v2: V2) -> None:
    longest = "t" * PROPERTIES_BYTES_MAX
    assert v2.send(message(b"1", tag=longest)).status.code == pb.OK
    assert bodies(v2.receive(filter_expression=expression(pb.TAG, longest))) == [b"1"]
    assert v2.send(message(b"2", tag=longest + "t")).status.code == pb.MESSAGE_PROPERTIES_TOO_LARGE


def test_a_time_that_is_too_long_is_refused_in_the_words_of_the_reference(shop: Stubs, v2: V2) -> None:
    v2.send(message())
    (held,) = v2.receive().messages
    handle = held.system_properties.receipt_handle
    fields = {"topic": resource(TOPIC), "group": resource(GROUP)}
    asked = v2.call("ChangeInvisibleDuration", **fields, receipt_handle=handle, invisible_duration={"seconds": 50_000})
    assert (asked.status.code, "the invisibleTime is too large" in asked.status.message) == (40011, True)
    forged = v2.call("ChangeInvisibleDuration", **fields, receipt_handle="x", invisible_duration={"seconds": 5})
    assert (forged.status.code, "INVALID_RECEIPT_HANDLE" in forged.status.message) == (40013, True)


# ── What is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"topic": "unknown"}, "TOPIC_NOT_FOUND"),
        ({"group": "unknown"}, "CONSUMER_GROUP_NOT_FOUND"),
        ({"topic": ""}, "ILLEGAL_TOPIC"),
        ({"topic": "a.b"}, "ILLEGAL_TOPIC"),
        ({"topic": "RMQ_SYS_TRACE_TOPIC"}, "ILLEGAL_TOPIC"),
        ({"group": " "}, "ILLEGAL_CONSUMER_GROUP"),
        ({"group": "g" * 121}, "ILLEGAL_CONSUMER_GROUP"),
        ({"group": "CID_RMQ_SYS_x"}, "ILLEGAL_CONSUMER_GROUP"),
        ({"filter_expression": expression(pb.SQL, "")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": expression(pb.SQL, "a >")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": expression(pb.TAG, "a b")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": expression(pb.FILTER_TYPE_UNSPECIFIED, "a b")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": expression(7, "a")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"invisible_s": 0.999}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_s": 12 * 3600 + 1}, "ILLEGAL_INVISIBLE_TIME"),
        ({"poll_ms": -1}, "ILLEGAL_POLLING_TIME"),
        ({"attempt_id": "a" * 257}, "BAD_REQUEST"),
    ],
)
def test_an_invalid_receive_is_refused_in_its_stream(
    shop: Stubs, v2: V2, fields: dict[str, Any], expected: str
) -> None:
    v2.send(message())
    assert code(v2, **fields) == expected
    assert bodies(v2.receive()) == [b"body"]


def test_a_receive_needs_a_client_id(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, client_id="") as nobody:
        assert code(nobody) == "CLIENT_ID_REQUIRED"


def test_bytes_that_are_no_request_are_a_bad_one(shop: Stubs, v2: V2) -> None:
    call: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
    (only,) = elements(call(b"\xff", metadata=v2.headers, timeout=CALL_S))
    assert only.status.code == pb.BAD_REQUEST


def test_a_receive_beyond_the_in_flight_limit_is_refused(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group(in_flight_max=1)
    v2.send(message(message_id="m1"), message(message_id="m2"))
    assert len(v2.receive().messages) == 1
    assert code(v2) == "TOO_MANY_REQUESTS"


def test_a_group_that_pulls_does_not_receive(shop: Stubs, v2: V2) -> None:
    request = native.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=native.PULL)
    shop.admin.SetConsumeMode(request, timeout=CALL_S)
    assert code(v2) == "PRECONDITION_FAILED"


def test_a_bug_in_a_receive_is_answered_in_the_stream_and_releases_its_messages(
    shop: Stubs, v2: V2, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, so that a message that always provokes it does not go round for ever."""

    def broken(*_: Any) -> pb.Message:
        raise RuntimeError("a bug")

    v2.send(message())
    with monkeypatch.context() as patch:
        patch.setattr(receiving, "response", broken)
        found = [one.status.code for one in elements(later(v2)) if one.HasField("status")]
    assert found == [pb.OK, pb.INTERNAL_SERVER_ERROR]
    assert not v2.receive().messages
    clock.advance(SECOND)
    assert [one.system_properties.delivery_attempt for one in v2.receive(poll_ms=SECOND).messages] == [2]


# ── Waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_poll_waits_until_there_is_a_message(shop: Stubs, v2: V2, parked: Parked) -> None:
    call = later(v2, poll_ms=20 * SECOND)
    parked.wait_for(1)
    shop.send(b"at last")
    assert [one.message.body for one in elements(call) if one.HasField("message")] == [b"at last"]


@pytest.mark.parametrize(
    ("deadline_s", "asked_ms", "waited_ms"),
    [
        (CALL_S, 5 * SECOND, 5 * SECOND),
        (100, 60 * SECOND, 20 * SECOND),  # as the reference's longest
        (100, None, 20 * SECOND),
    ],
)
def test_a_poll_lasts_as_long_as_asked_and_20_s_at_most(
    shop: Stubs, v2: V2, parked: Parked, clock: FakeClock, deadline_s: float, asked_ms: int | None, waited_ms: int
) -> None:
    request = v2.receive_request(poll_ms=asked_ms or 0)
    if asked_ms is None:
        request.ClearField("long_polling_timeout")
    stream: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
    call = stream(request.SerializeToString(), metadata=v2.headers, timeout=deadline_s)
    parked.wait_for(1)
    clock.advance(waited_ms - 1)
    assert not call.done()
    clock.advance(1)
    assert elements(call)[0].status.code == pb.MESSAGE_NOT_FOUND


@pytest.mark.parametrize("named", [True, False], ids=["as long as the deadline", "no poll time"])
def test_a_poll_ends_before_the_deadline_of_its_call(
    shop: Stubs, v2: V2, parked: Parked, clock: FakeClock, named: bool
) -> None:
    """Else the client would get DEADLINE_EXCEEDED for each empty poll: one client's deadline is its poll time."""
    request = v2.receive_request(poll_ms=8 * SECOND)
    if not named:
        request.ClearField("long_polling_timeout")
    stream: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
    call = stream(request.SerializeToString(), metadata=v2.headers, timeout=8)
    parked.wait_for(1)
    clock.advance(7_700 if named else 6_600)  # half of another call's timeout is left when the client names no time
    assert elements(call)[0].status.code == pb.MESSAGE_NOT_FOUND


def test_the_timeout_that_a_client_told_is_taken_off_its_deadline(
    shop: Stubs, v2: V2, parked: Parked, clock: FakeClock
) -> None:
    with v2.telemetry() as telemetry:
        subscription = pb.Subscription(group=resource(GROUP))
        telemetry.agree(client_type=pb.SIMPLE_CONSUMER, subscription=subscription, request_timeout={"seconds": 12})
        request = v2.receive_request()
        request.ClearField("long_polling_timeout")
        stream: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
        call = stream(request.SerializeToString(), metadata=v2.headers, timeout=8)
        parked.wait_for(1)
        clock.advance(2_100)
        assert elements(call)[0].status.code == pb.MESSAGE_NOT_FOUND


def test_a_short_deadline_is_an_early_answer_and_no_error(shop: Stubs, v2: V2) -> None:
    """The reference answers ILLEGAL_POLLING_TIME below 5 s: then a client that waits 1 s would never get anything."""
    v2.send(message())
    assert bodies(v2.receive(deadline_s=1, poll_ms=20 * SECOND)) == [b"body"]


# ── Filters ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, [b"a", b"b", b"-"]),
        (expression(pb.TAG, "*"), [b"a", b"b", b"-"]),
        (expression(pb.TAG, ""), [b"a", b"b", b"-"]),
        (expression(pb.FILTER_TYPE_UNSPECIFIED, ""), [b"a", b"b", b"-"]),
        (expression(pb.TAG, "a"), [b"a"]),
        (expression(pb.TAG, "a || b"), [b"a", b"b"]),
        (expression(pb.SQL, "n > 1 AND TAGS IS NOT NULL"), [b"b"]),
    ],
)
def test_a_client_receives_only_messages_of_its_filter(
    shop: Stubs, v2: V2, wanted: pb.FilterExpression | None, expected: list[bytes]
) -> None:
    v2.send(
        message(b"a", message_id="m1", tag="a", properties={"n": "1"}),
        message(b"b", message_id="m2", tag="b", properties={"n": "2"}),
        message(b"-", message_id="m3", properties={"n": "3"}),
    )
    assert bodies(v2.receive(filter_expression=wanted)) == expected


def test_the_filter_of_the_request_wins_whatever_the_group_had(shop: Stubs, v2: V2) -> None:
    wanted: list[dict[str, Any]] = [{"filter_expression": expression(pb.TAG, tag)} for tag in ("a", "b")]
    first, second = wanted
    v2.send(message(b"a1", message_id="m1", tag="a"))
    assert bodies(v2.receive(**first)) == [b"a1"]
    v2.send(message(b"b1", message_id="m2", tag="b"))
    assert bodies(v2.receive(**second)) == [b"b1"]
    v2.send(message(b"a2", message_id="m3", tag="a"))
    assert code(v2, **second) == "MESSAGE_NOT_FOUND"
    assert code(v2, **first) == "MESSAGE_NOT_FOUND"  # it was passed over for the group, as in the reference


@pytest.mark.capability("filters")
def test_the_filter_that_won_is_the_groups_for_the_other_face_too(shop: Stubs, v2: V2) -> None:
    v2.receive(filter_expression=expression(pb.TAG, "a"))
    v2.receive(filter_expression=expression(pb.TAG, "b"))
    v2.send(message(b"a", message_id="m1", tag="a"), message(b"b", message_id="m2", tag="b"))
    assert [delivery.message.body for delivery in shop.pop().deliveries] == [b"b"]


def test_receives_that_wait_with_different_filters_do_not_wake_each_other(
    shop: Stubs, v2: V2, parked: Parked, gate: Gate
) -> None:
    """Each puts its own filter in place when it looks. If that woke the other, they would do nothing else."""
    one = later(v2, poll_ms=20 * SECOND, filter_expression=expression(pb.TAG, "a"))
    parked.wait_for(1)
    two = later(v2, poll_ms=20 * SECOND, filter_expression=expression(pb.TAG, "b"))
    parked.wait_for(2)
    before = len(gate.groups)
    shop.stats()
    assert len(gate.groups) - before < 5
    for call in (one, two):
        call.cancel()


@pytest.mark.slow
def test_two_filters_of_one_group_are_reported_in_the_log_once_a_minute(
    shop: Stubs, v2: V2, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def turn() -> int:
        caplog.clear()
        for tag in ("a", "b", "a"):
            v2.receive(filter_expression=expression(pb.TAG, tag))
        return len(
            [one for one in caplog.records if "misses messages that only the other's filter selects" in one.message]
        )

    with caplog.at_level(logging.WARNING, "popmq.protocols"):
        assert turn() == 1
        assert turn() == 0
        clock.advance(MINUTE)
        assert turn() == 1


def test_a_filter_that_is_replaced_after_a_while_or_written_otherwise_is_no_quarrel(
    shop: Stubs, v2: V2, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "popmq.protocols"):
        v2.receive(filter_expression=expression(pb.TAG, "a || b"))
        v2.receive(filter_expression=expression(pb.TAG, "b||a"))
        clock.advance(MINUTE)
        v2.receive(filter_expression=expression(pb.TAG, "c"))
    assert not caplog.records
