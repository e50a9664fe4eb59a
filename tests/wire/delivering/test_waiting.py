"""Long polls: what wakes them, what ends them, and that they cost others nothing."""

import threading
from collections.abc import Callable

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.gate import Gate
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles, read_refusal, refusal


def hold(shop: Stubs, invisible_ms: int = 43_200_000) -> str:
    """Sends one message and pops it, so that the next pop finds nothing; its handle."""
    shop.send(b"held")
    (handle,) = handles(shop.pop(invisible_ms=invisible_ms))
    return handle


def by_sending(shop: Stubs, clock: FakeClock) -> Callable[[], object]:
    return lambda: shop.send(b"held")


def by_releasing(shop: Stubs, clock: FakeClock) -> Callable[[], object]:
    handle = hold(shop)
    return lambda: shop.change(handle, release=pb.Release(delay_ms=0))


def by_an_expired_lease(shop: Stubs, clock: FakeClock) -> Callable[[], object]:
    hold(shop, invisible_ms=30_000)
    return lambda: clock.advance(30_000)


def by_the_end_of_a_backoff(shop: Stubs, clock: FakeClock) -> Callable[[], object]:
    shop.change(hold(shop), release=pb.Release(delay_ms=30_000))
    return lambda: clock.advance(30_000)


def owned(shop: Stubs) -> pb.ReleaseOwnerRequest:
    generation = shop.attach(lease_ms=30_000).generation
    shop.send(b"held")
    token = pb.Token(owner="query", generation=generation, epoch=1)
    assert bodies(shop.pop(token=token, invisible_ms=30_000)) == [b"held"]
    return pb.ReleaseOwnerRequest(group=GROUP, owner="query", generation=generation)


def by_a_released_owner(shop: Stubs, clock: FakeClock) -> Callable[[], object]:
    request = owned(shop)
    return lambda: shop.broker.ReleaseOwner(request, timeout=CALL_S)


def by_an_owner_whose_lease_ran_out(shop: Stubs, clock: FakeClock) -> Callable[[], object]:
    owned(shop)
    return lambda: clock.advance(30_000)


WAKES = [
    by_sending,
    by_releasing,
    by_an_expired_lease,
    by_the_end_of_a_backoff,
    by_a_released_owner,
    by_an_owner_whose_lease_ran_out,
]


@pytest.mark.mechanism("S3.18")
@pytest.mark.slow
@pytest.mark.parametrize("wake", WAKES)
@pytest.mark.parametrize("queues", [(), (0,)], ids=["all queues", "a named queue"])
def test_a_parked_pop_is_woken(
    shop: Stubs, clock: FakeClock, parked: Parked, wake: Callable[..., Callable[[], object]], queues: tuple[int, ...]
) -> None:
    happen = wake(shop, clock)
    call = shop.pop_later(queues=queues)
    parked.wait_for(1)
    assert not call.done()
    happen()
    assert bodies(call.result()) == [b"held"]


@pytest.mark.parametrize("wake", WAKES)
def test_a_parked_wait_available_is_woken_and_takes_nothing(
    shop: Stubs, clock: FakeClock, parked: Parked, wake: Callable[..., Callable[[], object]]
) -> None:
    happen = wake(shop, clock)
    request = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, min_ready=1, wait_ms=60_000)
    call = shop.broker.WaitAvailable.future(request, timeout=CALL_S)
    parked.wait_for(1)
    happen()
    answer = call.result()
    assert answer.ready == 1
    assert answer.stats.ready + answer.stats.retry == 1
    assert bodies(shop.pop()) == [b"held"]


@pytest.mark.mechanism("S4.04")
@pytest.mark.slow
def test_a_wait_of_a_minute_is_the_longest_and_a_longer_one_is_refused(
    shop: Stubs, clock: FakeClock, parked: Parked
) -> None:
    shop.send(b"a")
    for ask, request in (
        (shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, wait_ms=60_001)),
        (shop.broker.Pull, pb.PullRequest(topic=TOPIC, wait_ms=60_001)),
        (shop.broker.WaitAvailable, pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, wait_ms=60_001)),
        (shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, wait_ms=-1)),
    ):
        refused = refusal(ask, request)
        assert (refused.code, refused.info.field) == ("INVALID_FIELD", "wait_ms")
    assert shop.ack(*handles(shop.pop())) == [""]
    call = shop.pop_later(wait_ms=60_000)
    parked.wait_for(1)
    clock.advance(60_000)
    assert bodies(call.result()) == []


@pytest.mark.slow
def test_a_wait_for_available_ends_at_its_time_with_what_there_is(
    shop: Stubs, clock: FakeClock, parked: Parked
) -> None:
    shop.send(b"a", b"b")
    request = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, min_ready=3, wait_ms=5_000)
    call = shop.broker.WaitAvailable.future(request, timeout=CALL_S)
    parked.wait_for(1)
    clock.advance(5_000)
    assert call.result().ready == 2


