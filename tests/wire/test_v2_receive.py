"""apache.rocketmq.v2 ReceiveMessage: what a client gets, when, and what becomes of it when the client goes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any, NamedTuple

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.api.rocketmq.call import Call
from popmq_server.api.rocketmq.clients import Clients
from popmq_server.api.rocketmq.receiving import ReceiveService
from popmq_server.api.rocketmq.remembered import Held
from popmq_server.clock import FakeClock
from popmq_server.commands import ChangeInvisibleTime, Look, Pop, Popped
from popmq_server.metrics import Metrics
from tests.wire.gate import Gate
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs
from tests.wire.test_cancelled import Gone
from tests.wire.v2 import PREFIX, V2, Received, message, resource

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Gone:
    return Gone(monkeypatch)


def code(v2: V2, **fields: Any) -> str:
    return pb.Code.Name(v2.receive(**fields).code)


def bodies(received: Received) -> list[bytes]:
    return [one.body for one in received.messages]


def expression(kind: Any, text: str) -> pb.FilterExpression:
    return pb.FilterExpression(type=kind, expression=text)


def later(v2: V2, deadline_s: float = CALL_S, **fields: Any) -> Any:
    """A ReceiveMessage on its way: an iterator of its elements, and a grpc.Call."""
    request = v2.receive_request(**fields).SerializeToString()
    call: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
    return call(request, metadata=v2.headers, timeout=deadline_s)


def elements(call: Any) -> list[rpc.ReceiveMessageResponse]:
    return [rpc.ReceiveMessageResponse.FromString(raw) for raw in call]


# ── The stream ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_status_comes_first_then_the_messages_then_the_time(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message(b"a", message_id="m1"), message(b"b", message_id="m2"))
    status, a, b, time = elements(later(v2))
    assert status.status.code == pb.OK
    assert (a.message.body, b.message.body) == (b"a", b"b")
    assert time.delivery_timestamp.ToMilliseconds() == clock.now_ms()


def test_nothing_is_a_status_of_its_own_and_has_a_time(shop: Stubs, v2: V2) -> None:
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


def test_attempts_count_from_one(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message())
    for attempt in (1, 2, 3):
        (found,) = v2.receive(invisible_s=10).messages
        assert found.system_properties.delivery_attempt == attempt
        clock.advance(10 * SECOND)


def test_after_the_last_attempt_it_is_a_dead_letter_that_tells_where_it_came_from(
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


def test_where_queues_are_shared_a_named_one_is_meant_unless_node_names_it(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic("wide", queues=4)
    stubs.create_group(share_number=2)
    for number in range(8):
        v2.send(message(message_id=f"m{number}", topic="wide"))
    named = v2.receive("wide", queue=3).messages
    assert [found.system_properties.queue_id for found in named] == [3, 3]
    with V2(v2.endpoint, language="HTTP") as node:
        assert len(node.receive("wide", queue=3).messages) == 6


def test_of_a_fifo_topic_no_queue_is_meant_even_then(stubs: Stubs, v2: V2) -> None:
    """All clients name queue 0 there, since their assignment says so."""
    stubs.create_topic("ordered", queues=4, type=native.FIFO)
    stubs.create_group(share_number=2)
    for number in range(8):
        v2.send(message(message_id=f"m{number}", topic="ordered", message_type=pb.FIFO, message_group=str(number)))
    assert len(v2.receive("ordered", queue=0).messages) == 8


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
        ({"filter_expression": expression(pb.FILTER_TYPE_UNSPECIFIED, "a")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"filter_expression": expression(7, "a")}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"invisible_s": 0.999}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_s": 12 * 3600 + 1}, "ILLEGAL_INVISIBLE_TIME"),
        ({"poll_ms": -1}, "ILLEGAL_POLLING_TIME"),
        ({"attempt_id": "a" * 257}, "BAD_REQUEST"),
    ],
)
def test_what_the_protocol_does_not_allow_is_refused_in_the_stream(
    shop: Stubs, v2: V2, fields: dict[str, Any], expected: str
) -> None:
    v2.send(message())
    assert code(v2, **fields) == expected
    assert bodies(v2.receive()) == [b"body"]


def test_without_a_client_id_nothing_is_given_out(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, client_id="") as nobody:
        assert code(nobody) == "CLIENT_ID_REQUIRED"


def test_bytes_that_are_no_request_are_a_bad_one(shop: Stubs, v2: V2) -> None:
    call: Any = v2.channel.unary_stream(PREFIX + "ReceiveMessage")
    (only,) = elements(call(b"\xff", metadata=v2.headers, timeout=CALL_S))
    assert only.status.code == pb.BAD_REQUEST


def test_who_holds_too_much_is_told_to_come_back_later(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group(in_flight_max=1)
    v2.send(message(message_id="m1"), message(message_id="m2"))
    assert len(v2.receive().messages) == 1
    assert code(v2) == "TOO_MANY_REQUESTS"


def test_a_group_that_pulls_does_not_receive(shop: Stubs, v2: V2) -> None:
    request = native.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=native.PULL)
    shop.admin.SetConsumeMode(request, timeout=CALL_S)
    assert code(v2) == "PRECONDITION_FAILED"


def test_a_bug_is_answered_in_the_stream_and_gives_back_what_was_taken(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> pb.Message:
        raise RuntimeError("a bug")

    v2.send(message())
    with monkeypatch.context() as patch:
        patch.setattr(ReceiveService, "_message", broken)
        found = [one.status.code for one in elements(later(v2)) if one.HasField("status")]
    assert found == [pb.OK, pb.INTERNAL_SERVER_ERROR]
    assert [one.system_properties.delivery_attempt for one in v2.receive(poll_ms=SECOND).messages] == [1]


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
def test_a_client_gets_what_its_filter_wants(
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


def test_two_who_wait_with_different_filters_do_not_wake_each_other(
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


def test_two_filters_of_one_group_are_told_in_the_log_once_a_minute(
    shop: Stubs, v2: V2, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    def turn() -> int:
        caplog.clear()
        for tag in ("a", "b", "a"):
            v2.receive(filter_expression=expression(pb.TAG, tag))
        return len([one for one in caplog.records if "the other never gets" in one.message])

    with caplog.at_level(logging.WARNING, "popmq.api"):
        assert turn() == 1
        assert turn() == 0
        clock.advance(MINUTE)
        assert turn() == 1


def test_a_filter_that_is_replaced_after_a_while_or_written_otherwise_is_no_quarrel(
    shop: Stubs, v2: V2, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "popmq.api"):
        v2.receive(filter_expression=expression(pb.TAG, "a || b"))
        v2.receive(filter_expression=expression(pb.TAG, "b||a"))
        clock.advance(MINUTE)
        v2.receive(filter_expression=expression(pb.TAG, "c"))
    assert not caplog.records


# ── Leases ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lease_lasts_as_long_as_asked(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message())
    v2.receive(invisible_s=15)
    clock.advance(15 * SECOND - 1)
    assert code(v2) == "MESSAGE_NOT_FOUND"
    clock.advance(1)
    assert bodies(v2.receive()) == [b"body"]


def test_with_auto_renew_it_lasts_a_minute_whatever_is_asked(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    """One client names 30 s beside auto_renew."""
    v2.send(message())
    v2.receive(auto_renew=True, invisible_duration={"seconds": 30})
    clock.advance(MINUTE - 1)
    with V2(v2.endpoint, client_id="other") as other:
        assert code(other) == "MESSAGE_NOT_FOUND"
        clock.advance(1)
        assert bodies(other.receive()) == [b"body"]


def test_with_auto_renew_it_lasts_while_the_client_is_heard_of(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message())
    (found,) = v2.receive(auto_renew=True).messages
    with V2(v2.endpoint, client_id="other") as other:
        for _ in range(20):
            clock.advance(30 * SECOND)
            v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
            assert code(other) == "MESSAGE_NOT_FOUND"
        assert v2.ack(found).status.code == pb.OK


def test_with_auto_renew_it_is_back_at_once_when_the_client_ends(shop: Stubs, v2: V2) -> None:
    v2.send(message())
    v2.receive(auto_renew=True)
    v2.call("NotifyClientTermination", group=resource(GROUP))
    with V2(v2.endpoint, client_id="other") as other:
        (found,) = other.receive().messages
    assert found.system_properties.delivery_attempt == 2


def test_no_client_keeps_a_message_for_more_than_three_hours(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    v2.send(message())
    v2.receive(auto_renew=True)
    with V2(v2.endpoint, client_id="other") as other:
        for _ in range(3 * HOUR // (30 * SECOND) - 1):
            clock.advance(30 * SECOND)
            v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
        assert code(other) == "MESSAGE_NOT_FOUND"
        clock.advance(30 * SECOND)
        assert bodies(other.receive()) == [b"body"]


def test_the_same_attempt_again_gets_the_same_messages_uncounted(shop: Stubs, v2: V2) -> None:
    v2.send(message())
    first = v2.receive(auto_renew=True, attempt_id="try").messages
    assert v2.receive(auto_renew=True, attempt_id="try").messages == first
    with V2(v2.endpoint, client_id="other") as other:
        assert code(other, auto_renew=True, attempt_id="try") == "MESSAGE_NOT_FOUND"


def test_an_empty_answer_is_not_remembered_with_its_attempt(shop: Stubs, v2: V2) -> None:
    assert code(v2, attempt_id="try") == "MESSAGE_NOT_FOUND"
    v2.send(message())
    assert bodies(v2.receive(attempt_id="try")) == [b"body"]


# ── Clients that go ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_that_stops_waiting_takes_nothing(shop: Stubs, v2: V2, parked: Parked, gone: Gone) -> None:
    call = later(v2, poll_ms=20 * SECOND)
    parked.wait_for(1)
    call.cancel()
    gone.wait_for(1)
    shop.send(b"a")
    assert bodies(v2.receive(poll_ms=SECOND)) == [b"a"]


@pytest.mark.parametrize("attempt_id", ["", "try"])
def test_what_a_client_that_has_gone_was_not_told_is_back_at_once_uncounted(
    shop: Stubs, v2: V2, gate: Gate, gone: Gone, attempt_id: str
) -> None:
    """With an attempt id too: a client that never asks for it again would keep it hidden while it lives."""
    v2.send(message())
    with gate.closed():
        call = later(v2, auto_renew=True, attempt_id=attempt_id)
        gate.wait_for(1)
        call.cancel()
        gone.wait_for(1)
    (found,) = v2.receive(poll_ms=10 * SECOND).messages
    assert found.system_properties.delivery_attempt == 1


class Desk:
    """An engine that answers one Pop and notes what it is told then."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def execute(self, command: Any) -> Any:
        if isinstance(command, Look):
            return [Shares(0)]
        self.told.append(command)
        return (0, 0)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        data = native.Message(message_id="m", body=b"x").SerializeToString()
        return Popped([(data, 1, 0, number, 1, number) for number in range(4)], 7, 9, 1, 2, 0)


