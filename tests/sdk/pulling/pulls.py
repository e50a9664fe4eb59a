"""Steps for tests of pull consumers, for both clients."""

import asyncio
from collections.abc import Sequence
from typing import Any

import popmq
from tests.sdk.calling.lossy import LossyWire
from tests.sdk.conftest import GROUP, TOPIC


async def next_of(consumer: Any) -> popmq.Delivery:
    """The next delivery."""
    delivery: popmq.Delivery = await consumer.__anext__()
    return delivery


async def handle(guard: Any, delivery: popmq.Delivery) -> popmq.Delivery:
    """Handles a delivery. A test asserts outside of the guard, which takes any error for a failed handler."""
    async with guard(delivery):
        return delivery


def soon(consumer: Any) -> "asyncio.Task[popmq.Delivery]":
    """A task for the next delivery; a consumer that ends before it does not fail the test."""
    waiting = asyncio.ensure_future(next_of(consumer))
    waiting.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return waiting


async def take(consumer: Any, guard: Any, messages: int, fails: Sequence[str] = ()) -> list[str]:
    """Handles deliveries; the handler raises for the texts in `fails`. Returns all texts."""
    seen = []
    for _ in range(messages):
        async with guard(await next_of(consumer)) as delivery:
            seen.append(delivery.text())
            if delivery.text() in fails:
                raise ValueError(delivery.text())
    return seen


async def each_queue(client: Any, topic: str, queues: int, messages: int) -> None:
    """Sends so many messages to each queue: numbers, one request a queue, which the broker takes in turn."""
    for queue in range(queues):
        await client.send(topic, [f"{queue * messages + number}" for number in range(messages)])


async def committed(client: Any, topic: str = TOPIC, group: str = GROUP) -> dict[int, int]:
    """The committed offset of each queue."""
    return {row.queue: row.committed for row in await client.offsets.query(topic, group)}


async def later(advance: Any, waiting: "asyncio.Task[popmq.Delivery]") -> bool:
    """Whether the task is done after another five seconds."""
    await advance(5.0)
    return waiting.done()


async def pulling(consumer: Any) -> bool:
    """Whether the consumer has its queues."""
    await asyncio.sleep(0)
    return bool(consumer.queues())


async def pulling_later(consumer: Any, advance: Any) -> bool:
    """Whether the consumer has its queues, a second later."""
    await advance(1.0)
    return bool(consumer.queues())


def queues_of(consumer: Any) -> set[int]:
    """The queues that it reads, the retry topic as -1."""
    return {-1 if state.retry else state.queue for state in consumer.queues()}


async def shared_out(consumers: list[Any], sizes: list[int], advance: Any) -> bool:
    """Whether the consumers have these numbers of queues, in any order, after ten seconds. No queue may be shared."""
    await advance(10.0)
    shares = [queues_of(consumer) for consumer in consumers]
    assert sum(map(len, shares)) == len(set().union(*shares))
    return sorted(len(share - {-1}) for share in shares) == sorted(sizes)


async def asked_for_locks(wire: LossyWire, times: int, advance: Any) -> bool:
    """Whether a consumer has asked so often, one second later. Time stands still until it has begun to: locks end."""
    if wire.seen["LockQueues"]:
        await advance(1.0)
    await asyncio.sleep(0)
    return len(wire.seen["LockQueues"]) >= times


async def cached(consumer: Any, messages: int) -> bool:
    await asyncio.sleep(0)
    return bool(sum(state.cached for state in consumer.queues()) == messages)