@pytest.mark.mechanism("S3.17", "S4.03", "S4.05")
def test_a_pop_without_a_wait_is_answered_at_once(shop: Stubs, parked: Parked) -> None:
    assert bodies(shop.pop(wait_ms=0)) == []
    request = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, min_ready=9)
    assert shop.broker.WaitAvailable(request, timeout=CALL_S).ready == 0
    with pytest.raises(AssertionError, match="0 of 1 parked"):
        parked.wait_for(1, within_s=0)


@pytest.mark.mechanism("S4.17")
@pytest.mark.slow
def test_waiters_of_named_queues_wake_for_their_queue(stubs: Stubs, parked: Parked) -> None:
    """A message wakes the waiter of its queue, whatever waiters of other queues there are."""
    stubs.create_topic(queues=4)
    stubs.create_group()
    calls = {}
    for place, queue in enumerate((3, 2, 1, 0)):
        calls[queue] = stubs.pop_later(queues=[queue])
        parked.wait_for(place + 1)
    for number in range(4):
        (sent,) = stubs.send(str(number).encode())
        assert bodies(calls.pop(sent.queue).result()) == [str(number).encode()]


@pytest.mark.mechanism("S4.12")
def test_a_message_between_the_look_and_the_parking_is_not_missed(
    shop: Stubs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pop finds nothing; before it has parked, a Send is committed, which finds no parked Pop to wake."""
    answer, held = EmbeddedEngine._answer, []

    def answer_two_at_once(self: EmbeddedEngine, *group: object) -> None:
        held.append(group)
        if len(held) == 2:
            for each in held:
                answer(self, *each)  # type: ignore[arg-type]
            monkeypatch.setattr(EmbeddedEngine, "_answer", answer)

    monkeypatch.setattr(EmbeddedEngine, "_answer", answer_two_at_once)
    with gate.closed():
        call = shop.pop_later()
        gate.wait_for(1)
        request = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"a")])
        sent = shop.broker.Send.future(request, timeout=CALL_S)
        gate.wait_for(2)
    assert sent.exception() is None
    assert bodies(call.result()) == [b"a"]


@pytest.mark.parametrize("kind", ["Topic", "Group"])
def test_a_deleted_topic_or_group_ends_its_waits(shop: Stubs, parked: Parked, kind: str) -> None:
    call = shop.pop_later()
    parked.wait_for(1)
    deletion = getattr(pb, f"Delete{kind}Request")(name={"Topic": TOPIC, "Group": GROUP}[kind])
    getattr(shop.admin, f"Delete{kind}")(deletion, timeout=CALL_S)
    with pytest.raises(grpc.RpcError) as error:
        call.result()
    assert read_refusal(error.value).code == f"{kind.upper()}_NOT_FOUND"


@pytest.mark.slow
def test_parked_pops_read_new_queues(stubs: Stubs, parked: Parked) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group()
    call = stubs.pop_later()
    parked.wait_for(1)
    stubs.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, queues=4)), timeout=CALL_S)
    parked.wait_for(2)
    stubs.send(b"a")
    assert bodies(call.result()) == [b"a"]


@pytest.mark.mechanism("S4.18")
@pytest.mark.slow
def test_a_thousand_parked_polls_do_not_delay_an_ack(shop: Stubs, parked: Parked, gate: Gate) -> None:
    handle = hold(shop)
    calls = [shop.pop_later() for _ in range(1_000)]
    parked.wait_for(1_000)
    gate.groups.clear()
    assert shop.ack(handle) == [""]
    assert [len(group) for group in gate.groups] == [1], "the ack is alone in its commit: parked polls ask for nothing"
    assert shop.stats().waiters == 1_000
    shop.send(b"a")
    for call in calls:
        call.cancel()


@pytest.mark.mechanism("D.46")
@pytest.mark.slow
def test_waits_end_when_the_broker_stops(broker: EmbeddedBroker, shop: Stubs, parked: Parked) -> None:
    calls = [shop.pop_later(), shop.pop_later(queues=[0])]
    request = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, min_ready=1, wait_ms=60_000)
    waiting = shop.broker.WaitAvailable.future(request, timeout=CALL_S)
    parked.wait_for(3)
    broker.stop()
    assert [bodies(call.result()) for call in calls] == [[], []]
    assert waiting.result().ready == 0


def test_a_pop_that_finds_nothing_while_the_broker_stops_does_not_park(
    broker: EmbeddedBroker, shop: Stubs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be cut off at the end of the drain, and hold it up until then."""
    stopping, close_waits = threading.Event(), EmbeddedEngine.close_waits

    def close_and_tell(self: EmbeddedEngine) -> None:
        close_waits(self)
        stopping.set()

    monkeypatch.setattr(EmbeddedEngine, "close_waits", close_and_tell)
    stopper = threading.Thread(target=broker.stop)
    with gate.closed():
        call = shop.pop_later()
        gate.wait_for(1)
        stopper.start()
        assert stopping.wait(CALL_S)
    assert bodies(call.result()) == []
    stopper.join()
