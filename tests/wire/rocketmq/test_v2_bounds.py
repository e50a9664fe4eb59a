"""apache.rocketmq.v2: careless and hostile clients: what is kept of them, and what they are answered."""

import asyncio
import logging
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from popmq_server.errors import Refused
from popmq_server.protocols.access.open_streams import OpenStreams
from popmq_server.protocols.rocketmq import clients as registry
from popmq_server.protocols.rocketmq.call import RocketmqCall, TelemetryStream
from popmq_server.protocols.rocketmq.clients import ConnectedClients
from popmq_server.protocols.rocketmq.status import Declined
from popmq_server.protocols.rocketmq.telemetry import TelemetryService
from tests.wire.rocketmq.v2 import V2, code, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

MINUTE = 60_000


class Silent:
    """An engine that has nothing to say."""

    async def execute(self, command: Any) -> Any:
        return (0, 0)


def test_remembered_clients_are_bounded_and_the_longest_silent_ones_are_dropped_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some programs make an id for each call. Who has a stream stays."""
    monkeypatch.setattr(registry, "CLIENTS_MAX", 10)

    async def scenario() -> set[str]:
        engine: Any = Silent()
        clock = FakeClock()
        clients = ConnectedClients(engine, clock)
        nobody: Any = lambda _: None  # noqa: E731
        for number in range(100):
            client = clients.heard(RocketmqCall(str(number), "JAVA", "", lambda: None))
            if not number:
                await clients.attach(client, TelemetryStream(nobody))
            clock.advance(1)
        return {client.client_id for client in clients._clients.values()}

    kept = asyncio.run(scenario())
    assert len(kept) <= 10
    assert {"0", "99", "98"} <= kept


def test_the_length_of_a_client_id_is_bounded(shop: Stubs, v2: V2) -> None:
    with V2(v2.endpoint, client_id="c" * 512) as long, V2(v2.endpoint, client_id="c" * 513) as longer:
        assert long.code("Heartbeat", client_type=pb.PRODUCER) == "OK"
        assert longer.code("Heartbeat", client_type=pb.PRODUCER) == "BAD_REQUEST"


def test_a_client_id_has_no_control_characters(shop: Stubs, v2: V2) -> None:
    """RocketmqCall.check sees what a transport lets through: not each one refuses them."""
    for name in ("a\x1b[2J", "a\nb", "a\x7f"):
        with pytest.raises(Declined) as declined:
            RocketmqCall(name, "JAVA", "", lambda: None).check()
        assert declined.value.code == pb.BAD_REQUEST
    RocketmqCall("höst-1@4711@0@8x2", "JAVA", "", lambda: None).check()


def test_settings_name_a_bounded_number_of_topics(shop: Stubs, v2: V2) -> None:
    with v2.telemetry() as telemetry:
        topics = [resource(f"t{number}") for number in range(1025)]
        assert telemetry.agree(publishing=pb.Publishing(topics=topics[:2])).status.code == pb.OK
        assert telemetry.agree(publishing=pb.Publishing(topics=topics)).status.code == pb.BAD_REQUEST


def test_requests_of_more_elements_than_a_valid_one_has_are_refused(shop: Stubs, v2: V2) -> None:
    """Each empty message or address costs the parser an object: 20 MiB of them took five seconds."""
    sent = rpc.SendMessageResponse.FromString(v2.raw("SendMessage", b"\x0a\x00" * 100_000))
    assert (sent.status.code, "more than 10000 elements" in sent.status.message) == (pb.BAD_REQUEST, True)
    many = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address()] * 100_000)
    assert v2.code("QueryRoute", topic=resource(TOPIC), endpoints=many) == "BAD_REQUEST"
    refused = v2.call("ChangeInvisibleDuration", receipt_handle="h" * (2 << 20))
    assert (refused.status.code, refused.receipt_handle) == (pb.BAD_REQUEST, "")
    with v2.telemetry() as telemetry:
        answer = telemetry.agree(publishing=pb.Publishing(topics=[pb.Resource()] * 100_000))
        assert (answer.status.code, "more than 10000 elements" in answer.status.message) == (pb.BAD_REQUEST, True)


def test_the_clients_of_a_key_name_a_bounded_number_of_topics(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "NAMES_MAX", 10)

    def names(first: int, count: int) -> list[pb.Resource]:
        return [resource(f"t{number}") for number in range(first, first + count)]

    def reading(count: int) -> pb.Subscription:
        return pb.Subscription(
            group=resource(GROUP), subscriptions=[pb.SubscriptionEntry(topic=name) for name in names(0, count)]
        )

    with V2(v2.endpoint, client_id="other") as second, v2.telemetry() as one, second.telemetry() as other:
        assert one.agree(publishing=pb.Publishing(topics=names(0, 6))).status.code == pb.OK
        assert one.agree(publishing=pb.Publishing(topics=names(0, 6))).status.code == pb.OK, "the same names"
        refused = other.agree(subscription=reading(5))
        assert refused.status.code == pb.TOO_MANY_REQUESTS
        assert "may name 10 topics" in refused.status.message
    with V2(v2.endpoint, client_id="other") as second, second.telemetry() as other:
        assert other.agree(subscription=reading(4)).status.code == pb.OK
        assert v2.code("NotifyClientTermination") == "OK"
        assert other.agree(subscription=reading(10)).status.code == pb.OK, "those of the first client are free again"
        assert other.agree(subscription=reading(1)).status.code == pb.OK
        assert other.agree(publishing=pb.Publishing(topics=names(0, 9))).status.code == pb.OK


def test_a_client_that_was_forgotten_names_no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream may still be open, and its names are not counted any more."""

    async def scenario() -> None:
        engine: Any = Silent()
        clients = ConnectedClients(engine, FakeClock())
        client = clients.heard(RocketmqCall("c", "JAVA", "", lambda: None))
        clients.reads(client, GROUP, frozenset({"a", "b"}))
        await clients.produces(client, "c")
        assert clients._names.total() == 3
        clients.forget("c")
        clients.reads(client, GROUP, frozenset({"a", "b"}))
        await clients.produces(client, "c")
        assert (client.topics, client.produces, dict(clients._names)) == (frozenset(), set(), {})

    asyncio.run(scenario())


