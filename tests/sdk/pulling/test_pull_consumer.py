"""Pull consumers: a share of the queues each, progress that the broker keeps, and what failed comes again."""

import asyncio
import logging
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.process_queue import FlowControl
from popmq.testing import FakeClock
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, told
from tests.sdk.pulling.pulls import cached, committed, each_queue, handle, later, next_of, pulling, soon, take

pytestmark = pytest.mark.usefixtures("popmq_clock")


# ── One message after another ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_loop_sees_each_message_once_and_commits_all(client: Any, guard: Any) -> None:
    await each_queue(client, TOPIC, 8, 40)
    seen = []
    consumer = client.pull_consume(TOPIC, GROUP)
    async for delivery in consumer:
        async with guard(delivery):
            seen.append(delivery.text())
        if len(seen) == 320:
            consumer.stop()
    assert Counter(seen) == Counter(f"{number}" for number in range(320))
    assert await committed(client) == dict.fromkeys(range(8), 40)


async def test_messages_of_one_queue_come_in_their_order(client: Any, guard: Any) -> None:
    await client.send(TOPIC, [f"{number}" for number in range(100)])
    async with client.pull_consume(TOPIC, GROUP, max_messages=7) as consumer:
        assert await take(consumer, guard, 100) == [f"{number}" for number in range(100)]


async def test_a_full_queue_keeps_no_other_one_waiting(client: Any) -> None:
    await each_queue(client, TOPIC, 2, 20)
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        first = await next_of(consumer)
        await eventually(lambda: cached(consumer, 40))
        queues = [(await next_of(consumer)).queue for _ in range(8)]
        assert sorted(queues[:2]) == sorted(queues[2:4]) == sorted(queues[4:6]) == sorted({first.queue, *queues})


@pytest.mark.slow
async def test_a_message_that_comes_while_it_waits_is_delivered(client: Any, guard: Any) -> None:
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        waiting = soon(consumer)
        await eventually(lambda: pulling(consumer))
        await client.send(TOPIC, "now")
        delivery = await handle(guard, await waiting)
        assert (delivery.text(), delivery.attempt, delivery.group, delivery.topic) == ("now", 1, GROUP, TOPIC)