class Shares(NamedTuple):
    share_number: int


@pytest.mark.parametrize(("read", "back"), [(1, [0, 1, 2, 3]), (3, [1, 2, 3]), (5, [3]), (6, [])])
def test_a_stream_that_breaks_off_gives_back_what_was_not_written(read: int, back: list[int]) -> None:
    """What was handed over when the stream broke is not known to have arrived."""

    async def scenario() -> list[Any]:
        desk, clock = Desk(), FakeClock()
        engine: Any = desk
        clients = Clients(engine, clock)
        service = ReceiveService(engine, clients, Held(), clock, Metrics())
        request = rpc.ReceiveMessageRequest(
            group=resource(GROUP), message_queue=pb.MessageQueue(topic=resource(TOPIC)), auto_renew=True
        )
        stream = service.ReceiveMessage(request, Call("c", "JAVA", "", lambda: None))
        for _ in range(read):
            await anext(stream)
        await stream.aclose()
        await asyncio.sleep(0)
        return [command for command in desk.told if isinstance(command, ChangeInvisibleTime)]

    given = [change for command in asyncio.run(scenario()) for change in command.changes]
    assert [change.handle.member for change in given] == back
    assert all((change.kind, change.delay_ms, change.uncounted) == ("release", 0, True) for change in given)


