"""Callers that go away: a cancelled Pop loses nothing, and nobody else waits for it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract.commands import (
    CreateGroup,
    CreateTopic,
    NewMessage,
    Pop,
    Send,
)
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.writer.batch import Committed
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from tests.wire.gate import Gate
from tests.wire.gone import Gone
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Gone:
    return Gone(monkeypatch)


def test_a_cancelled_wait_takes_nothing(shop: Stubs, parked: Parked, gone: Gone) -> None:
    call = shop.pop_later()
    parked.wait_for(1)
    call.cancel()
    gone.wait_for(1)
    assert shop.stats().waiters == 0
    shop.send(b"a")
    (delivery,) = shop.pop().deliveries
    assert (delivery.message.body, delivery.attempt) == (b"a", 1)


@pytest.mark.mechanism("S4.20")
def test_a_caller_that_left_does_not_keep_the_message_from_the_next(shop: Stubs, parked: Parked, gone: Gone) -> None:
    first = shop.pop_later()
    parked.wait_for(1)
    second = shop.pop_later()
    parked.wait_for(2)
    first.cancel()
    gone.wait_for(1)
    shop.send(b"a")
    assert bodies(second.result()) == [b"a"]


@pytest.mark.mechanism("S4.20")
@pytest.mark.slow
def test_messages_of_a_cancelled_pop_come_back_at_once_without_counting_an_attempt(
    shop: Stubs, gate: Gate, gone: Gone
) -> None:
    """The caller goes away while its Pop waits for the writer: the lease that it gets is released."""
    shop.send(b"a", b"b", b"c")
    with gate.closed():
        call = shop.pop_later(wait_ms=0)
        gate.wait_for(1)
        call.cancel()
        gone.wait_for(1)
    gate.wait_for(2)  # the Pop, and its release
    again = shop.pop()
    assert bodies(again) == [b"a", b"b", b"c"]
    assert [delivery.attempt for delivery in again.deliveries] == [1, 1, 1]
    assert shop.ack(*handles(again)) == [""] * 3


def test_messages_of_a_cancelled_pop_go_to_the_next_parked_pop(
    shop: Stubs, gate: Gate, gone: Gone, parked: Parked
) -> None:
    shop.send(b"a")
    with gate.closed():
        first = shop.pop_later(wait_ms=0)
        gate.wait_for(1)
        second = shop.pop_later()
        gate.wait_for(2)
        first.cancel()
        gone.wait_for(1)
    assert bodies(second.result()) == [b"a"]


async def test_a_pop_cancelled_in_the_moment_of_its_answer_is_released(
    folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is set and the caller leaves in the same turn of the loop: neither may assume that the other knows.

    Without a wire, since no client can hit that turn on purpose.
    """
    broker = EmbeddedEngine(Options(folder, sync="none"), clock, Metrics())
    broker._ready = (None,)  # other calls wait for this turn of the loop: the command is queued with theirs
    await broker.execute(CreateTopic(TOPIC, 1, False, 60_000))
    await broker.execute(CreateGroup(GROUP, 17, (0,), 60_000, 0, "EARLIEST", 0, False))
    await broker.execute(Send(TOPIC, (outgoing(b"a"),)))
    answer, call = EmbeddedEngine._answer, asyncio.ensure_future(broker.pop(Pop(TOPIC, GROUP), 0))

    def answer_and_leave(self: EmbeddedEngine, tickets: list[Any], committed: Committed) -> None:
        answer(self, tickets, committed)
        call.cancel()

    monkeypatch.setattr(EmbeddedEngine, "_answer", answer_and_leave)
    with pytest.raises(asyncio.CancelledError):
        await call
    monkeypatch.setattr(EmbeddedEngine, "_answer", answer)
    again = await broker.pop(Pop(TOPIC, GROUP), 0)
    await broker.close()
    assert [row[4] for row in again.rows] == [1], "one message, and again its first attempt"


def outgoing(body: bytes) -> NewMessage:
    return NewMessage(pb.Message(body=body).SerializeToString(), "", "")


@pytest.mark.parametrize("named", ["attempt", "token"])
def test_a_cancelled_pop_with_an_attempt_id_or_a_token_is_kept_for_its_repeat(
    shop: Stubs, gate: Gate, gone: Gone, named: str
) -> None:
    shop.send(b"a")
    token = pb.Token(owner="query", generation=shop.attach().generation, epoch=1)
    fields = {"attempt_id": "try-1", "client_id": "worker-1"} if named == "attempt" else {"token": token}
    with gate.closed():
        call = shop.pop_later(wait_ms=0, **fields)
        gate.wait_for(1)
        call.cancel()
        gone.wait_for(1)
    assert bodies(shop.pop()) == []
    again = shop.pop(**fields)
    assert (bodies(again), again.replay) == ([b"a"], True)


def test_a_send_whose_caller_left_is_stored_once(shop: Stubs, gate: Gate, gone: Gone) -> None:
    """The caller cannot know; its request number can."""
    request = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"a")], producer_id="p", request_number=1)
    with gate.closed():
        call = shop.broker.Send.future(request, timeout=CALL_S)
        gate.wait_for(1)
        call.cancel()
        gone.wait_for(1)
    assert shop.broker.Send(request, timeout=CALL_S).duplicate
    assert bodies(shop.pop()) == [b"a"]


@pytest.mark.slow
def test_a_call_whose_deadline_is_over_is_as_good_as_cancelled(shop: Stubs, gate: Gate, gone: Gone) -> None:
    shop.send(b"a")
    with gate.closed():
        call = shop.broker.Pop.future(pb.PopRequest(topic=TOPIC, group=GROUP), timeout=0.05)
        gate.wait_for(1)
        gone.wait_for(1)
    assert call.code().name == "DEADLINE_EXCEEDED"
    gate.wait_for(2)
    (delivery,) = shop.pop().deliveries
    assert (delivery.message.body, delivery.attempt) == (b"a", 1)


@pytest.mark.slow
def test_a_storm_of_cancelled_pops_loses_no_message(shop: Stubs, clock: FakeClock, parked: Parked) -> None:
    """Pops are cancelled at all moments: no message is lost, and leased ones come back when their leases end."""
    taken, sent = list[bytes](), list[bytes]()

    def send(count: int) -> None:
        bodies = [f"{len(sent) + number}".encode() for number in range(count)]
        sent.extend(bodies)
        shop.send(*bodies)

    for _ in range(20):
        calls = [shop.pop_later(max_messages=2, invisible_ms=5_000) for _ in range(20)]
        send(30)
        for call in calls[::2]:
            call.cancel()
        for call in calls[1::2]:
            while not call.done():
                send(2)  # what a cancelled pop was answered stays leased: there may be nothing for this one
            answer = call.result()
            shop.ack(*handles(answer))
            taken += bodies(answer)
    clock.advance(5_000)
    while (answer := shop.pop(max_messages=4_096)).deliveries:
        shop.ack(*handles(answer))
        taken += bodies(answer)
    assert sorted(taken) == sorted(sent)
    stats = shop.stats()
    assert (stats.acked, stats.ready, stats.retry, stats.in_flight, stats.dead) == (len(sent), 0, 0, 0, 0)
