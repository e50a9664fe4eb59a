"""Who reads which queue: consumers that come, go, fall silent and are switched off; and offsets that were no place."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker
from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import REFUSE, LossyWire, holding
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, holds, told
from tests.sdk.pulling.pulls import (
    asked_for_locks,
    cached,
    committed,
    each_queue,
    handle,
    later,
    next_of,
    pulling,
    pulling_later,
    queues_of,
    shared_out,
    soon,
    take,
)

pytestmark = pytest.mark.usefixtures("popmq_clock")

QUICK = popmq.Retry(first=0.001, longest=0.01)
#: Whoever waits longer than this for a heartbeat has missed a change.
HEARTBEAT_S = 30.0


async def begin(consumer: Any) -> Any:
    """Starts a consumer that nobody takes deliveries from; the task that waits for the first one."""
    waiting = soon(consumer)
    await eventually(partial(pulling, consumer))
    return waiting


@pytest.mark.mechanism("S0.01", "S0.02", "S3.04")
@pytest.mark.parametrize(
    ("strategy", "sizes"), [("AVG", [4, 4]), ("CIRCLE", [4, 4]), ("CONSISTENT_HASH", [1, 7]), ("MACHINE_ROOM", [4, 4])]
)
async def test_two_consumers_share_the_queues_without_overlap(
    connect: Connect, client: Any, advance: Any, strategy: str, sizes: list[int]
) -> None:
    clients = [connect(client_id=name) for name in ("room@a", "room@b")]
    consumers = [each.pull_consume(TOPIC, GROUP, strategy=strategy) for each in clients]
    await begin(consumers[0])
    soon(consumers[1])
    await eventually(lambda: shared_out(consumers, sizes, advance))
    for consumer in consumers:
        await consumer.close()


@pytest.mark.mechanism("S3.02", "S3.30")
@pytest.mark.slow
async def test_queues_of_a_consumer_that_leaves_go_on_at_the_committed_offset(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    consumers = [connect().pull_consume(TOPIC, GROUP) for _ in range(2)]
    first, second = [soon(consumer) for consumer in consumers]
    await eventually(lambda: shared_out(consumers, [4, 4], advance))
    await each_queue(client, TOPIC, 8, 4)
    seen = [(await handle(guard, await first)).text(), *await take(consumers[0], guard, 9)]
    await consumers[0].close()
    seen += [(await handle(guard, await second)).text(), *await take(consumers[1], guard, 15)]
    await eventually(lambda: shared_out(consumers, [8, 0], advance))
    seen += await take(consumers[1], guard, 6)
    assert Counter(seen) == Counter(f"{number}" for number in range(32))
    await consumers[1].close()
    assert await committed(client) == dict.fromkeys(range(8), 4)


@pytest.mark.mechanism("S0.09", "S3.29")
@pytest.mark.slow
async def test_cached_messages_of_a_reassigned_queue_are_not_delivered(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    await each_queue(client, TOPIC, 8, 2)
    async with client.pull_consume(TOPIC, GROUP) as one:
        await handle(guard, await next_of(one))
        await eventually(lambda: cached(one, 15))
        async with connect().pull_consume(TOPIC, GROUP) as other:
            soon(other)
            await eventually(lambda: shared_out([one, other], [4, 4], advance))
            mine, waiting = queues_of(one), soon(one)
            while sum(state.cached - state.in_hand for state in one.queues()):
                delivery = await waiting
                assert delivery.queue in mine
                delivery.ack()
                waiting = soon(one)
            one.stop()


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True])
async def test_a_restart_of_the_broker_moves_no_queue(
    connect: Connect, client: Any, guard: Any, advance: Any, popmq_broker: Broker, orderly: bool
) -> None:
    consumers = [connect().pull_consume(TOPIC, GROUP, orderly=orderly) for _ in range(2)]
    waiting = [soon(consumer) for consumer in consumers]
    await eventually(lambda: shared_out(consumers, [4, 4], advance))
    before = [queues_of(consumer) for consumer in consumers]
    await asyncio.to_thread(popmq_broker.restart)
    await each_queue(client, TOPIC, 8, 1)
    for delivery in [await each for each in waiting]:
        delivery.ack()
    for consumer in consumers:
        await take(consumer, guard, 3)
    await each_queue(client, TOPIC, 8, 1)
    for _ in range(12):
        await advance(5.0)
        assert [queues_of(consumer) for consumer in consumers] == before
    for consumer in consumers:
        await take(consumer, guard, 4)
        await consumer.close()
    assert await committed(client) == dict.fromkeys(range(8), 2)


async def test_an_unknown_strategy_is_refused(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="not one of AVG, CIRCLE"):
        client.pull_consume(TOPIC, GROUP, strategy="RANDOM")


@pytest.mark.mechanism("S3.22")
async def test_named_queues_are_read_and_no_others(client: Any, guard: Any) -> None:
    await each_queue(client, TOPIC, 8, 2)
    async with client.pull_consume(TOPIC, GROUP, queues=[3, 5]) as consumer:
        waiting = await begin(consumer)
        assert queues_of(consumer) == {3, 5}
        (await waiting).ack()
        await take(consumer, guard, 3)
    assert [queue for queue, offset in (await committed(client)).items() if offset] == [3, 5]


async def test_a_named_queue_that_the_topic_does_not_have_ends_the_loop(client: Any) -> None:
    consumer = client.pull_consume(TOPIC, GROUP, queues=[3, 99])
    with pytest.raises(errors.InvalidField, match="no queue 99"):
        await next_of(consumer)
    await consumer.close()


async def test_queues_that_the_topic_gets_later_are_read_from_their_first_message(
    client: Any, guard: Any, advance: Any
) -> None:
    async with client.pull_consume(TOPIC, GROUP, start="latest") as consumer:
        waiting = await begin(consumer)
        await client.topics.update(TOPIC, queues=9)
        for _ in range(9):
            await client.send(TOPIC, "x")
        await advance(HEARTBEAT_S)
        seen = {(await waiting).queue} | {(await next_of(consumer)).queue for _ in range(8)}
        assert seen == set(range(9))


@pytest.mark.mechanism("S0.17")
@pytest.mark.slow
async def test_a_consumer_waits_while_its_group_pops(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1)
        await advance(5.0)
        await client.groups.set_consume_mode(TOPIC, GROUP, "POP")
        await advance(HEARTBEAT_S)
        assert queues_of(consumer) == set()
        (popped,) = await client.pop(TOPIC, GROUP)
        assert popped.text() == "b"
        await client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
        await advance(HEARTBEAT_S)
        delivery = await handle(guard, await next_of(consumer))
        assert (delivery.text(), delivery.attempt) == ("b", 2)  # it was leased, and came back as a retry


@pytest.mark.slow
async def test_a_message_in_hand_does_not_keep_its_queue_when_the_group_pops(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        kept = await next_of(consumer)
        await client.groups.set_consume_mode(TOPIC, GROUP, "POP")
        await advance(HEARTBEAT_S)
        assert queues_of(consumer) == set()
        await client.ack(await client.pop(TOPIC, GROUP, 2))
        await client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
        await eventually(lambda: shared_out([consumer], [8], advance))
        kept.ack()
        await client.send(TOPIC, "c")
        assert await take(consumer, guard, 1) == ["c"]


async def test_messages_not_committed_before_a_switch_to_pop_are_popped(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, "a")
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1)
        await client.groups.set_consume_mode(TOPIC, GROUP, "POP")
        await advance(5.0)
        assert queues_of(consumer) == set()
        assert [delivery.text() for delivery in await client.pop(TOPIC, GROUP)] == ["a"]


@pytest.mark.slow
async def test_a_topic_that_is_deleted_ends_the_loop(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, "x")
    consumer = client.pull_consume(TOPIC, GROUP)
    await take(consumer, guard, 1)
    waiting = soon(consumer)
    await client.topics.delete(TOPIC)
    await eventually(lambda: later(advance, waiting))
    with pytest.raises(errors.TopicNotFound, match=f"popmq topic create {TOPIC}"):
        await waiting
    await consumer.close()


# ── Through a wire that says what a test wants ───────────────────────────────────────────────────────────────────────


def answer(status: str, next_offset: int) -> Callable[[Any], bytes]:
    """What the wire says instead of the broker."""
    response = pb.PullResponse(status=status, next_offset=next_offset, max_offset=100)
    return lambda _forward: response.SerializeToString()


@pytest.mark.mechanism("S0.49")
@pytest.mark.slow
@pytest.mark.parametrize("status", ["OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY"])
async def test_an_offset_that_is_no_place_is_corrected_and_the_queue_begun_again_there(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, advance: Any, status: str
) -> None:
    await client.topics.create("narrow", queues=2)
    await each_queue(client, "narrow", 2, 3)
    wire.plan["Pull"] = [answer(status, 2)]
    async with connect(wire.endpoint).pull_consume("narrow", GROUP, queues=[1]) as consumer:
        waiting = soon(consumer)
        await eventually(lambda: pulled(wire, 1))
        await eventually(lambda: gone_on(advance, waiting))
        delivery = await handle(guard, await waiting)
        assert (delivery.queue, delivery.offset) == (1, 2)
    assert await committed(client, "narrow") == {0: 0, 1: 3}


async def gone_on(advance: Any, waiting: Any) -> bool:
    await advance(0.0)  # what is due now is done
    return bool(waiting.done())


async def pulled(wire: LossyWire, times: int) -> bool:
    await asyncio.sleep(0)
    return len(wire.seen["Pull"]) >= times


@pytest.mark.mechanism("S0.50")
@pytest.mark.slow
@pytest.mark.parametrize(
    "status", ["OFFSET_FOUND_NULL", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_OVERFLOW_ONE"]
)
async def test_an_answer_without_messages_moves_the_pull_and_the_commit_on(
    connect: Connect, client: Any, wire: LossyWire, advance: Any, status: str
) -> None:
    await client.topics.create("narrow", queues=2)
    await each_queue(client, "narrow", 2, 3)
    wire.plan["Pull"] = [answer(status, 2)]
    reading = connect(wire.endpoint).pull_consume("narrow", GROUP, queues=[1])
    async with reading as consumer:
        delivery = await next_of(consumer)
        assert (delivery.queue, delivery.offset) == (1, 2)
        await advance(5.0)
        assert await committed(client, "narrow") == {0: 0, 1: 2}
        delivery.ack()


@pytest.mark.mechanism("S0.08")
@pytest.mark.slow
async def test_a_pull_holds_as_long_as_it_was_asked_to_and_takes_a_batch(
    connect: Connect, client: Any, wire: LossyWire, guard: Any
) -> None:
    await client.send(TOPIC, "x")
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1)
    requests = [pb.PullRequest.FromString(request) for request in wire.seen["Pull"]]
    assert {(request.wait_ms, request.max_messages) for request in requests} == {(15_000, 32)}


@pytest.mark.mechanism("S3.33")
@pytest.mark.slow
async def test_a_client_sends_one_heartbeat_a_group_with_all_its_topics(
    connect: Connect, client: Any, wire: LossyWire, advance: Any
) -> None:
    await client.topics.create("second")
    member = connect(wire.endpoint)
    consumers = [member.pull_consume(TOPIC, GROUP), member.consume("second", GROUP)]
    await begin(consumers[0])
    soon(consumers[1])
    await eventually(lambda: parked(client, "second"))
    wire.seen["Heartbeat"].clear()
    await advance(HEARTBEAT_S)
    (beat,) = [pb.HeartbeatRequest.FromString(request) for request in wire.seen["Heartbeat"]]
    assert (list(beat.pull_topics), list(beat.pop_topics), beat.goodbye) == ([TOPIC], ["second"], False)
    await consumers[0].close()
    await consumers[1].close()
    first, last = [pb.HeartbeatRequest.FromString(request) for request in wire.seen["Heartbeat"][1:]]
    assert (list(first.pop_topics), first.goodbye, last.goodbye) == (["second"], False, True)


async def parked(client: Any, topic: str) -> bool:
    """Whether a pop of the group waits."""
    return any(numbers.waiters for numbers in (await client.broker.stats(topic, GROUP)).groups)


@pytest.mark.mechanism("S3.32")
@pytest.mark.slow
async def test_a_queue_locked_by_another_client_is_not_read_until_it_is_free(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, advance: Any
) -> None:
    await client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    await client.send(TOPIC, ["a"])
    other = connect()
    locks = await other.queues.lock(TOPIC, GROUP, list(range(8)))
    assert (sorted(locks.queues), locks.seconds) == (list(range(8)), 60.0)
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP, orderly=True) as consumer:
        waiting = soon(consumer)
        await eventually(lambda: asked_for_locks(wire, 3, advance))
        assert (consumer.queues(), wire.seen["Pull"], waiting.done()) == ([], [], False)
        await other.queues.unlock(TOPIC, GROUP)
        await advance(1.0)
        delivery = await handle(guard, await waiting)
        assert delivery.text() == "a"
        assert (await other.queues.lock(TOPIC, GROUP, list(range(8)))).queues == ()
    assert len((await other.queues.lock(TOPIC, GROUP, list(range(8)))).queues) == 8


@pytest.mark.mechanism("S3.13")
@pytest.mark.slow
async def test_one_of_many_consumers_that_start_together_sets_the_start_of_the_group(
    connect: Connect, client: Any, wire: LossyWire, advance: Any
) -> None:
    await client.topics.create("wide", queues=16)
    consumers = [connect(wire.endpoint).pull_consume("wide", GROUP, start="latest", queues=[n]) for n in range(4)]
    for consumer in consumers:
        soon(consumer)
    for consumer in consumers:  # who finds queue 0 locked by one that begins tries again a second later
        await eventually(partial(pulling_later, consumer, advance))
    assert len(wire.seen["SetConsumeMode"]) == 1
    for consumer in consumers:
        await consumer.close()


async def released(advance: Any, client: Any) -> bool:
    await advance(0.0)
    return any(numbers.backoff for numbers in (await client.broker.stats(TOPIC, GROUP)).groups)


@pytest.mark.slow
async def test_a_message_that_failed_before_the_close_is_sent_back_before_the_last_commit(
    connect: Connect, client: Any, wire: LossyWire, guard: Any
) -> None:
    await client.send(TOPIC, "bad")
    wire.plan["SendBack"] = [REFUSE] * 3
    async with connect(wire.endpoint, retry=QUICK).pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1, fails=["bad"])
    assert sum((await committed(client)).values()) == 1
    assert (await client.broker.stats(TOPIC, GROUP)).groups[0].backoff == 1


@pytest.mark.slow
async def test_a_send_back_that_fails_is_tried_again_and_nothing_is_lost(
    connect: Connect, client: Any, wire: LossyWire, guard: Any, advance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, "bad")
    member = connect(wire.endpoint, retry=QUICK, timeouts=popmq.Timeouts(settle=0.05))
    wire.plan["SendBack"] = [REFUSE] * 1000
    async with member.pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1, fails=["bad"])
        await eventually(lambda: told(caplog, "cannot send messages back, next try in"))
        wire.plan["SendBack"].clear()
        await eventually(lambda: released(advance, client))
        await advance(10.0)
        again = await handle(guard, await next_of(consumer))
        assert again.attempt == 2


async def test_a_close_that_is_cancelled_leaves_no_session_that_keeps_queues_and_no_task(
    popmq_broker: Broker, sync_client: popmq.Client, wire: LossyWire, advance: Any, late: threading.Event
) -> None:
    sync_client.send(TOPIC, "x")
    async with popmq.AsyncClient(wire.endpoint, clock=popmq_broker.clock) as reader:
        consumer = reader.pull_consume(TOPIC, GROUP)
        async with await anext(consumer):
            pass
        wire.plan["UpdateOffsets"] = [holding(late)]
        closing = asyncio.create_task(consumer.close())
        await eventually(lambda: holds(lambda: wire.seen["UpdateOffsets"]))
        closing.cancel()
        await asyncio.wait([closing])
        late.set()
        await eventually(lambda: holds(lambda: pb.HeartbeatRequest.FromString(wire.seen["Heartbeat"][-1]).goodbye))
        beats = len(wire.seen["Heartbeat"])
        await advance(HEARTBEAT_S)
        assert len(wire.seen["Heartbeat"]) == beats
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("popmq-pull")] == []
