"""Orderly pull consumers: one message of a queue at a time, in their order, whatever fails; one client a queue."""

import asyncio
from typing import Any

import pytest

import popmq
from popmq.testing import Broker, FakeClock
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, has_retried
from tests.sdk.pulling.pulls import cached, committed, each_queue, handle, later, next_of, pulling, soon, take

pytestmark = pytest.mark.usefixtures("popmq_clock")


async def test_one_message_of_a_queue_is_out_at_a_time(client: Any, guard: Any) -> None:
    await each_queue(client, TOPIC, 2, 10)
    async with client.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        first, second = await next_of(consumer), await next_of(consumer)
        assert first.queue != second.queue
        waiting = soon(consumer)
        await client.topics.list()
        assert not waiting.done()
        await handle(guard, first)
        third = await waiting
        assert (third.queue, third.offset) == (first.queue, first.offset + 1)
        second.ack()
        third.ack()


@pytest.mark.mechanism("S3.07")
async def test_handlers_beside_each_other_keep_the_order_of_each_queue(client: Any, guard: Any) -> None:
    await each_queue(client, TOPIC, 4, 25)
    seen: dict[int, list[int]] = {queue: [] for queue in range(4)}
    out, together = set[int](), set[int]()  # queues of which a message is out, and those of which two were
    consumer = client.pull_consume(TOPIC, GROUP, orderly=True)

    async def work() -> None:
        while sum(map(len, seen.values())) < 100:
            async with guard(await next_of(consumer)) as delivery:
                together.update({delivery.queue} & out)
                out.add(delivery.queue)
                await asyncio.sleep(0)
                seen[delivery.queue].append(delivery.offset)
                out.discard(delivery.queue)

    async with consumer:
        workers = [asyncio.ensure_future(work()) for _ in range(8)]  # two for a queue
        await eventually(lambda: holds_all(seen))
        for worker in workers:
            worker.cancel()
        consumer.stop()
        await asyncio.gather(*workers, return_exceptions=True)
    assert together == set()
    assert seen == {queue: list(range(25)) for queue in range(4)}


@pytest.mark.slow
async def test_a_failed_message_is_tried_again_in_place_after_a_second(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["bad", "behind"])
    async with client.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        await take(consumer, guard, 1, fails=["bad"])
        waiting = soon(consumer)
        await advance(0.999)
        assert not waiting.done()
        await advance(0.001)
        again = await handle(guard, await waiting)
        assert (again.text(), again.attempt) == ("bad", 2)
        assert await take(consumer, guard, 1) == ["behind"]
    assert sum((await committed(client)).values()) == 2