# ── Two faces, one store ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_of_the_other_face_is_received_with_nothing_lost(shop: Stubs, v2: V2, clock: FakeClock) -> None:
    sent = native.Message(
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
    shop.broker.Send(native.SendRequest(topic=TOPIC, messages=[sent]), timeout=CALL_S)
    (found,) = v2.receive().messages
    system = found.system_properties
    assert (found.body, dict(found.user_properties)) == (b"\x1f\x8b zipped", {"a": "1", "ä": "ö"})
    assert (system.message_id, system.tag, list(system.keys)) == ("01C0FFEE", "paid", ["k1", "k2"])
    assert (system.body_encoding, system.born_host) == (pb.GZIP, "laptop")
    assert system.born_timestamp.ToMilliseconds() == 1_700_000_000_123
    assert system.trace_context == sent.trace_context.traceparent


KINDS: list[tuple[Any, dict[str, Any], Any, dict[str, Any]]] = [
    (native.FIFO, {"message_group": "g"}, pb.FIFO, {"message_group": "g"}),
    (native.PRIORITY, {"priority": 7}, pb.PRIORITY, {"priority": 7}),
    (native.PRIORITY, {"priority": 0}, pb.PRIORITY, {"priority": 0}),
]


@pytest.mark.parametrize(("topic_type", "sent", "kind", "expected"), KINDS, ids=["FIFO", "PRIORITY", "PRIORITY 0"])
def test_what_is_special_about_a_message_reaches_the_other_face_and_back(
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


def test_what_one_face_leased_the_other_acks(shop: Stubs, v2: V2) -> None:
    v2.send(message(b"a", message_id="m1"), message(b"b", message_id="m2"))
    (here,) = v2.receive(batch_size=1).messages
    (there,) = shop.pop(max_messages=1).deliveries
    assert shop.ack(here.system_properties.receipt_handle) == [""]
    there_too = message()
    there_too.system_properties.receipt_handle = there.handle
    assert v2.ack(there_too).status.code == pb.OK
    assert shop.stats().acked == 2


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
