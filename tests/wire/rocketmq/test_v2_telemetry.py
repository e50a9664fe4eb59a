"""apache.rocketmq.v2: what a client and the broker agree on over Telemetry; each row of the settings is a claim."""

import asyncio
import queue
import threading
from typing import Any

import grpc
import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.rocketmq import call
from tests.wire.rocketmq.v2 import V2, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

LADDER_S = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
CONSUMERS = [pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER, pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER]


def consumer(*topics: str, group: str = GROUP, **subscription: Any) -> dict[str, Any]:
    entries = [pb.SubscriptionEntry(topic=resource(name)) for name in topics or (TOPIC,)]
    return {"subscription": pb.Subscription(group=resource(group), subscriptions=entries, **subscription)}


def agree(v2: V2, **settings: Any) -> pb.Settings:
    with v2.telemetry() as telemetry:
        answer = telemetry.agree(**settings)
    assert answer.status.code == pb.OK
    return answer.settings


def seconds(policy: pb.RetryPolicy) -> list[int]:
    return [delay.seconds for delay in policy.customized_backoff.next]


def test_the_headers_come_before_anything_is_said(v2: V2) -> None:
    with v2.telemetry() as telemetry:
        telemetry.stream.initial_metadata()


def test_a_producer_gets_back_what_it_said_and_how_to_send(shop: Stubs, v2: V2) -> None:
    said = {
        "client_type": pb.PRODUCER,
        "access_point": pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="10.0.0.1", port=80)]),
        "user_agent": pb.UA(language=pb.JAVA, version="5.2.1"),
        "client_properties": {"team": "billing"},
        "request_timeout": {"seconds": 3},
    }
    agreed = agree(v2, publishing=pb.Publishing(topics=[resource(TOPIC)], max_body_size=1), **said)
    for name, value in said.items():
        assert getattr(agreed, name) == (value if name != "request_timeout" else agreed.request_timeout)
    assert agreed.request_timeout.seconds == 3
    assert list(agreed.publishing.topics) == [resource(TOPIC)]
    assert (agreed.publishing.max_body_size, agreed.publishing.validate_message_type) == (4 << 20, True)
    backoff = agreed.backoff_policy.exponential_backoff
    assert agreed.backoff_policy.max_attempts == 3
    assert (backoff.initial.ToMilliseconds(), backoff.max.seconds, backoff.multiplier) == (10, 1, 2)
    assert agreed.HasField("metric")
    assert not agreed.metric.on


@pytest.mark.parametrize("kind", CONSUMERS)
def test_a_consumer_learns_how_to_receive(shop: Stubs, v2: V2, kind: pb.ClientType) -> None:
    agreed = agree(v2, client_type=kind, **consumer())
    subscription = agreed.subscription
    assert subscription.group == resource(GROUP)
    assert [entry.topic for entry in subscription.subscriptions] == [resource(TOPIC)]
    assert (subscription.fifo, subscription.receive_batch_size) == (False, 32)
    assert subscription.long_polling_timeout.seconds == 20
    assert (subscription.lite_subscription_quota, subscription.max_lite_topic_size) == (2000, 64)
    assert agreed.backoff_policy.max_attempts == 17
    assert seconds(agreed.backoff_policy) == LADDER_S