def test_a_route_repeats_no_more_of_a_request_than_it_has_to(shop: Stubs, v2: V2) -> None:
    """Each queue repeats topic and endpoints: a large request must not become an answer of gigabytes."""
    many = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="10.0.0.1", port=8081)] * 65)
    assert v2.code("QueryRoute", topic=resource(TOPIC), endpoints=many) == "ILLEGAL_ACCESS_POINT"
    long = pb.Endpoints(scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host="h" * 256, port=8081)])
    assert v2.code("QueryRoute", topic=resource(TOPIC), endpoints=long) == "ILLEGAL_ACCESS_POINT"
    unknown_field = b"\xfa\x01\x80\x08" + b"x" * 1024
    topic = resource(TOPIC).SerializeToString() + unknown_field
    raw = b"\x0a" + bytes([len(topic) & 127 | 128, len(topic) >> 7]) + topic
    assert rpc.QueryRouteRequest.FromString(raw).topic.name == TOPIC
    answer = v2.raw("QueryRoute", raw)
    assert rpc.QueryRouteResponse.FromString(answer).status.code == pb.OK
    assert len(answer) < 1024


@pytest.mark.promise("ack")
def test_leases_of_a_topic_that_was_deleted_are_over_and_clients_stop_asking(shop: Stubs, v2: V2) -> None:
    """Push consumers repeat an ack for ever unless they hear OK or INVALID_RECEIPT_HANDLE."""
    v2.send(message())
    (found,) = v2.receive().messages
    shop.admin.DeleteTopic(native.DeleteTopicRequest(name=TOPIC), timeout=CALL_S)
    assert v2.ack(found).status.code == pb.INVALID_RECEIPT_HANDLE
    names: dict[str, Any] = {"topic": resource(TOPIC), "group": resource(GROUP)}
    handle = found.system_properties.receipt_handle
    assert v2.code("ChangeInvisibleDuration", receipt_handle=handle, **names) == "INVALID_RECEIPT_HANDLE"
    assert v2.code("ForwardMessageToDeadLetterQueue", receipt_handle=handle, **names) == "OK"


