"""KEDA's external scaler, called as KEDA calls it: numbers, pushes, refusals."""

import threading
from collections.abc import Iterator

import grpc
import pytest

from popmq_proto.keda import externalscaler_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as v1
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.keda import service
from tests.wire.keda.scaler import Keda, trigger
from tests.wire.parked import Parked
from tests.wire.served import Served, ServedCluster
from tests.wire.stubs import CALL_S, TOPIC, Refusal, Stubs, handles, read_refusal


@pytest.fixture
def keda(shop: Stubs, monkeypatch: pytest.MonkeyPatch) -> Keda:
    monkeypatch.setattr(service, "LOOK_S", 0.01)
    return Keda(shop.channel)


def refused(keda: Keda, method: str = "IsActive", **metadata: str) -> Refusal:
    """The refusal of a trigger by each method that reads it; it is the same one."""
    asked = trigger(**metadata)
    call = keda.first if method == "StreamIsActive" else getattr(keda.stub, method)
    with pytest.raises(grpc.RpcError) as error:
        call(asked, timeout=CALL_S)
    return read_refusal(error.value)


# ── Pushes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_for_an_idle_group_is_pushed_and_so_is_the_end_of_the_work(
    keda: Keda, shop: Stubs, parked: Parked
) -> None:
    watch = keda.watch()
    assert watch.next() is False
    parked.wait_for(1)
    shop.send(b"a")
    assert watch.next() is True
    (handle,) = handles(shop.pop())
    shop.ack(handle)
    assert watch.next() is False
    parked.wait_for(2)
    shop.send(b"b")
    assert watch.next() is True
    watch.close()


def test_a_retry_wakes_a_scaled_down_group_too(keda: Keda, shop: Stubs, clock: FakeClock, parked: Parked) -> None:
    shop.send(b"a")
    (handle,) = handles(shop.pop())
    shop.change(handle, release=v1.Release(delay_ms=60_000))
    watch = keda.watch()
    assert watch.next() is False, "what waits for its backoff is no work yet"
    parked.wait_for(1)
    clock.advance(60_000)
    assert watch.next() is True
    watch.close()


def test_a_delayed_message_is_pushed_when_it_is_due(keda: Keda, shop: Stubs, clock: FakeClock, parked: Parked) -> None:
    shop.create_topic("later", type=v1.DELAY, queues=1)
    message = v1.Message(body=b"x", delay_ms=5_000)
    shop.broker.Send(v1.SendRequest(topic="later", messages=[message]), timeout=CALL_S)
    watch = keda.watch(topic="later")
    assert watch.next() is False
    parked.wait_for(1)
    clock.advance(5_000)
    assert watch.next() is True
    watch.close()


def test_of_several_topics_each_wakes_the_group(keda: Keda, shop: Stubs, parked: Parked) -> None:
    shop.create_topic("returns", queues=1)
    watch = keda.watch(topic=f"{TOPIC}, returns")
    assert watch.next() is False
    parked.wait_for(2)
    shop.send(b"a", topic="returns")
    assert watch.next() is True
    shop.send(b"b", b"c")
    assert keda.metric(topic=f"{TOPIC},returns") == 3
    watch.close()


def test_a_wait_that_ends_without_a_message_pushes_nothing_and_another_one_follows(
    keda: Keda, clock: FakeClock, shop: Stubs, parked: Parked
) -> None:
    watch = keda.watch()
    assert watch.next() is False
    for waits in (1, 2):
        parked.wait_for(waits)
        clock.advance(service.WAIT_MS)
    parked.wait_for(3)
    assert watch.is_silent()
    shop.send(b"a")
    assert watch.next() is True
    watch.close()


@pytest.mark.promise("statistics")
def test_up_to_the_activation_there_is_no_work(keda: Keda, shop: Stubs) -> None:
    watch = keda.watch(activation="2")
    assert watch.next() is False
    shop.send(b"a", b"b")
    assert not keda.is_active(activation="2")
    shop.send(b"c")
    assert watch.next() is True
    watch.close()