@pytest.mark.slow
async def test_a_loop_ends_when_idle_for_long_enough(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a", "b"])
    seen = []
    async for delivery in client.pull_consume(TOPIC, GROUP, until_idle=0.01):
        async with guard(delivery):
            seen.append(delivery.text())
    assert seen == ["a", "b"]


@pytest.mark.mechanism("S3.08")
@pytest.mark.slow
async def test_a_consumer_that_comes_back_continues_at_the_committed_offset(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a", "b", "c"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        assert await take(consumer, guard, 2) == ["a", "b"]
    async with client.pull_consume(TOPIC, GROUP, start="latest") as consumer:
        assert await take(consumer, guard, 1) == ["c"]


@pytest.mark.mechanism("S3.14")
async def test_progress_is_committed_every_five_seconds(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["a", "b", "c"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 2)
        assert sum((await committed(client)).values()) == 0
        await advance(5.0)
        assert sum((await committed(client)).values()) == 2


async def test_a_message_in_hand_pins_the_committed_offset(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["slow", "b", "c"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        slow = await next_of(consumer)
        await take(consumer, guard, 2)
        await advance(5.0)
        assert sum((await committed(client)).values()) == 0
        await handle(guard, slow)
        await advance(5.0)
        assert sum((await committed(client)).values()) == 3


@pytest.mark.slow
async def test_a_message_in_hand_at_the_end_of_a_consumer_comes_again(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a", "in hand"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1)
        kept = await next_of(consumer)
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        assert await take(consumer, guard, 1) == [kept.text()]
    async with guard(kept):
        pass  # too late: it counts for nobody
    assert sum((await committed(client)).values()) == 2


# ── Where a group begins ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S3.31")
async def test_a_new_group_begins_at_the_first_message_or_after_the_last(
    connect: Connect, client: Any, guard: Any
) -> None:
    await client.topics.create("one-queue", queues=1)  # several queues have no order among them
    await client.send("one-queue", ["old"])
    for group, start, first in (("a", "earliest", "old"), ("b", "latest", "new"), ("c", None, "old")):
        await client.groups.create(group)
        async with connect().pull_consume("one-queue", group, start=start) as consumer:
            waiting = soon(consumer)
            if start == "latest":
                await eventually(partial(pulling, consumer))
                await client.send("one-queue", ["new"])
            delivery = await handle(guard, await waiting)
            assert delivery.text() == first


async def test_a_start_that_is_not_used_is_reported_and_one_at_the_switch_is_obeyed(
    client: Any, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "popmq.consumer")
    await client.send(TOPIC, ["old"])
    await client.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    async with client.pull_consume(TOPIC, GROUP, start="latest") as consumer:
        assert await take(consumer, guard, 1) == ["old"]
    assert "start='latest' is only for a group that is new there" in caplog.text
    with pytest.raises(errors.InvalidField, match="has its position"):
        await client.groups.set_consume_mode(TOPIC, GROUP, "PULL", start="latest")
    await client.groups.create("prepared")
    await client.groups.set_consume_mode(TOPIC, "prepared", "PULL", start="latest")
    await client.send(TOPIC, ["new"])
    async with client.pull_consume(TOPIC, "prepared") as consumer:
        assert await take(consumer, guard, 1) == ["new"]


@pytest.mark.slow
async def test_a_new_group_begins_at_a_time(client: Any, guard: Any, advance: Any, popmq_clock: FakeClock) -> None:
    await client.send(TOPIC, ["before"])
    await advance(10.0)
    since = datetime.fromtimestamp(popmq_clock.now(), UTC)
    await client.send(TOPIC, ["since"])
    async with client.pull_consume(TOPIC, GROUP, start=since) as consumer:
        assert await take(consumer, guard, 1) == ["since"]


async def test_a_group_begins_where_its_creation_named(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["old"])
    await client.groups.create("late", start="latest")
    async with client.pull_consume(TOPIC, "late") as consumer:
        waiting = soon(consumer)
        await eventually(lambda: pulling(consumer))
        await client.send(TOPIC, ["new"])
        delivery = await handle(guard, await waiting)
        assert delivery.text() == "new"


@pytest.mark.slow
async def test_a_group_that_pops_is_not_pulled(client: Any) -> None:
    await client.send(TOPIC, "x")
    await client.pop(TOPIC, GROUP)
    with pytest.raises(errors.WrongConsumeMode, match="set_consume_mode"):
        await next_of(client.pull_consume(TOPIC, GROUP))


async def test_a_consumer_without_its_topic_or_group_says_so(client: Any) -> None:
    with pytest.raises(errors.TopicNotFound, match="nowhere"):
        await next_of(client.pull_consume("nowhere", GROUP))
    with pytest.raises(errors.GroupNotFound, match="nobody"):
        await next_of(client.pull_consume(TOPIC, "nobody"))


async def test_one_client_does_not_read_a_topic_twice_for_a_group(client: Any) -> None:
    first = client.pull_consume(TOPIC, GROUP)
    with pytest.raises(RuntimeError, match="another client"):
        client.pull_consume(TOPIC, GROUP)
    client.pull_consume(TOPIC, "another group")
    first.stop()
    client.pull_consume(TOPIC, GROUP)


# ── How much is cached ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.13", "S0.52")
async def test_a_slow_handler_stops_the_pulling_at_the_limit_and_one_batch(
    client: Any, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.topics.create("narrow", queues=1)
    await client.send("narrow", ["x"] * 20)
    flow = FlowControl(count=50, pause=0.001)
    async with client.pull_consume("narrow", GROUP, max_messages=20, flow=flow) as consumer:
        out = [await next_of(consumer)]
        await client.send("narrow", ["x"] * 180)  # it pulls these while a handler has the first one
        await eventually(lambda: held_back(consumer, "count"))
        assert max(state.cached for state in consumer.queues()) == 60  # 40 were not more than 50
        await eventually(lambda: told(caplog, "is not pulled: count"))
        for delivery in out:
            delivery.ack()
        assert len(await take(consumer, guard, 199)) == 199


async def held_back(consumer: Any, by: str) -> bool:
    await asyncio.sleep(0)
    return any(state.held_back_by == by for state in consumer.queues())


@pytest.mark.mechanism("S0.06")
async def test_a_consumer_reports_the_state_of_each_queue(client: Any, guard: Any) -> None:
    """Whose queue it is, where the next pull reads, what is committed, cached and in hand."""
    await client.topics.create("narrow", queues=1)
    await client.send("narrow", ["abc", "de", "f"])
    async with client.pull_consume("narrow", GROUP) as consumer:
        kept = await next_of(consumer)
        retries, state = consumer.queues()
        assert (consumer.topic, consumer.group) == ("narrow", GROUP)
        assert state == popmq.PullState(0, False, 3, 0, 3, 1, 6, 3, "", False)
        assert (retries.queue, retries.retry, retries.cached) == (0, True, 0)
        await handle(guard, kept)
        await handle(guard, await next_of(consumer))
        (_, state) = consumer.queues()
        assert state == popmq.PullState(0, False, 3, 2, 1, 0, 1, 1, "", False)


@pytest.mark.mechanism("S3.34")
async def test_one_stuck_message_stops_its_queue_at_the_span(client: Any, guard: Any) -> None:
    await client.topics.create("narrow", queues=1)
    await client.send("narrow", ["x"] * 10)
    flow = FlowControl(span=24, pause=0.001)
    async with client.pull_consume("narrow", GROUP, max_messages=10, flow=flow) as consumer:
        stuck = await next_of(consumer)
        await client.send("narrow", ["x"] * 90)  # it pulls these while a handler has the first one
        await take(consumer, guard, 29)
        await eventually(lambda: held_back(consumer, "span"))
        (state,) = [state for state in consumer.queues() if state.cached]
        assert (state.cached, state.next_offset, state.committed) == (1, 30, 0)
        await handle(guard, stuck)
        await take(consumer, guard, 70)


@pytest.mark.mechanism("S0.12")
async def test_a_paused_consumer_pulls_and_delivers_nothing(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 1)
        consumer.pause()
        waiting = soon(consumer)
        await client.send(TOPIC, "c")
        await client.topics.list()
        assert not waiting.done()
        consumer.resume()
        delivery = await handle(guard, await waiting)
        assert delivery.text() == "b"
        assert await take(consumer, guard, 1) == ["c"]


# ── Filters ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [{"tag": "eu || us"}, {"sql": "region = 'eu' OR region = 'us'"}])
async def test_a_filter_passes_over_messages_that_do_not_match(client: Any, guard: Any, wanted: dict[str, str]) -> None:
    await client.send(
        TOPIC, [popmq.Message(tag, tag=tag, properties={"region": tag}) for tag in ("eu", "asia", "us", "africa")]
    )
    seen = []
    async for delivery in client.pull_consume(TOPIC, GROUP, until_idle=0.01, **wanted):
        async with guard(delivery):
            seen.append(delivery.text())
    assert seen == ["eu", "us"]
    assert sum((await committed(client)).values()) == 4


@pytest.mark.slow
async def test_another_filter_in_the_same_group_is_reported(
    connect: Connect, client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, popmq.Message("x", tag="eu"))
    async with client.pull_consume(TOPIC, GROUP, tag="eu") as consumer:
        await take(consumer, guard, 1)
        waiting = soon(connect().pull_consume(TOPIC, GROUP, tag="us"))
        await eventually(lambda: later(advance, waiting))  # with the first queue that it gets
        with pytest.raises(errors.FilterConflict):
            await waiting


# ── Inside ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "popmq")
