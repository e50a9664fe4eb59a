"""Mechanisms of pull consumption on the client's side that no other test names. Ids are those of mechanisms.md."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

import popmq
from popmq.process_queue import FlowControl
from popmq.testing import Broker
from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import LossyWire, abort_with
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually
from tests.sdk.pulling.pulls import cached, each_queue, handle, next_of, soon, take

pytestmark = pytest.mark.usefixtures("popmq_clock")
BUSY = pb.ErrorInfo(code=pb.BUSY, message="too many requests wait", retryable=True, action="retry with backoff")


class WatchedWire(LossyWire):
    """Knows of each queue how many pulls are under way and what they ask for; refuses the first of a topic if told."""

    def __init__(self, broker: str) -> None:
        super().__init__(broker)
        self._lock = threading.Lock()
        self._under_way: Counter[tuple[str, int]] = Counter()
        self.most = 0
        self.busy_once: set[str] = set()
        self.offsets: dict[tuple[str, int], list[int]] = {}
        self.began: dict[tuple[str, int], list[float]] = {}

    def _handle(self, method: str, request: bytes, context: Any) -> Any:
        if not method.endswith("/Pull"):
            return super()._handle(method, request, context)
        pull = pb.PullRequest.FromString(request)
        queue = pull.topic, pull.queue
        with self._lock:
            refused = pull.topic in self.busy_once
            self.busy_once.discard(pull.topic)
            self._under_way[queue] += 1
            self.most = max(self.most, self._under_way[queue])
            self.offsets.setdefault(queue, []).append(pull.offset)
            self.began.setdefault(queue, []).append(time.monotonic())
        try:
            if refused:
                abort_with(context, grpc.StatusCode.RESOURCE_EXHAUSTED, BUSY)
            return super()._handle(method, request, context)
        finally:
            with self._lock:
                self._under_way[queue] -= 1

    def pulls(self) -> int:
        with self._lock:
            return sum(map(len, self.offsets.values()))


@pytest.fixture
def wire(popmq_broker: Broker) -> Iterator[WatchedWire]:
    with WatchedWire(popmq_broker.endpoint) as wire:
        yield wire


@pytest.mark.mechanism("S0.05", "S3.03")
@pytest.mark.slow
async def test_a_queue_has_one_pull_under_way_and_the_next_begins_where_the_last_ended(
    connect: Connect, client: Any, wire: WatchedWire, guard: Any
) -> None:
    """No two live requests of one queue, and no offset is asked for twice."""
    await each_queue(client, TOPIC, 8, 40)
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP, max_messages=7) as consumer:
        await take(consumer, guard, 320)
    assert wire.most == 1
    for offsets in (asked for (topic, _), asked in wire.offsets.items() if topic == TOPIC):
        assert offsets[:6] == [0, 7, 14, 21, 28, 35]
        assert offsets[6:] in ([], [40]), "the last one waits at the end"


@pytest.mark.mechanism("S0.04")
async def test_a_stopped_consumer_pulls_no_more(
    connect: Connect, client: Any, wire: WatchedWire, guard: Any, advance: Any
) -> None:
    """Nothing is asked after the stop, neither at once nor when a pause would have been over."""
    await client.send(TOPIC, ["a", "b"])
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP) as consumer:
        await take(consumer, guard, 2)
    before = wire.pulls()
    await client.send(TOPIC, ["c"])
    await advance(60.0)
    await client.topics.list()
    assert wire.pulls() == before


@pytest.mark.mechanism("S0.03")
@pytest.mark.slow
async def test_a_loop_with_nothing_to_read_makes_one_pull_a_hold(
    connect: Connect, client: Any, wire: WatchedWire, guard: Any, advance: Any
) -> None:
    """It sleeps while the broker holds its pull. Not one more is asked in between."""
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP, queues=[0], wait=15.0) as consumer:
        waiting = soon(consumer)
        for holds in range(1, 5):
            await eventually(lambda: asked(wire, 2 * holds))  # noqa: B023  # awaited in this round of the loop
            for _ in range(20):
                await client.topics.list()  # whoever asks without a hold would have asked again by now
            assert {place: len(offsets) for place, offsets in wire.offsets.items()} == {
                (TOPIC, 0): holds,
                (f"%RETRY%{GROUP}+{TOPIC}", 0): holds,
            }
            await advance(15.0)
        consumer.stop()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def asked(wire: WatchedWire, pulls: int) -> bool:
    """Whether so many pulls were asked."""
    await asyncio.sleep(0)
    return wire.pulls() >= pulls


@pytest.mark.mechanism("S0.47")
@pytest.mark.slow
async def test_pulled_messages_are_delivered_while_the_next_pull_runs(
    connect: Connect, client: Any, wire: WatchedWire
) -> None:
    """The handler of the first message has not ended, and the queue was read to its end meanwhile."""
    place = "narrow", 0
    await client.topics.create("narrow", queues=1)
    await client.send("narrow", ["m0", "m1"])
    async with connect(wire.endpoint).pull_consume("narrow", GROUP, max_messages=2) as consumer:
        in_hand = [await next_of(consumer)]
        await client.send("narrow", ["m2", "m3", "m4", "m5"])
        await eventually(lambda: asked_up_to(wire, place, 6))
        in_hand += [await next_of(consumer) for _ in range(5)]
        assert [delivery.text() for delivery in in_hand] == [f"m{number}" for number in range(6)]
        assert wire.offsets[place] == [0, 2, 4, 6]


@pytest.mark.mechanism("S0.12")
async def test_a_paused_consumer_asks_for_nothing_more(
    connect: Connect, client: Any, wire: WatchedWire, guard: Any
) -> None:
    """The pull that was under way is the last one until it goes on."""
    place = TOPIC, 0
    async with connect(wire.endpoint).pull_consume(TOPIC, GROUP, queues=[0]) as consumer:
        waiting = soon(consumer)
        await eventually(lambda: asked_up_to(wire, place, 0))
        consumer.pause()
        await each_queue(client, TOPIC, 8, 3)
        await eventually(lambda: cached(consumer, 3))
        for _ in range(50):
            await client.topics.list()  # whoever pulls on would have asked by now
        assert wire.offsets[place] == [0]
        consumer.resume()
        await handle(guard, await waiting)
        await take(consumer, guard, 2)
        await eventually(lambda: asked_up_to(wire, place, 3))


async def asked_up_to(wire: WatchedWire, place: tuple[str, int], offset: int) -> bool:
    """Whether a pull of this queue began at this offset."""
    await asyncio.sleep(0)
    return offset in wire.offsets.get(place, [])


@pytest.mark.mechanism("S0.04", "S0.11")
@pytest.mark.slow
async def test_a_pull_that_was_refused_is_made_again_after_a_second_and_not_before(
    connect: Connect, client: Any, wire: WatchedWire, guard: Any
) -> None:
    """A delayed request is not seen early; nothing is lost by it."""
    await client.send(TOPIC, ["a"])
    wire.busy_once.add(TOPIC)
    impatient = connect(wire.endpoint, retry=popmq.Retry(tries=1))
    async with impatient.pull_consume(TOPIC, GROUP, queues=[0]) as consumer:
        assert await take(consumer, guard, 1) == ["a"]
    first, second, *_ = wire.began[TOPIC, 0]
    assert second - first > 0.9


@pytest.mark.mechanism("S0.16")
async def test_a_queue_that_is_held_back_for_long_is_reported_once(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One line of a thousand looks."""
    await client.send(TOPIC, ["x"] * 50)
    flow = FlowControl(count=5, pause=0.005)
    async with client.pull_consume(TOPIC, GROUP, max_messages=10, flow=flow) as consumer:
        kept = await next_of(consumer)
        await eventually(lambda: held_back(consumer))
        for _ in range(50):
            await client.topics.list()
        assert kept.body
        told = [record for record in caplog.records if "is not pulled: " in record.getMessage()]
        assert len(told) == 1


async def held_back(consumer: Any) -> bool:
    await asyncio.sleep(0)
    return any(state.held_back_by for state in consumer.queues())