async def test_a_message_of_an_orderly_queue_is_dead_lettered_after_its_last_attempt(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.groups.create("thrice", max_attempts=3)
    await client.send(TOPIC, ["bad", "behind"])
    async with client.pull_consume(TOPIC, "thrice", orderly=True) as consumer:
        for attempt in (1, 2, 3):
            delivery = await next_of(consumer)
            assert (delivery.text(), delivery.attempt) == ("bad", attempt)
            async with guard(delivery):
                raise ValueError("it is bad")
            await advance(1.0)
        assert await take(consumer, guard, 1) == ["behind"]
    (dead,) = (await client.messages.browse("%DLQ%thrice")).deliveries
    assert dead.text() == "bad"
    assert dead.dead_letter.reason.startswith("ValueError: it is bad")
    assert (dead.dead_letter.attempts, dead.dead_letter.last_client) == (3, client.client_id)


@pytest.mark.slow
async def test_a_handler_may_put_its_message_off_or_reject_it(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["later", "bad", "last"])
    async with client.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        (await next_of(consumer)).release(30.0)
        waiting = soon(consumer)
        await advance(29.9)
        assert not waiting.done()
        await advance(0.1)
        again = await handle(guard, await waiting)
        assert again.text() == "later"
        (await next_of(consumer)).reject("it is bad")
        assert await take(consumer, guard, 1) == ["last"]


async def test_a_delivery_that_was_dropped_unsettled_comes_again_in_its_place(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        await next_of(consumer)
        waiting = soon(consumer)
        await eventually(lambda: later(advance, waiting))
        again = await handle(guard, await waiting)
        assert again.text() == "a"
        assert await take(consumer, guard, 1) == ["b"]


@pytest.mark.slow
async def test_a_queue_is_handed_on_when_the_message_in_hand_is_done_and_not_before(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    await client.topics.create("narrow", queues=2)
    await each_queue(client, "narrow", 2, 3)
    async with client.pull_consume("narrow", GROUP, orderly=True) as one:
        kept = {each.queue: each for each in (await next_of(one), await next_of(one))}
        other = connect().pull_consume("narrow", GROUP, orderly=True)
        waiting = soon(other)
        await advance(90.0)
        assert {state.queue for state in one.queues() if not state.retry} == {0, 1}
        (left,) = [state.queue for state in one.queues() if state.leaving and not state.retry]
        assert not waiting.done()
        for delivery in kept.values():
            delivery.ack()
        await eventually(lambda: later(advance, waiting))
        delivery = await handle(guard, await waiting)
        assert (delivery.queue, delivery.offset) == (left, 1)
        mine = await next_of(one)
        assert (mine.queue, mine.offset) == (1 - left, 1)
        await other.close()


# ── Locks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_locks_are_renewed_while_a_handler_runs(connect: Connect, client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["slow"])
    other = connect()
    async with client.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        slow = await next_of(consumer)
        await advance(600.0)
        assert (await other.queues.lock(TOPIC, GROUP, list(range(8)))).queues == ()
        await handle(guard, slow)
    assert sum((await committed(client)).values()) == 1


@pytest.mark.slow
async def test_a_restart_of_the_broker_frees_no_lock_for_long(
    connect: Connect, client: Any, guard: Any, advance: Any, popmq_broker: Broker
) -> None:
    await client.send(TOPIC, ["a"])
    other = connect()
    reader = connect()
    async with reader.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        slow = await next_of(consumer)
        await asyncio.to_thread(popmq_broker.restart)
        await eventually(lambda: has_retried(reader))
        await advance(5.0)
        assert (await other.queues.lock(TOPIC, GROUP, list(range(8)))).queues == ()
        await handle(guard, slow)


async def test_a_queue_whose_lock_is_lost_is_given_up_without_a_commit(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, ["a", "b"])
    other = connect()
    async with client.pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        mine = await next_of(consumer)
        await client.queues.unlock(TOPIC, GROUP)  # an operator's hand
        await other.queues.lock(TOPIC, GROUP, list(range(8)))
        mine.ack()
        assert [state.committed for state in consumer.queues() if state.cached] == [1]
        await client.offsets.update(TOPIC, GROUP, {mine.queue: 0})
        await advance(20.0)
        assert consumer.queues() == []
        assert (await committed(client))[mine.queue] in (0, 1)
        await other.queues.unlock(TOPIC, GROUP)
        await advance(1.0)
        await eventually(lambda: pulling(consumer))


async def test_a_lock_that_ends_while_the_event_loop_is_blocked_holds_up_its_queue_until_there_is_another(
    client: Any, guard: Any, advance: Any, popmq_clock: Any
) -> None:
    await client.topics.create("narrow", queues=1)
    await client.send("narrow", ["a", "b"])
    async with client.pull_consume("narrow", GROUP, orderly=True) as consumer:
        first = await next_of(consumer)
        await eventually(lambda: cached(consumer, 2))
        await asyncio.to_thread(popmq_clock.broker_clock.advance, 31_000)  # nothing that is due is done
        first.ack()
        waiting = soon(consumer)
        await eventually(lambda: later(advance, waiting))
        again = await handle(guard, await waiting)
        assert [again.text(), *await take(consumer, guard, 1)] == ["a", "b"]


def test_a_delayed_message_that_no_handler_has_time_for_is_due_once(
    sync_client: popmq.Client, popmq_clock: FakeClock
) -> None:
    """Or the scheduler of the client would run again and again, without a pause."""
    sync_client.topics.create("narrow", queues=2)
    sync_client.send("narrow", ["1"])
    sync_client.send("narrow", ["2"])
    consumer = sync_client.pull_consume("narrow", GROUP, orderly=True)
    delayed, in_hand = next(consumer), next(consumer)
    delayed.release(1.0)
    popmq_clock.advance(1_000)
    assert (sync_client._parts.scheduler.due() or 0.0) > popmq_clock.now()
    with next(consumer) as again:
        assert again.text() == delayed.text()
    in_hand.ack()
    consumer.close()


async def holds_all(seen: dict[int, list[int]]) -> bool:
    await asyncio.sleep(0)
    return sum(map(len, seen.values())) >= 100
