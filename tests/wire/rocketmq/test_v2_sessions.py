"""apache.rocketmq.v2: how clients come, live and go, and who is asked about half messages."""

import asyncio
from typing import Any, cast

import grpc
import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from popmq_server.contract.commands import Check
from popmq_server.embedded.loop.producers import CheckStream, Producers
from popmq_server.protocols.rocketmq.call import TelemetryStream
from popmq_server.protocols.rocketmq.clients import Client, ConnectedClients
from tests.wire.rocketmq.v2 import CLIENT, V2, Telemetry, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs


def sessions(stubs: Stubs) -> list[tuple[str, str]]:
    answer = stubs.admin.ListSessions(native.ListSessionsRequest(group=GROUP), timeout=CALL_S)
    return [(session.client_id, session.group) for session in answer.sessions]


def producer(telemetry: Telemetry, *topics: str) -> None:
    publishing = pb.Publishing(topics=[resource(name) for name in topics])
    assert telemetry.agree(client_type=pb.PRODUCER, publishing=publishing).status.code == pb.OK


# ── Heartbeat, termination ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [kind for kind in pb.ClientType.values() if kind])
def test_every_type_of_client_may_beat_without_having_told_settings(shop: Stubs, v2: V2, kind: Any) -> None:
    assert v2.code("Heartbeat", client_type=kind, group=resource(GROUP)) == "OK"


def test_a_heartbeat_of_no_type_is_of_the_type_in_the_settings(shop: Stubs, v2: V2) -> None:
    assert v2.code("Heartbeat", group=resource(GROUP)) == "UNRECOGNIZED_CLIENT_TYPE"
    subscription = pb.Subscription(group=resource(GROUP))
    assert v2.telemetry().agree(client_type=pb.PUSH_CONSUMER, subscription=subscription).status.code == pb.OK
    assert v2.code("Heartbeat", group=resource(GROUP)) == "OK"
    assert sessions(shop) == [(CLIENT, GROUP)]


def test_a_consumer_that_beats_has_a_session_until_it_says_goodbye(shop: Stubs, v2: V2) -> None:
    v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
    assert sessions(shop) == [(CLIENT, GROUP)]
    assert v2.code("NotifyClientTermination", group=resource(GROUP)) == "OK"
    assert sessions(shop) == []


def test_a_goodbye_of_an_unknown_client_or_without_a_group_is_ok(shop: Stubs, v2: V2) -> None:
    assert v2.code("NotifyClientTermination") == "OK"
    assert v2.code("NotifyClientTermination", group=resource("")) == "OK"
    assert v2.code("NotifyClientTermination", group=resource("unknown")) == "OK"


