"""When a pull consumer with `until_idle` ends: not before the broker knows how all ended, and has the last word."""

import asyncio
import importlib
import threading
from typing import Any

import pytest

import popmq
from popmq import errors
from tests.sdk.calling.lossy import REFUSE, LossyWire, holding
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually
from tests.sdk.pulling.pulls import handle, next_of, soon

pytestmark = pytest.mark.usefixtures("popmq_clock")

#: Seconds: less than a call to the broker takes.
AT_ONCE = 0.001


async def long_enough(client: Any) -> None:
    """Much longer than being idle takes."""
    for _ in range(100):
        await client.topics.list()


async def ends(consumer: Any) -> None:
    with pytest.raises(StopAsyncIteration):
        await next_of(consumer)


@pytest.mark.slow
async def test_a_consumer_is_not_idle_before_its_failed_messages_are_sent_back(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, late: threading.Event
) -> None:
    await client.send(TOPIC, "x")
    wire.plan["SendBack"] = [holding(late)]
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP, until_idle=AT_ONCE) as consumer:
        async with guard(await next_of(consumer)) as delivery:
            delivery.release(0.0)
        waiting = soon(consumer)
        await long_enough(client)
        late.set()
        again = await handle(guard, await waiting)
        assert (again.text(), again.attempt) == ("x", 2)
        await ends(consumer)


@pytest.mark.slow
async def test_the_idle_time_begins_when_failed_messages_are_sent_back(
    connect: Connect,
    client: Any,
    wire: LossyWire,
    guard: Any,
    late: threading.Event,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []
    arrivals = importlib.import_module(f"popmq._{kind}.consuming.arrivals").Arrivals
    wait: Any = arrivals.wait

    def counted(self: Any, seconds: float) -> Any:
        begun.append(seconds)
        return wait(self, seconds)

    monkeypatch.setattr(arrivals, "wait", counted)
    await client.send(TOPIC, "x")
    wire.plan["SendBack"] = [holding(late)]
    consumer = connect(wire.endpoint).pull_consume(TOPIC, GROUP, until_idle=3600.0)
    async with guard(await next_of(consumer)) as delivery:
        delivery.release(30.0)
    waiting = soon(consumer)
    await long_enough(client)
    before = len(begun)
    late.set()
    await eventually(lambda: more(begun, before))
    assert not waiting.done()
    await consumer.close()


async def more(begun: list[float], before: int) -> bool:
    await asyncio.sleep(0)
    return len(begun) > before


@pytest.mark.slow
async def test_the_broker_has_the_last_word_on_whether_anything_is_left(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, late: threading.Event
) -> None:
    await client.topics.create("narrow", queues=1)
    wire.plan["Pull"] = [None, holding(late), holding(late)]  # nothing yet; what waits for more; what asks at the end
    async with connect(wire.endpoint).broadcast_consume("narrow", until_idle=AT_ONCE) as consumer:
        waiting = soon(consumer)
        await long_enough(client)
        await client.send("narrow", "x")
        late.set()
        assert (await handle(guard, await waiting)).text() == "x"
        await ends(consumer)


@pytest.mark.slow
async def test_a_consumer_is_not_idle_while_the_broker_is_away(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("_async", "_sync"):
        monkeypatch.setattr(f"popmq.{room}.consuming.puller.FAILED_S", AT_ONCE)
    await client.topics.create("narrow", queues=1)
    wire.plan["Pull"] = [None] + [REFUSE] * 100_000
    quick = connect(wire.endpoint, retry=popmq.Retry(first=AT_ONCE, longest=AT_ONCE, tries=1))
    async with quick.broadcast_consume("narrow", until_idle=AT_ONCE) as consumer:
        waiting = soon(consumer)
        await long_enough(client)
        await client.send("narrow", "x")
        wire.plan["Pull"].clear()
        assert (await handle(guard, await waiting)).text() == "x"
        await ends(consumer)


@pytest.mark.slow
async def test_the_end_of_its_topic_is_not_taken_for_idleness(
    connect: Connect, client: Any, wire: LossyWire, late: threading.Event, advance: Any
) -> None:
    """Nothing is asked again and again, until the share looks what became of the topic."""
    await client.topics.create("narrow", queues=1)
    wire.plan["Pull"] = [None, holding(late), holding(late)]
    async with connect(wire.endpoint).broadcast_consume("narrow", until_idle=AT_ONCE) as consumer:
        waiting = soon(consumer)
        await long_enough(client)
        await client.topics.delete("narrow")
        late.set()
        await long_enough(client)
        assert len(wire.seen["Pull"]) == 3
        await advance(1.0)
        with pytest.raises(errors.TopicNotFound):
            await waiting
