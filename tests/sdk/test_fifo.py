"""FIFO topics through a consumer: one message group goes one after another, and what stands behind a failure waits."""

import asyncio
import logging
from collections import defaultdict
from typing import Any

import pytest

import popmq
from popmq.testing import FakeClock
from tests.sdk.conftest import GROUP, Connect, eventually

FIFO = "letters"


@pytest.fixture(autouse=True)
def _by_the_fake_clock(popmq_clock: FakeClock) -> None:
    """A pop that waits, waits until it is cancelled: nothing here happens because time passed by itself."""


@pytest.fixture
async def client(connect: Connect) -> Any:
    """A client with a FIFO topic, and a group that backs off for 10 s."""
    client = connect()
    await client.topics.create(FIFO, type="FIFO", queues=2)
    await client.groups.create(GROUP, backoff=[10.0])
    return client


def bodies_of(message_group: str, *bodies: str) -> list[popmq.Message]:
    return [popmq.Message(body, message_group=message_group) for body in bodies]


async def warm(client: Any, guard: Any, consumer: Any) -> None:
    """Handles so many messages that the consumer takes 32 at a time."""
    await client.send(FIFO, [popmq.Message("warm", message_group=f"w{number}") for number in range(31)])
    for _ in range(31):
        async with guard(await consumer.__anext__()):
            pass


async def handle(consumer: Any, guard: Any, count: int, bad: str = "") -> list[str]:
    """Handles so many deliveries; the handler fails on `bad`. Their bodies."""
    seen = []
    for _ in range(count):
        async with guard(delivery := await consumer.__anext__()):
            seen.append(delivery.text())
            if delivery.text() == bad:
                raise ValueError("this one is bad")
    return seen