def test_a_heartbeat_for_a_group_that_does_not_exist_is_ok_and_one_of_a_bad_name_is_not(v2: V2) -> None:
    assert v2.code("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource("later")) == "OK"
    assert v2.code("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource("a b")) == "ILLEGAL_CONSUMER_GROUP"
    assert v2.code("Heartbeat", client_type=pb.PRODUCER, group=resource("")) == "OK"


# ── Check-back ───────────────────────────────────────────────────────────────────────────────────────────────────────


def half(v2: V2, **system: Any) -> str:
    """Sends a half message; its transaction id."""
    (entry,) = v2.send(message(b"half", message_type=pb.TRANSACTION, **system)).entries
    return entry.transaction_id


@pytest.mark.parametrize("told", [True, False], ids=["by its settings", "by a send"])
def test_a_producer_is_asked_about_its_half_message_with_the_whole_message(
    stubs: Stubs, v2: V2, clock: FakeClock, told: bool
) -> None:
    stubs.create_topic(type="TRANSACTION")
    with v2.telemetry() as telemetry:
        producer(telemetry, *[TOPIC] * told)
        transaction_id = half(v2, properties={"a": "b"}, tag="paid", keys=["k"])
        clock.advance(6_000)
        asked = telemetry.hear().recover_orphaned_transaction_command
        assert asked.transaction_id == transaction_id
        found = asked.message
        assert (found.topic, found.body, dict(found.user_properties)) == (resource(TOPIC), b"half", {"a": "b"})
        system = found.system_properties
        assert (system.tag, list(system.keys), system.message_id) == ("paid", ["k"], "01AB")
        assert (system.message_type, system.body_encoding) == (pb.TRANSACTION, pb.IDENTITY)
        assert system.body_digest.type == pb.MD5
        assert system.born_timestamp.seconds
        assert system.delivery_attempt == 1


def test_the_first_check_comes_when_the_producer_wants_it(stubs: Stubs, v2: V2, clock: FakeClock) -> None:
    stubs.create_topic(type="TRANSACTION")
    with v2.telemetry() as telemetry:
        producer(telemetry, TOPIC)
        later = half(v2, message_id="later", orphaned_transaction_recovery_duration={"seconds": 20})
        soon = half(v2, message_id="soon", orphaned_transaction_recovery_duration={"seconds": 10})
        clock.advance(10_000)
        assert telemetry.hear().recover_orphaned_transaction_command.transaction_id == soon
        clock.advance(10_000)
        assert telemetry.hear().recover_orphaned_transaction_command.transaction_id == later


def test_another_producer_of_the_topic_is_asked_when_the_first_one_is_gone(
    stubs: Stubs, v2: V2, clock: FakeClock
) -> None:
    stubs.create_topic(type="TRANSACTION")
    with v2.telemetry() as telemetry:
        producer(telemetry, TOPIC)
        transaction_id = half(v2)
    v2.call("NotifyClientTermination")
    with V2(v2.endpoint, client_id="second") as second, second.telemetry() as telemetry:
        producer(telemetry, TOPIC)
        clock.advance(6_000)
        assert telemetry.hear().recover_orphaned_transaction_command.transaction_id == transaction_id


def test_a_check_goes_to_one_stream_of_a_client(stubs: Stubs, v2: V2, clock: FakeClock) -> None:
    stubs.create_topic(type="TRANSACTION")
    with v2.telemetry() as first:
        producer(first, TOPIC)  # the second one is opened when the first is there: streams overtake each other
        with v2.telemetry() as second:
            producer(second, TOPIC)
            half(v2)
            clock.advance(6_000)
            assert second.hear().HasField("recover_orphaned_transaction_command")
            first.say(settings=pb.Settings(publishing=pb.Publishing()))
            assert first.hear().HasField("settings")


@pytest.mark.parametrize(("header", "in_resource"), [("shop", ""), ("", "shop")], ids=["header", "resource"])
def test_a_namespace_comes_back_with_the_question(
    stubs: Stubs, v2: V2, clock: FakeClock, header: str, in_resource: str
) -> None:
    """Rust says its namespace in no header, and answers for the topic that the question names."""
    stubs.create_topic("shop.orders", type="TRANSACTION")
    with V2(v2.endpoint, x_mq_namespace=header) as other, other.telemetry() as telemetry:
        one = message(b"half", message_type=pb.TRANSACTION)
        one.topic.CopyFrom(resource("orders", in_resource))
        assert other.send(one).status.code == pb.OK
        producer(telemetry)
        clock.advance(6_000)
        assert telemetry.hear().recover_orphaned_transaction_command.message.topic == resource("orders", "shop")


def test_a_producer_that_named_its_topic_before_there_was_one_is_asked(stubs: Stubs, v2: V2, clock: FakeClock) -> None:
    with v2.telemetry() as telemetry:
        producer(telemetry, TOPIC)
        stubs.create_topic(type="TRANSACTION")
        transaction_id = half(v2)
        clock.advance(6_000)
        assert telemetry.hear().recover_orphaned_transaction_command.transaction_id == transaction_id


class Pipe:
    """Where a Telemetry stream writes to; a broken one raises as grpcio does."""

    def __init__(self, *, broken: bool = False) -> None:
        self.heard: list[bytes] = []
        self._broken = broken

    async def write(self, raw: bytes) -> None:
        if self._broken:
            raise grpc.aio.InternalError("the stream is broken")
        self.heard.append(raw)


class Asking:
    """An engine with one check for each producer that joins."""

    def __init__(self) -> None:
        self.counted: list[Check] = []
        self.producers = Producers(lambda: None, self._count)

    def _count(self, check: Check) -> "asyncio.Future[object]":
        self.counted.append(check)
        return asyncio.Future()

    async def join(self, client: str, topics: tuple[str, ...]) -> CheckStream:
        stream = CheckStream(self.producers, client, frozenset(topics), 0)
        self.producers.join(stream)
        self.producers.hand([Check("t" * 32, TOPIC, 1, native.Message(body=b"half").SerializeToString())])
        return stream


@pytest.mark.parametrize("whole", [True, False])
def test_a_stream_that_is_broken_does_not_keep_the_others_from_being_asked(whole: bool) -> None:
    """When none of a client's streams takes anything, the checks of its topic go to other producers."""

    async def scenario() -> None:
        engine, pipe = Asking(), Pipe(broken=not whole)
        clients = ConnectedClients(cast("Any", engine), FakeClock())
        client = Client("c")
        await clients.attach(client, TelemetryStream(pipe.write))
        client.outlets.append(TelemetryStream(Pipe(broken=True).write))
        await clients.produces(client, TOPIC)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (len(pipe.heard), len(engine.counted)) == (whole, whole)
        assert (len(engine.producers.streams()), len(client.answering)) == (whole, whole)

    asyncio.run(scenario())
