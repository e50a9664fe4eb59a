"""A broker that restarts, politely or by kill -9, in the middle of everything: nothing lost, nothing doubled."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import popmq
from harness.broker_process import BrokerProcess
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, has_retried

pytestmark = pytest.mark.process


async def everything(client: Any) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while popped := await client.pop(TOPIC, GROUP, max_messages=4096):
        found.update(delivery.body for delivery in popped)
    return found


async def send_while(client: Any, callers: int, each: int, disturb: Any) -> None:
    """So many callers send one message after the other; `disturb` runs when a third of all is sent."""
    disturbing: asyncio.Future[None] | None = None
    sent = 0

    async def caller(name: int) -> None:
        nonlocal sent, disturbing
        for number in range(each):
            await client.send(TOPIC, b"%d-%d" % (name, number))
            sent += 1
            if sent == callers * each // 3:
                disturbing = asyncio.ensure_future(asyncio.to_thread(disturb))

    await asyncio.gather(*[caller(name) for name in range(callers)])
    assert disturbing
    await disturbing


async def test_sends_over_a_restart_are_stored_once_each(client: Any, popmq_broker: Broker) -> None:
    await send_while(client, 16, 40, popmq_broker.restart)
    assert await everything(client) == Counter(b"%d-%d" % (a, b) for a in range(16) for b in range(40))


async def test_sends_over_a_kill_9_are_stored_once_each(connect: Connect, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        client = connect(process.endpoint, clock=None)
        await client.topics.create(TOPIC)
        await client.groups.create(GROUP)

        def kill_and_start() -> None:
            process.kill()
            process.start()

        await send_while(client, 8, 50, kill_and_start)
        assert await everything(client) == Counter(b"%d-%d" % (a, b) for a in range(8) for b in range(50))
        assert client.client_stats().retries > 0


@pytest.mark.promise("statistics")
@pytest.mark.mechanism("S0.22")
async def test_a_consumer_goes_on_after_a_restart(client: Any, guard: Any, popmq_broker: Broker, numbers: Any) -> None:
    await client.send(TOPIC, [b"%d" % number for number in range(60)])
    seen: Counter[int] = Counter()
    consumer = client.consume(TOPIC, GROUP)
    async for delivery in consumer:
        async with guard(delivery):
            seen[int(delivery.body)] += 1
        if seen.total() == 20:
            await asyncio.to_thread(popmq_broker.restart)
        if seen.total() == 60:
            consumer.stop()
    assert seen == Counter(range(60))
    assert (await numbers()).acked == 60


@pytest.mark.mechanism("S4.01")
async def test_a_consumer_that_waits_notices_the_message_that_came_after_a_restart(
    connect: Connect, client: Any, popmq_broker: Broker
) -> None:
    consumer = connect().consume(TOPIC, GROUP)
    waiting = asyncio.ensure_future(consumer.__anext__())
    await asyncio.to_thread(popmq_broker.restart)
    await client.send(TOPIC, b"afterwards")
    delivery: popmq.Delivery = await waiting
    assert delivery.body == b"afterwards"


async def test_a_consumer_may_start_before_its_broker(connect: Connect, client: Any, popmq_broker: Broker) -> None:
    await client.send(TOPIC, b"x")
    await asyncio.to_thread(popmq_broker.stop)
    impatient = connect(timeouts=popmq.Timeouts.all(0.05))
    waiting = asyncio.ensure_future(impatient.consume(TOPIC, GROUP).__anext__())
    await eventually(lambda: has_retried(impatient))
    await asyncio.to_thread(popmq_broker.start)
    delivery: popmq.Delivery = await waiting
    assert delivery.body == b"x"