class Pauses:
    """The pauses of the broker, which last until `end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: queue.Queue[tuple[float, asyncio.Future[None]]] = queue.Queue()
        self.cancelled = threading.Event()
        monkeypatch.setattr(call, "pause", self._pause)

    async def _pause(self, seconds: float) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.begun.put((seconds, ended))
        try:
            await ended
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    def end(self) -> float:
        """Ends the next one; how long it was to be."""
        seconds, ended = self.begun.get(timeout=CALL_S)
        ended.get_loop().call_soon_threadsafe(ended.set_result, None)
        return seconds


@pytest.mark.parametrize(("language", "times"), [("HTTP", 3), ("JAVA", 1)])
def test_node_gets_its_settings_three_times(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch, language: str, times: int
) -> None:
    """With several topics it waits for settings only when it has their routes, and misses an answer before that."""
    pauses = Pauses(monkeypatch)
    with V2(v2.endpoint, language=language) as client, client.telemetry() as telemetry:
        answers = [telemetry.agree(client_type=pb.PUSH_CONSUMER, **consumer())]
        for pause_s in call.REPEATS_S[: times - 1]:
            assert pauses.end() == pause_s
            answers.append(telemetry.hear())
        assert answers == answers[:1] * times
        other = telemetry.agree(client_type=pb.PUSH_CONSUMER, **consumer("other"))
        assert other.settings.subscription.subscriptions[0].topic.name == "other"


def test_settings_are_repeated_no_longer_than_the_stream_lasts(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(monkeypatch)
    with V2(v2.endpoint, language="HTTP") as node, node.telemetry() as telemetry:
        telemetry.agree(client_type=pb.PUSH_CONSUMER, **consumer())
    assert pauses.cancelled.wait(CALL_S)


def test_a_simple_consumer_keeps_the_wait_that_it_wants(shop: Stubs, v2: V2) -> None:
    for kind, expected in [(pb.SIMPLE_CONSUMER, 7), (pb.PUSH_CONSUMER, 20)]:
        agreed = agree(v2, client_type=kind, **consumer(long_polling_timeout={"seconds": 7}))
        assert agreed.subscription.long_polling_timeout.seconds == expected


def test_a_group_with_a_backoff_of_its_own_tells_it_in_whole_seconds(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic()
    stubs.create_group(max_attempts=4, backoff=native.Backoff(delays_ms=[0, 200, 1500, 3000]))
    policy = agree(v2, client_type=pb.PUSH_CONSUMER, **consumer()).backoff_policy
    assert policy.max_attempts == 4
    assert seconds(policy) == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("delays_ms", "expected_ms"), [([], (1_000, 7_200_000)), ([0, 500, 5_000], (500, 5_000)), ([0], (0, 0))]
)
def test_node_gets_an_exponential_backoff_in_milliseconds(
    stubs: Stubs, v2: V2, delays_ms: list[int], expected_ms: tuple[int, int]
) -> None:
    """It reads no other form, and takes the seconds for milliseconds: an ordered consumer would give up within some."""
    stubs.create_group(backoff=native.Backoff(delays_ms=delays_ms) if delays_ms else None)
    with V2(v2.endpoint, language="HTTP") as node:
        policy = agree(node, client_type=pb.PUSH_CONSUMER, **consumer()).backoff_policy
    backoff = policy.exponential_backoff
    assert policy.max_attempts == 17
    assert ((backoff.initial.seconds, backoff.max.seconds), backoff.multiplier) == (expected_ms, 2)


@pytest.mark.parametrize(
    ("group_fifo", "topic_type", "expected"),
    [(False, "NORMAL", False), (True, "NORMAL", True), (False, "FIFO", True)],
)
def test_messages_are_delivered_in_order_if_the_group_or_a_topic_wants_it(
    stubs: Stubs, v2: V2, group_fifo: bool, topic_type: str, expected: bool
) -> None:
    stubs.create_topic(type=topic_type)
    stubs.create_group(fifo=group_fifo)
    agreed = agree(v2, client_type=pb.PUSH_CONSUMER, **consumer(TOPIC, fifo=not expected))
    assert agreed.subscription.fifo == expected


def test_every_settings_is_answered_and_a_later_one_may_name_more_topics(shop: Stubs, v2: V2) -> None:
    shop.create_topic("letters", type="FIFO")
    with v2.telemetry() as telemetry:
        first = telemetry.agree(client_type=pb.PUSH_CONSUMER, **consumer())
        second = telemetry.agree(client_type=pb.PUSH_CONSUMER, **consumer(TOPIC, "letters"))
    assert [answer.settings.subscription.fifo for answer in (first, second)] == [False, True]


@pytest.mark.slow
def test_settings_of_a_topic_or_group_that_does_not_exist_are_agreed_for_it_may_be_made_later(v2: V2) -> None:
    assert agree(v2, client_type=pb.PUSH_CONSUMER, **consumer("later", group="later")).subscription.receive_batch_size
    assert agree(v2, client_type=pb.PRODUCER, publishing=pb.Publishing(topics=[resource("later")]))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, "BAD_REQUEST"),
        ({"publishing": pb.Publishing(topics=[resource("a b")])}, "ILLEGAL_TOPIC"),
        (consumer("a b"), "ILLEGAL_TOPIC"),
        (consumer(group="a b"), "ILLEGAL_CONSUMER_GROUP"),
        ({**consumer(), "client_properties": {"1": "a"}}, "INVALID_CLIENT_PROPERTIES"),
        ({**consumer(), "client_properties": {"rocketmq.x": "a"}}, "INVALID_CLIENT_PROPERTIES"),
        ({**consumer(), "client_properties": {"a": "x" * 257}}, "INVALID_CLIENT_PROPERTIES"),
        ({**consumer(), "client_properties": {f"p{n}": "" for n in range(33)}}, "INVALID_CLIENT_PROPERTIES"),
        ({**consumer(), "client_properties": {f"p{n}": "x" * 250 for n in range(17)}}, "INVALID_CLIENT_PROPERTIES"),
    ],
)
def test_bad_settings_are_answered_by_a_status_alone_and_end_the_stream_of_a_client_that_has_no_others(
    shop: Stubs, v2: V2, settings: dict[str, Any], code: str
) -> None:
    with v2.telemetry() as telemetry:
        refused = telemetry.agree(**settings)
        assert pb.Code.Name(refused.status.code) == code
        assert refused.WhichOneof("command") is None
        with pytest.raises(StopIteration):
            telemetry.hear()
        assert telemetry.stream.code() == grpc.StatusCode.OK
    with v2.telemetry() as telemetry:
        assert telemetry.agree(**consumer()).status.code == pb.OK
        assert pb.Code.Name(telemetry.agree(**settings).status.code) == code
        assert telemetry.agree(**consumer()).status.code == pb.OK


def test_a_telemetry_stream_without_a_client_id_is_refused(v2: V2) -> None:
    with V2(v2.endpoint, client_id="") as nobody, nobody.telemetry() as telemetry:
        assert pb.Code.Name(telemetry.hear().status.code) == "CLIENT_ID_REQUIRED"
        with pytest.raises(StopIteration):
            telemetry.hear()


def test_unexpected_answers_and_commands_of_a_later_protocol_are_ignored(shop: Stubs, v2: V2) -> None:
    with v2.telemetry() as telemetry:
        telemetry.say(thread_stack_trace=rpc.ThreadStackTrace(nonce="?", thread_stack_trace="…"))
        telemetry.say(verify_message_result=rpc.VerifyMessageResult(nonce="?"))
        telemetry.say()
        assert telemetry.agree(**consumer()).status.code == pb.OK


def test_a_broker_that_stops_ends_its_streams_in_order(broker: EmbeddedBroker, shop: Stubs, v2: V2) -> None:
    with v2.telemetry() as telemetry:
        telemetry.agree(**consumer())
        broker.stop()
        with pytest.raises(StopIteration):
            telemetry.hear()
        assert telemetry.stream.code() == grpc.StatusCode.OK
