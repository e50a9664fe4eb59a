"""Who has the lock of a queue: one client at a time reads it, also while it changes hands."""

import asyncio
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import LossyWire
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually
from tests.sdk.pulling.pulls import (
    asked_for_locks,
    committed,
    each_queue,
    handle,
    later,
    next_of,
    queues_of,
    shared_out,
    soon,
    take,
)

pytestmark = pytest.mark.usefixtures("popmq_clock")


async def leaves(consumer: Any, queues: int, advance: Any) -> bool:
    await advance(1.0)
    return bool(sum(state.leaving and not state.retry for state in consumer.queues()) == queues)


@pytest.mark.mechanism("S0.02")
@pytest.mark.slow
async def test_a_queue_stays_locked_until_its_messages_in_hand_are_settled(
    connect: Connect, client: Any, guard: Any, advance: Any, popmq_clock: Any
) -> None:
    await each_queue(client, TOPIC, 8, 2)
    async with client.pull_consume(TOPIC, GROUP) as one:
        kept = [await next_of(one) for _ in range(16)]
        async with connect().pull_consume(TOPIC, GROUP) as other:
            waiting = soon(other)
            await eventually(lambda: leaves(one, 4, advance))
            for delivery in kept:
                delivery.ack()
            done = popmq_clock.now()
            await eventually(lambda: shared_out([one, other], [4, 4], advance))
            assert popmq_clock.now() - done <= 30.0  # and not 40 or more, when the lock would end by itself
            assert await committed(client) == dict.fromkeys(range(8), 2)
            assert not waiting.done()
            other.stop()


@pytest.mark.slow
async def test_settling_a_message_after_its_queue_was_reassigned_has_no_effect(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    await each_queue(client, TOPIC, 8, 2)
    async with client.pull_consume(TOPIC, GROUP) as one:
        kept = [await next_of(one) for _ in range(16)]
        async with connect().pull_consume(TOPIC, GROUP) as other:
            waiting = soon(other)
            await eventually(lambda: shared_out([one, other], [4, 4], advance))
            mine = queues_of(one)
            for delivery in kept:
                if delivery.queue in mine:
                    delivery.ack()
                else:
                    delivery.release()
            await advance(5.0)
            assert (await client.broker.stats(TOPIC, GROUP)).groups[0].backoff == 0
            ends = await committed(client)
            assert {queue for queue, offset in ends.items() if offset == 2} == mine - {-1}
            again = [await waiting] + [await next_of(other) for _ in range(7)]
            assert {delivery.queue for delivery in again} == set(range(8)) - mine


@pytest.mark.slow
async def test_until_idle_waits_for_assigned_queues_that_another_client_holds(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, advance: Any
) -> None:
    await client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    await client.send(TOPIC, "a")
    dead = connect()
    await dead.queues.lock(TOPIC, GROUP, list(range(8)))
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP, until_idle=0.001) as consumer:
        waiting = soon(consumer)
        await eventually(lambda: asked_for_locks(wire, 3, advance))
        for _ in range(100):
            await client.topics.list()  # each takes as long as being idle does
        assert (queues_of(consumer), waiting.done()) == (set(), False)
        await advance(60.0)
        assert (await handle(guard, await waiting)).text() == "a"
        with pytest.raises(StopAsyncIteration):
            await next_of(consumer)


@pytest.mark.mechanism("S0.02")
async def test_a_consumer_stalled_for_minutes_commits_no_offsets_of_queues_taken_over(
    connect: Connect, client: Any, guard: Any, advance: Any, popmq_clock: Any
) -> None:
    await client.send(TOPIC, ["a", "b", "c"])
    other = connect()
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        first = await handle(guard, await next_of(consumer))
        await asyncio.to_thread(popmq_clock.broker_clock.advance, 121_000)  # nothing that is due is done
        assert len((await other.queues.lock(TOPIC, GROUP, list(range(8)))).queues) == 8
        await other.offsets.update(TOPIC, GROUP, {first.queue: 3})
        await advance(30.0)
        assert queues_of(consumer) == set()
        assert (await committed(client))[first.queue] == 3


async def test_a_retry_in_hand_keeps_the_lock_of_the_first_queue(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, "bad")
    one = connect(client_id="b").pull_consume(TOPIC, GROUP)
    await take(one, guard, 1, fails=["bad"])
    waiting = soon(one)
    await eventually(lambda: later(advance, waiting))
    again = await waiting
    other = connect(client_id="a").pull_consume(TOPIC, GROUP)
    soon(other)
    await eventually(lambda: leaves(one, 1, advance))
    assert queues_of(one) >= {0, -1}
    assert queues_of(other) & {0, -1} == set()
    again.ack()
    await eventually(lambda: shared_out([one, other], [4, 4], advance))
    assert queues_of(other) == {-1, 0, 1, 2, 3}
    for consumer in (one, other):
        await consumer.close()


@pytest.mark.mechanism("S0.09")
@pytest.mark.slow
async def test_a_queue_that_leaves_is_pulled_no_more(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, advance: Any
) -> None:
    await client.topics.create("narrow", queues=2)
    await each_queue(client, "narrow", 2, 1)
    async with connect(wire.endpoint).pull_consume("narrow", GROUP, orderly=True) as one:
        kept = {each.queue: each for each in (await next_of(one), await next_of(one))}
        async with connect().pull_consume("narrow", GROUP, orderly=True) as other:
            soon(other)
            await eventually(lambda: leaves(one, 1, advance))
            await advance(20.0)  # what was under way is over
            (left,) = [state.queue for state in one.queues() if state.leaving and not state.retry]
            wire.seen["Pull"].clear()
            await eventually(lambda: later_pulls(wire, 1 - left, advance))
            assert left not in pulls(wire)
            for delivery in kept.values():
                delivery.ack()


def pulls(wire: LossyWire) -> list[int]:
    """The queues that were pulled."""
    requests = [pb.PullRequest.FromString(request) for request in wire.seen["Pull"]]
    return [request.queue for request in requests if not request.topic.startswith("%RETRY%")]


async def later_pulls(wire: LossyWire, queue: int, advance: Any) -> bool:
    await advance(15.0)
    return pulls(wire).count(queue) > 2