def test_a_stream_that_keda_left_waits_for_nothing(keda: Keda, shop: Stubs, parked: Parked) -> None:
    watch = keda.watch()
    assert watch.next() is False
    parked.wait_for(1)
    assert shop.stats().waiters == 1
    watch.close()
    while shop.stats().waiters:  # its reset comes before the calls that follow, on the same connection
        pass


def test_a_broker_that_stops_ends_the_streams_at_once(keda: Keda, broker: EmbeddedBroker, parked: Parked) -> None:
    watch = keda.watch()
    assert watch.next() is False
    parked.wait_for(1)
    stopping = threading.Thread(target=broker.stop)
    stopping.start()
    with pytest.raises(grpc.RpcError):
        watch.next()
    stopping.join(CALL_S)
    assert not stopping.is_alive()


# ── Numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise("statistics")
def test_work_is_what_can_be_delivered_and_what_is_leased(keda: Keda, shop: Stubs) -> None:
    shop.send(b"a", b"b", b"c", b"d")
    first, second, _ = handles(shop.pop(max_messages=3))
    shop.ack(first)
    shop.change(second, release=v1.Release(delay_ms=0))
    assert keda.metric() == 3, "one new, one retry, one leased"
    assert keda.metric(inFlight="false") == 2
    (rest,) = handles(shop.pop(max_messages=1))
    assert (keda.is_active(), shop.ack(rest)) == (True, [""])


@pytest.mark.promise("statistics")
def test_waiting_messages_of_a_fifo_topic_are_work_once_it_is_their_turn(keda: Keda, shop: Stubs) -> None:
    """A second consumer could not handle them meanwhile."""
    shop.create_topic("ledger", type=v1.FIFO, queues=1)
    messages = [v1.Message(body=b"x", message_group=group) for group in "aaab"]
    shop.broker.Send(v1.SendRequest(topic="ledger", messages=messages), timeout=CALL_S)
    assert keda.metric(topic="ledger") == 4
    (first,) = handles(shop.pop("ledger", max_messages=1))
    (other,) = handles(shop.pop("ledger", max_messages=1))
    shop.ack(other)
    assert shop.stats("ledger").waiting == 2
    assert keda.metric(topic="ledger") == 1
    assert keda.metric(topic="ledger", inFlight="false") == 0
    shop.ack(first)
    assert keda.metric(topic="ledger", inFlight="false") >= 1


@pytest.mark.promise("statistics")
def test_a_group_that_no_consumer_has_run_for_begins_where_it_should(keda: Keda, shop: Stubs) -> None:
    """Without replicas nobody else names the topic for it: it would have no messages for ever."""
    shop.send(b"old")
    shop.create_group("newest", start=v1.StartPosition(**{"from": v1.LATEST}))
    assert keda.is_active(), "from the beginning of the topic"
    assert not keda.is_active(group="newest")
    shop.send(b"new")
    assert keda.metric(group="newest") == 1


@pytest.mark.parametrize(
    ("target", "whole", "exact"), [("", 10, 10.0), ("250", 250, 250.0), ("0.5", 1, 0.5), (" 7 ", 7, 7.0)]
)
def test_the_target_is_told_in_both_forms_of_keda(keda: Keda, target: str, whole: int, exact: float) -> None:
    spec = keda.spec(target=target)
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("popmq-messages", whole, exact)


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["IsActive", "StreamIsActive", "GetMetricSpec"])
@pytest.mark.parametrize(
    ("metadata", "field", "why"),
    [
        ({"topic": ""}, "topic", "topic is empty"),
        ({"topic": "a,,b"}, "topic", "topic is empty"),
        ({"topic": "a,a"}, "topic", "each once"),
        ({"topic": ",".join(f"t{number}" for number in range(17))}, "topic", "names 17 topics"),
        ({"topic": "two words"}, "topic", "rename it"),
        ({"group": ""}, "group", "group is empty"),
        ({"target": "many"}, "target", "a number from 0 to 1000000000"),
        ({"target": "0"}, "target", "name the messages for one replica"),
        ({"target": "nan"}, "target", "a number from 0 to 1000000000"),
        ({"activation": "-1"}, "activation", "a number from 0 to 1000000000"),
        ({"inFlight": "yes"}, "inFlight", 'give it "true" or "false"'),
        ({"tagret": "5"}, "tagret", "use topic, group, target"),
        ({"secret": "hush"}, "secret", "secretFromEnv"),
    ],
)
def test_a_wrong_key_of_a_trigger_is_named_in_what_keda_logs(
    keda: Keda, method: str, metadata: dict[str, str], field: str, why: str
) -> None:
    found = refused(keda, method, **metadata)
    assert (found.code, found.info.field) == ("INVALID_FIELD", f"scalerMetadata.{field}")
    assert why in found.info.message, "KEDA's log has the message only"


