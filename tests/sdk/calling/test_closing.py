"""Closing a client: what still waits then ends, and what comes later is refused."""

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker, FakeClock
from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import LossyWire, holding
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, holds

GroupShare = resolve_name("popmq._sync.consuming.share:GroupShare")
Stop = resolve_name("popmq._sync.concurrency:Stop")


async def test_leaving_a_guard_of_a_closed_client_raises_client_closed(client: Any, guard: Any) -> None:
    await client.send(TOPIC, "x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    await client.close()
    with pytest.raises(errors.ClientClosed):
        async with guard(delivery):
            pass


async def test_an_outcome_that_comes_after_closing_is_logged_as_not_sent(
    client: Any, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, "x")
    reader = connect()
    delivery = await reader.consume(TOPIC, GROUP).__anext__()
    await reader.close()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "popmq.consumer"):
        delivery.ack()
    assert f"outcomes of group {GROUP} are not sent, since the client is closed (1)" in caplog.text
    assert (await client.leases.list(GROUP, TOPIC)).total == 1


async def test_closing_waits_for_a_broker_that_is_away_once_and_not_for_each_thing(
    client: Any, connect: Connect, popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("_async", "_sync"):
        monkeypatch.setattr(f"popmq.{room}.transport.wire.CLOSE_S", 0.2)
    for group in ("audit", "logs"):
        await client.groups.create(group)
    await client.send(TOPIC, ["x", "y"])
    reader = connect()
    consumers = [reader.consume(TOPIC, group) for group in (GROUP, "audit")]
    deliveries = [await consumer.__anext__() for consumer in consumers]
    waiting = [asyncio.ensure_future(popped.__anext__()) for popped in (*consumers, reader.pull_consume(TOPIC, "logs"))]
    await asyncio.to_thread(popmq_broker.stop)
    for delivery in deliveries:
        delivery.ack()
    start = time.monotonic()
    await reader.close()
    assert time.monotonic() - start < 5.0
    await asyncio.gather(*waiting, return_exceptions=True)
    assert time.monotonic() - start < 5.0
    await asyncio.to_thread(popmq_broker.start)


async def test_a_goodbye_does_not_wait_for_a_heartbeat_without_an_answer(
    popmq_clock: FakeClock, wire: LossyWire, lossy: Any, late: threading.Event
) -> None:
    await lossy.send(TOPIC, "x")
    consumer = lossy.consume(TOPIC, GROUP)
    (await consumer.__anext__()).ack()
    begun = threading.Event()

    def held(forward: Callable[[], bytes]) -> bytes:
        begun.set()
        late.wait()
        return forward()

    wire.plan["Heartbeat"] = [held]
    advancing = asyncio.create_task(asyncio.to_thread(popmq_clock.advance, 60_000))
    await asyncio.to_thread(begun.wait)
    await asyncio.wait_for(consumer.close(), 5.0)
    assert pb.HeartbeatRequest.FromString(wire.seen["Heartbeat"][-1]).goodbye
    late.set()
    await advancing


@pytest.mark.promise("statistics")
def test_outcomes_are_sent_and_clients_closed_when_no_thread_can_start(
    sync_client: popmq.Client, popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a function of atexit."""
    sync_client.send(TOPIC, ["x", "y"])
    client = popmq.Client(popmq_broker.endpoint)
    delivery = next(client.consume(TOPIC, GROUP))
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("popmq-"):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        real(thread)

    with monkeypatch.context() as exiting:
        exiting.setattr(threading.Thread, "start", start)
        delivery.ack()
        client.close()
    (stats,) = sync_client.broker.stats(TOPIC, GROUP).groups
    assert (stats.acked, stats.in_flight, stats.sessions) == (1, 0, 0)


async def test_an_async_client_refuses_another_event_loop(client: Any, popmq_broker: Broker) -> None:
    mine = popmq_broker.async_client()
    await mine.send(TOPIC, "x")
    for call, arguments in ((mine.send, (TOPIC, "y")), (mine.topics.list, ()), (mine.close, ())):
        with pytest.raises(errors.ClientClosed, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(call(*arguments)))  # noqa: B023 - it is awaited
    assert len(await mine.pop(TOPIC, GROUP)) == 1
    await mine.close()


@pytest.mark.promise("statistics")
async def test_what_a_client_does_in_the_background_stays_in_its_event_loop_when_another_was_refused(
    client: Any, popmq_broker: Broker, numbers: Any
) -> None:
    await client.groups.create("audit")
    await client.send(TOPIC, "x")
    mine = popmq_broker.async_client()
    (delivery,) = await mine.pop(TOPIC, GROUP)
    loops = (mine.consume(TOPIC, GROUP), mine.pull_consume(TOPIC, "audit"))
    for call in (lambda: mine.pop(TOPIC, GROUP), *(loop.__anext__ for loop in loops)):
        with pytest.raises(errors.ClientClosed, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(call()))  # noqa: B023 - it is awaited
    delivery.ack()
    await mine.close()
    assert (await numbers()).acked == 1


async def test_a_loop_that_begins_while_its_client_is_being_closed_ends_with_client_closed(
    wire: LossyWire, lossy: Any, late: threading.Event
) -> None:
    await lossy.groups.create("audit")
    await lossy.send(TOPIC, "x")
    first = lossy.consume(TOPIC, GROUP)
    await lossy.topics.create("later")
    wire.plan["Ack"] = [holding(late)]
    (await first.__anext__()).ack()
    closing = asyncio.ensure_future(lossy.close())
    await eventually(lambda: holds(first._stop.is_set))
    second = lossy.consume("later", "audit")

    async def loop() -> None:
        async for _ in second:
            pass

    looping = asyncio.ensure_future(loop())
    await eventually(lambda: holds(lambda: second._opened))
    late.set()
    await closing
    with pytest.raises(errors.ClientClosed):
        await looping


async def test_a_client_that_is_being_closed_pops_no_more(wire: LossyWire, lossy: Any, late: threading.Event) -> None:
    """Or others that pop and ack in a loop would keep it waiting for their outcomes."""
    await lossy.send(TOPIC, ["1", "2"])
    (delivery,) = await lossy.pop(TOPIC, GROUP, max_messages=1)
    consumer = lossy.consume(TOPIC, GROUP)
    wire.plan["Ack"] = [holding(late)]
    delivery.ack()
    closing = asyncio.ensure_future(lossy.close())
    await eventually(lambda: holds(consumer._stop.is_set))
    with pytest.raises(errors.ClientClosed):
        await lossy.pop(TOPIC, GROUP)
    late.set()
    await closing


def test_consumers_of_an_async_client_may_be_made_before_its_loop_runs(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    sync_client.groups.create("audit")
    client = popmq_broker.async_client()
    consumers = [client.consume(TOPIC, GROUP), client.pull_consume(TOPIC, "audit")]

    async def read() -> list[str]:
        async with client:
            await client.send(TOPIC, "x")
            return [(await anext(consumer)).text() for consumer in consumers]

    assert asyncio.run(read()) == ["x", "x"]


async def test_closing_a_client_ends_the_session_of_a_consumer_that_was_dropped(client: Any, connect: Connect) -> None:
    await client.send(TOPIC, "x")
    reader = connect()
    await reader.consume(TOPIC, GROUP).__anext__()
    gc.collect()
    await reader.close()
    assert await client.sessions.list(GROUP) == []


def test_a_signal_handler_closes_a_client_while_its_pull_consumer_is_being_closed(
    sync_client: popmq.Client, popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs in the thread that it interrupts, here in the middle of the commit."""
    sync_client.send(TOPIC, "x")
    client = popmq.Client(popmq_broker.endpoint)
    consumer = client.pull_consume(TOPIC, GROUP)
    with next(consumer):
        pass

    def interrupted(*arguments: Any, _save: Any = GroupShare.save) -> None:
        client.close()
        _save(*arguments)

    monkeypatch.setattr(GroupShare, "save", interrupted)
    consumer.close()
    assert sum(max(row.committed, 0) for row in sync_client.offsets.query(TOPIC, GROUP)) == 1
    with pytest.raises(errors.ClientClosed):
        client.topics.list()


def test_a_client_closes_consumers_while_another_thread_makes_one(
    sync_client: popmq.Client, popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = popmq_broker.client()
    made = [client.consume(TOPIC, GROUP) for _ in range(2)]

    class Grows(weakref.WeakSet[Any]):
        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                if len(made) < 3:
                    made.append(client.consume(TOPIC, GROUP))
                yield each

    monkeypatch.setattr(client, "_consumers", Grows(made))
    client.close()
    assert [each._stop.is_set() for each in made] == [True] * 3


def test_a_heartbeat_that_ends_while_a_consumer_leaves_is_no_error(
    sync_client: popmq.Client, popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_client.send(TOPIC, "x")
    client = popmq.Client(popmq_broker.endpoint)
    consumer = client.consume(TOPIC, GROUP)
    next(consumer).ack()
    under_way = [Stop()]
    beating = property(lambda _: under_way.pop() if under_way else None, lambda *_: None)
    monkeypatch.setattr(type(client._parts.heartbeats), "_beating", beating, raising=False)
    consumer.close()
    client.close()
    assert not under_way


@pytest.mark.parametrize("call", ["Heartbeat", "QueryAssignment"])
@pytest.mark.parametrize("kind_of", ["consume", "pull_consume"])
async def test_a_consumer_that_is_stopped_while_it_starts_leaves_no_session(
    wire: LossyWire, lossy: Any, late: threading.Event, call: str, kind_of: str
) -> None:
    """Or the broker would assign queues to it, which nobody reads, for two minutes."""
    done = threading.Event()

    def answered_late(forward: Callable[[], bytes]) -> bytes:
        answer = forward()
        done.set()
        late.wait()
        return answer

    wire.plan[call] = [answered_late]
    consumer = getattr(lossy, kind_of)(TOPIC, GROUP)
    starting = asyncio.ensure_future(consumer.__anext__())
    await asyncio.to_thread(done.wait)
    consumer.stop()
    with pytest.raises(StopAsyncIteration):
        await starting
    await eventually(lambda: left(lossy))


async def left(client: Any) -> bool:
    return not await client.sessions.list(GROUP)