@pytest.mark.slow
async def test_messages_after_a_failed_one_come_again_after_it_and_other_message_groups_go_on(
    client: Any, guard: Any, advance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.consume(FIFO, GROUP) as consumer:
        await warm(client, guard, consumer)
        batch = [*bodies_of("a", "a0", "a1", "a2", "a3"), *bodies_of("b", "b0", "b1")]
        await client.send(FIFO, batch)
        seen = await handle(consumer, guard, 4, bad="a1")
        assert sorted(seen) == ["a0", "a1", "b0", "b1"]
        await advance(10.0)
        again = []
        for _ in range(3):
            async with guard(delivery := await consumer.__anext__()):
                again.append((delivery.text(), delivery.attempt))
        assert again == [("a1", 2), ("a2", 1), ("a3", 1)]
    # grpcio tells its own trouble with two event loops in one process to the logger of asyncio.
    ours = [record for record in caplog.records if record.name.startswith("popmq")]
    complaints = [record for record in ours if record.levelno >= logging.WARNING]
    assert ["failed" in record.getMessage() for record in complaints] == [True]  # the handler's, and no other


@pytest.mark.slow
async def test_a_message_group_goes_on_after_a_dead_letter(client: Any, guard: Any) -> None:
    await client.groups.create("once", max_attempts=1)
    async with client.consume(FIFO, "once") as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1", "a2"))
        seen = []
        for _ in range(3):
            async with guard(delivery := await consumer.__anext__()):
                seen.append((delivery.text(), delivery.attempt))
                if delivery.text() == "a0":
                    raise ValueError("this one is bad")
    assert seen == [("a0", 1), ("a1", 1), ("a2", 1)]
    (stats,) = (await client.broker.stats(FIFO, "once")).groups
    assert (stats.dead, stats.acked, stats.waiting) == (1, 33, 0)


@pytest.mark.slow
async def test_a_release_through_the_client_drops_the_later_messages_of_the_message_group(
    client: Any, guard: Any
) -> None:
    async with client.consume(FIFO, GROUP) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1", "a2"))
        async with guard(delivery := await consumer.__anext__()):
            await client.release(delivery, delay=0.0)
        assert await handle(consumer, guard, 3) == ["a0", "a1", "a2"]


async def test_a_message_settled_through_the_client_lets_its_message_group_go_on(client: Any, guard: Any) -> None:
    async with client.consume(FIFO, GROUP) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1", "a2"))
        kept = [await consumer.__anext__()]
        await client.ack(kept[0])
        kept.append(await consumer.__anext__())
        await client.reject(kept[1].handle, group=GROUP)
        kept.append(await consumer.__anext__())
        assert [delivery.text() for delivery in kept] == ["a0", "a1", "a2"]


async def test_the_next_message_of_a_message_group_comes_when_the_last_one_is_settled(client: Any, guard: Any) -> None:
    async with client.consume(FIFO, GROUP) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1"))
        first = await consumer.__anext__()
        second = asyncio.ensure_future(consumer.__anext__())
        await parked_pop(client)
        assert not second.done()
        first.ack()
        assert (await second).text() == "a1"


@pytest.mark.slow
async def test_other_message_groups_go_on_while_a_handler_is_slow(client: Any, guard: Any) -> None:
    async with client.consume(FIFO, GROUP) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1"))
        async with guard(await consumer.__anext__()):
            await client.send(FIFO, bodies_of("b", "b0", "b1", "b2"))
            assert await handle(consumer, guard, 3) == ["b0", "b1", "b2"]
        assert await handle(consumer, guard, 1) == ["a1"]


async def test_no_message_group_is_handled_by_two_workers_at_once(client: Any, guard: Any) -> None:
    for number in range(20):
        await client.send(FIFO, [popmq.Message(f"{number}", message_group=f"g{each}") for each in range(8)])
    consumer = client.consume(FIFO, GROUP)
    handling: set[str] = set()
    seen: defaultdict[str, list[int]] = defaultdict(list)
    failed: set[str] = set()

    async def work() -> None:
        while sum(map(len, seen.values())) < 160:
            try:
                delivery = await consumer.__anext__()
            except StopAsyncIteration:
                return
            async with guard(delivery):
                mine = delivery.message_group
                assert mine not in handling
                handling.add(mine)
                for _ in range(5):
                    await asyncio.sleep(0)
                handling.discard(mine)
                if delivery.text() == "7" and mine not in failed:
                    failed.add(mine)
                    delivery.release(0.0)
                else:
                    seen[mine].append(int(delivery.body))
        consumer.stop()

    await asyncio.gather(*(work() for _ in range(5)))
    await consumer.close()
    assert len(failed) == 8
    assert dict(seen) == {f"g{each}": list(range(20)) for each in range(8)}
    (stats,) = (await client.broker.stats(FIFO, GROUP)).groups
    assert (stats.acked, stats.in_flight, stats.waiting) == (160, 0, 0)


@pytest.mark.slow
async def test_a_lost_lease_drops_later_messages_of_its_message_group_and_waits_for_the_handler(
    client: Any, guard: Any, advance: Any
) -> None:
    async with client.consume(FIFO, GROUP, invisible=60.0) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1", "a2"))
        async with guard(lost := await consumer.__anext__()):
            await client.extend(lost, 1.0)  # an operator's hand: the lease ends before the client renews it
            await advance(120.0)
            again = asyncio.ensure_future(consumer.__anext__())
            await parked_pop(client)
            assert not again.done()
        first = await again
        assert (first.text(), first.attempt) == ("a0", 2)
        first.ack()
        assert await handle(consumer, guard, 2) == ["a1", "a2"]


async def test_two_consumers_of_one_client_wait_for_each_others_handlers(client: Any, guard: Any, advance: Any) -> None:
    async with client.consume(FIFO, GROUP, invisible=60.0) as one, client.consume(FIFO, GROUP) as other:
        await client.send(FIFO, bodies_of("a", "a0"))
        async with guard(lost := await one.__anext__()):
            await client.extend(lost, 1.0)
            await advance(120.0)
            again = asyncio.ensure_future(other.__anext__())
            await eventually(lambda: held_twice(client))
            await parked_pop(client)
            assert not again.done()
        assert ((await again).text(), again.result().attempt) == ("a0", 2)


async def test_a_delivery_dropped_without_settling_comes_again_in_order_and_is_logged(
    client: Any, guard: Any, advance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.consume(FIFO, GROUP, invisible=60.0) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1"))
        assert (await consumer.__anext__()).text() == "a0"
        again = asyncio.ensure_future(consumer.__anext__())
        await parked_pop(client)
        await advance(60.0)
        assert ((await again).text(), again.result().attempt) == ("a0", 2)
        again.result().ack()
        assert await handle(consumer, guard, 1) == ["a1"]
    assert "deliveries of group billing were dropped without ack, release or reject (1)" in caplog.text


async def test_undelivered_messages_of_a_fifo_topic_are_released_in_order_without_a_warning(
    client: Any, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with client.consume(FIFO, GROUP) as consumer:
        await warm(client, guard, consumer)
        await client.send(FIFO, bodies_of("a", "a0", "a1", "a2", "a3"))
        assert await handle(consumer, guard, 2, bad="a1") == ["a0", "a1"]
        await client.send(FIFO, bodies_of("b", "b0", "b1", "b2"))
        assert await handle(consumer, guard, 1) == ["b0"]
    left = await client.pop(FIFO, GROUP)
    assert [(each.text(), each.attempt) for each in left] == [("b1", 1), ("b2", 1)]
    assert "outcome of group" not in caplog.text


async def test_dead_letters_of_one_message_group_have_no_order_among_each_other(client: Any, guard: Any) -> None:
    await client.send(FIFO, bodies_of("a", "a0", "a1", "a2"))
    await client.reject(await client.pop(FIFO, GROUP))
    await client.groups.create("undertaker")
    async with client.consume(f"%DLQ%{GROUP}", "undertaker", max_in_hand=8) as consumer:
        out = [await consumer.__anext__() for _ in range(3)]
        out[0].release(30.0)
        out[1].ack()
        out[2].ack()
    (stats,) = (await client.broker.stats(f"%DLQ%{GROUP}", "undertaker")).groups
    assert (stats.acked, stats.backoff) == (2, 1)


async def test_a_group_may_want_one_message_after_another_of_any_topic(client: Any, guard: Any) -> None:
    await client.topics.create("plain")
    await client.groups.create("slow", fifo=True)
    for number in range(40):
        await client.send("plain", str(number))
    consumer = client.consume("plain", "slow")
    handling = 0
    done = []

    async def work() -> None:
        nonlocal handling
        while True:
            try:
                delivery = await consumer.__anext__()
            except StopAsyncIteration:
                return
            async with guard(delivery):
                assert not handling
                handling += 1
                await asyncio.sleep(0)
                handling -= 1
                done.append(int(delivery.body))
            if len(done) == 40:
                consumer.stop()

    workers = [asyncio.ensure_future(work()) for _ in range(3)]
    await asyncio.gather(*workers)
    assert sorted(done) == list(range(40))


async def held_twice(client: Any) -> bool:
    """Whether the message was popped again."""
    return any(lease.undone for lease in (await client.leases.list(GROUP, FIFO)).leases)


async def parked_pop(client: Any) -> None:
    """Waits until a pop of the group is parked in the broker."""
    while not (groups := (await client.broker.stats(FIFO, GROUP)).groups) or not groups[0].waiters:
        pass