@pytest.mark.parametrize("method", ["IsActive", "StreamIsActive"])
@pytest.mark.parametrize(
    ("metadata", "code", "cure"),
    [
        ({"topic": "nowhere"}, "TOPIC_NOT_FOUND", "popmq topic create nowhere"),
        ({"group": "nobody"}, "GROUP_NOT_FOUND", "popmq group create nobody"),
        ({"topic": "small"}, "INVALID_FIELD", "pop it with lite_topics"),
    ],
)
def test_a_trigger_for_what_is_not_there_is_refused_with_the_command_that_creates_it(
    keda: Keda, shop: Stubs, method: str, metadata: dict[str, str], code: str, cure: str
) -> None:
    shop.create_topic("small", type=v1.LITE)
    found = refused(keda, method, **metadata)
    assert (found.code, cure in found.info.message) == (code, True)


def test_another_metric_and_bytes_that_are_no_request_are_refused(keda: Keda, shop: Stubs) -> None:
    with pytest.raises(grpc.RpcError) as error:
        keda.stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=trigger(), metricName="lag"), timeout=CALL_S)
    assert read_refusal(error.value).info.field == "metricName"
    call = shop.channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
    with pytest.raises(grpc.RpcError) as error:
        call(b"\xff\xff", timeout=CALL_S)
    assert "not a externalscaler.ScaledObjectRef" in read_refusal(error.value).info.message


def test_keda_learns_that_targets_are_not_pushed(keda: Keda) -> None:
    """Any other error than UNIMPLEMENTED it would log again and again."""
    with pytest.raises(grpc.RpcError) as error:
        next(keda.stub.StreamMetricSpec(trigger(), timeout=CALL_S))
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


# ── Engines ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def at_gateway(gateway: ServedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubs]:
    monkeypatch.setattr(service, "LOOK_S", 0.01)
    with Stubs(gateway.endpoint) as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        yield stubs


def test_a_gateway_says_that_it_does_not_know_what_is_leased_and_pushes_what_arrives(at_gateway: Stubs) -> None:
    keda = Keda(at_gateway.channel)
    found = refused(keda)
    assert (found.code, 'set inFlight to "false"' in found.info.message) == ("UNSUPPORTED", True)
    watch = keda.watch(inFlight="false")
    assert watch.next() is False
    at_gateway.send(b"a", b"b")
    assert watch.next() is True
    assert keda.metric(inFlight="false") == 2
    at_gateway.ack(*handles(at_gateway.pop(max_messages=2)))
    assert watch.next() is False
    watch.close()


def test_an_engine_that_cannot_wait_is_refused_and_not_polled(second: Served) -> None:
    with Stubs(second.endpoint) as stubs:
        stubs.create_topic()
        stubs.create_group()
        assert refused(Keda(stubs.channel)).code == "UNSUPPORTED"


def test_calls_of_keda_are_counted_as_all_calls(second: Served) -> None:
    with Stubs(second.endpoint) as stubs:
        Keda(stubs.channel).spec()
        refused(Keda(stubs.channel), target="0")
    counted = second.serving._metrics.registry.get_sample_value
    for code in ("OK", "INVALID_FIELD"):
        name = "keda.GetMetricSpec" if code == "OK" else "keda.IsActive"
        assert counted("popmq_calls_total", {"method": name, "code": code}) == 1
