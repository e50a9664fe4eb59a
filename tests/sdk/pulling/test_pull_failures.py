"""A pull consumer whose handler fails: retries, send-backs, and what is committed of the batch."""

import asyncio
import logging
from typing import Any

import pytest

from tests.sdk.conftest import GROUP, TOPIC, eventually
from tests.sdk.pulling.pulls import committed, handle, later, next_of, soon, take


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "popmq")


async def test_a_failed_message_comes_again_through_the_retry_topic(
    client: Any, guard: Any, advance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, ["bad", "good"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        assert await take(consumer, guard, 2, fails=["bad"]) == ["bad", "good"]
        assert "the handler of message" in caplog.text
        await advance(9.9)
        assert sum(state.cached for state in consumer.queues()) == 0
        await advance(0.1)
        again = await handle(guard, await next_of(consumer))
        assert (again.text(), again.attempt, again.topic) == ("bad", 2, TOPIC)
    assert sum((await committed(client)).values()) == 2


@pytest.mark.slow
async def test_a_message_that_fails_for_the_last_time_is_a_dead_letter_with_its_reason(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.groups.create("twice", max_attempts=2, backoff=[1.0])
    await client.send(TOPIC, "bad")
    async with client.pull_consume(TOPIC, "twice") as consumer:
        await take(consumer, guard, 1, fails=["bad"])
        await advance(1.0)
        await take(consumer, guard, 1, fails=["bad"])
        await advance(0.0)
    (dead,) = (await client.messages.browse("%DLQ%twice")).deliveries
    assert (dead.text(), dead.dead_letter.attempts, dead.dead_letter.topic) == ("bad", 2, TOPIC)
    assert dead.dead_letter.reason.startswith("ValueError: bad")


@pytest.mark.slow
async def test_a_handler_may_settle_its_delivery_itself(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["reject", "release", "ack"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        for _ in range(3):
            async with guard(await next_of(consumer)) as delivery:
                settle = getattr(delivery, delivery.text())
                settle(30.0) if delivery.text() == "release" else settle()
        await advance(29.9)
        assert sum(state.cached for state in consumer.queues()) == 0
        await advance(0.1)
        again = await handle(guard, await next_of(consumer))
        assert (again.text(), again.attempt) == ("release", 2)
    assert [dead.text() for dead in (await client.messages.browse(f"%DLQ%{GROUP}")).deliveries] == ["reject"]


async def test_a_message_released_uncounted_is_delivered_again_by_the_same_consumer(client: Any, guard: Any) -> None:
    await client.send(TOPIC, "x")
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        (await next_of(consumer)).release(0.0, uncounted=True)
        again = await handle(guard, await next_of(consumer))
        assert again.attempt == 1
    assert sum((await committed(client)).values()) == 1


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError])
async def test_an_interrupted_message_comes_again_uncounted(
    client: Any, guard: Any, interruption: type[BaseException]
) -> None:
    await client.send(TOPIC, "x")
    consumer = client.pull_consume(TOPIC, GROUP)
    delivery = await next_of(consumer)
    with pytest.raises(interruption):
        async with guard(delivery):
            raise interruption
    await consumer.close()
    assert sum((await committed(client)).values()) == 0
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        again = await handle(guard, await next_of(consumer))
        assert again.attempt == 1


@pytest.mark.slow
async def test_an_error_with_on_error_raise_ends_the_loop_and_sends_the_message_back(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, ["bad"])

    consumer = client.pull_consume(TOPIC, GROUP, on_error="raise")

    async def loop() -> None:
        async with consumer:
            async for delivery in consumer:
                async with guard(delivery):
                    raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        await loop()
    await advance(10.0)
    async with client.pull_consume(TOPIC, GROUP) as second:
        again = await handle(guard, await next_of(second))
        assert (again.text(), again.attempt) == ("bad", 2)


async def test_a_delivery_that_was_dropped_unsettled_is_sent_back(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["forgotten"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        await next_of(consumer)
        waiting = soon(consumer)
        await eventually(lambda: later(advance, waiting))
        again = await handle(guard, await waiting)
        assert (again.text(), again.attempt) == ("forgotten", 2)


@pytest.mark.slow
async def test_settling_twice_counts_once(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["x", "y"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        delivery = await next_of(consumer)
        delivery.ack()
        delivery.release()
        delivery.reject()
        await take(consumer, guard, 1)
    assert (await client.messages.browse(f"%DLQ%{GROUP}")).deliveries == ()
    assert sum((await committed(client)).values()) == 2