def test_two_filters_of_an_unknown_group_are_not_logged(shop: Stubs, v2: V2, caplog: pytest.LogCaptureFixture) -> None:
    """The log is for operators: clients must not fill it by requests for unknown groups."""
    with caplog.at_level(logging.WARNING, "popmq.protocols"):
        for tag in ("a", "b"):
            v2.receive(group="nobody", filter_expression=pb.FilterExpression(type=pb.TAG, expression=tag))
    assert not caplog.records


class Busy:
    """An engine that is busy."""

    async def execute(self, command: Any) -> Any:
        raise Refused("BUSY", "too much waits")

    ask = execute


def test_a_broker_that_is_busy_agrees_to_no_settings() -> None:
    """Some clients take the first answer for good: an ordered group must not be told that it has no order."""

    async def scenario() -> pb.Status:
        engine: Any = Busy()
        clients = ConnectedClients(engine, FakeClock())
        service, heard = TelemetryService(engine, clients, OpenStreams(None)), list[bytes]()
        call = RocketmqCall("c", "PYTHON", "", lambda: None)

        async def write(raw: bytes) -> None:
            heard.append(raw)

        settings = pb.Settings(subscription=pb.Subscription(group=resource(GROUP)))
        raw = rpc.TelemetryCommand(settings=settings).SerializeToString()
        assert not await service._take(raw, call, clients.heard(call), TelemetryStream(write))
        return rpc.TelemetryCommand.FromString(heard[0]).status

    assert asyncio.run(scenario()).code == pb.TOO_MANY_REQUESTS


# ── Refused polls ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.embedded("calls that take no time")
@pytest.mark.parametrize(
    ("asked", "deadline_s", "held_ms"),
    [
        ({"auto_renew": True, "poll_ms": 20_000}, CALL_S, [1_000]),
        ({"auto_renew": True, "poll_ms": 300}, CALL_S, [300]),
        ({"auto_renew": True, "poll_ms": 20_000}, 0.3, [0]),
        ({"poll_ms": 20_000}, CALL_S, []),
    ],
    ids=["a push consumer", "a short poll", "a near deadline", "a simple consumer"],
)
def test_the_refusal_of_a_push_consumers_poll_is_held_for_a_second(
    shop: Stubs,
    v2: V2,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    deadline_s: float,
    held_ms: list[int],
) -> None:
    """It would ask again at once, 46 times a second."""
    held: list[int] = []

    async def hold(_: ConnectedClients, ms: int) -> None:
        held.append(ms)

    monkeypatch.setattr(ConnectedClients, "hold", hold)
    assert code(v2, group="unknown", deadline_s=deadline_s, **asked) == "CONSUMER_GROUP_NOT_FOUND"
    assert held == held_ms
    shop.create_group("closed", consume_enable=False)
    assert code(v2, group="closed", deadline_s=deadline_s, **asked) == "FORBIDDEN"
    assert held == held_ms * 2


def test_a_held_answer_leaves_when_the_broker_stops_and_a_bounded_number_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "HELD_MAX", 2)

    async def scenario() -> None:
        engine: Any = Silent()
        clients = ConnectedClients(engine, FakeClock())
        await clients.hold(1)
        held = [asyncio.ensure_future(clients.hold(MINUTE)) for _ in range(2)]
        await asyncio.sleep(0)
        await clients.hold(MINUTE)  # one too many
        gone = held.pop()
        gone.cancel()
        await asyncio.wait([gone])
        held.append(asyncio.ensure_future(clients.hold(MINUTE)))
        await asyncio.sleep(0)
        assert not any(each.done() for each in held)
        clients.closed.set()
        await asyncio.gather(*held)

    asyncio.run(scenario())
