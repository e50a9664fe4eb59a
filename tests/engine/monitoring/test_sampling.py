"""The samples of the history: rates from counters, the other numbers from the engine, and the file beside them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers, Rows, TopicNumbers
from popmq_server.errors import Refused
from popmq_server.monitoring.history import STEP_MS, Point, known
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.sampling import PAGE_ROWS, SAVE_MS, Sampler
from popmq_server.values.ids import TopicId
from popmq_server.values.records import Topic

IDLE = GroupNumbers("billing", "orders", 0, 0, 0, 0, 0, 0, 0, 0, oldest_ms=0, owners=0)


def topic_row(name: str, size: int) -> TopicNumbers:
    return TopicNumbers(Topic(TopicId(1), name, 1, by_age=False, keep_ms=0, created_ms=0), 0, [], size, 0, 0)


class World:
    """An engine that answers with its rows, a file in memory, and the sampler between them."""

    def __init__(self, kept: bytes = b"", clock: FakeClock | None = None) -> None:
        self.clock, self.metrics = clock or FakeClock(), Metrics()
        self.metrics.watch_store(synced=True)
        self.topics = [topic_row("orders", 500)]
        self.groups = [IDLE]
        self.asked = 0
        self.busy = False
        self.kept = kept
        self.writes = 0

    async def ask(self, query: Any) -> Rows[Any]:
        self.asked += 1
        if self.busy:
            raise Refused("BUSY", "too many calls wait")
        every: list[Any] = self.topics if isinstance(query, queries.Topics) else self.groups
        begin = int(query.after or 0)
        rows = every[begin : begin + query.rows_max]
        return Rows(rows, str(begin + len(rows)) if begin + len(rows) < len(every) else "")

    async def used_bytes(self) -> int:
        return 4096

    def read(self) -> bytes:
        return self.kept

    def write(self, content: bytes) -> None:
        self.kept, self.writes = content, self.writes + 1

    def sent(self, count: int, topic: str = "orders") -> None:
        """`count` messages of ten bytes were sent, and committed."""
        self.metrics.messages.labels("Send", "", topic).inc(count)
        self.metrics.bytes.labels("Send", "", topic).inc(10 * count)
        self.metrics.commits += 1

    async def advance(self, ms: int = STEP_MS) -> None:
        """Moves the time; the sample that is due is there afterwards."""
        await asyncio.to_thread(self.clock.advance, ms)

    @property
    def points(self) -> list[Point]:
        return self.metrics.history.whole(self.clock.now_ms())


@asynccontextmanager
async def sampling(world: World) -> AsyncIterator[World]:
    engine: Any = world
    sampler = Sampler(world.clock, world.metrics, engine, world.used_bytes, world)
    sampler.start()
    try:
        yield world
    finally:
        await sampler.stop()


async def test_rates_are_means_since_the_sample_before() -> None:
    async with sampling(World()) as world:
        world.sent(60)
        world.metrics.messages.labels("Pop", "billing", "orders").inc(30)
        world.metrics.messages.labels("Pull", "billing", "orders").inc(15)
        world.metrics.messages.labels("Ack", "billing", "orders").inc(6)
        await world.advance()
        world.sent(30)
        await world.advance(2 * STEP_MS)
        assert [tuple(point.topic)[:2] for point in world.points] == [(2, 20), (0.5, 5)]
        assert [tuple(point.pair)[:2] for point in world.points] == [(1.5, pytest.approx(0.2)), (0, 0)]


async def test_no_sample_comes_before_its_time() -> None:
    async with sampling(World()) as world:
        await world.advance(STEP_MS - 1)
        assert (world.points, world.asked) == ([], 0)
        await world.advance(1)
        assert len(world.points) == 1


async def test_the_engine_is_asked_only_after_a_commit_and_ages_grow_meanwhile() -> None:
    async with sampling(World()) as world:
        world.groups = [world.groups[0]._replace(ready=7, retry=1, backoff=2, oldest_ms=world.clock.now_ms())]
        await world.advance()
        asked = world.asked
        await world.advance()
        assert world.asked == asked
        assert [(point.pair.backlog, point.pair.retries, point.pair.oldest_s) for point in world.points] == [
            (10, 3, 30),
            (10, 3, 60),
        ]
        world.groups = [world.groups[0]._replace(ready=0, retry=0, backoff=0, oldest_ms=0)]
        world.sent(1)
        await world.advance()
        assert world.asked > asked
        assert (world.points[-1].pair.backlog, world.points[-1].pair.oldest_s) == (0, 0)


async def test_an_engine_that_counts_no_commits_is_asked_each_time_and_what_it_does_not_know_spoils_its_sum_only() -> (
    None
):
    world = World()
    world.metrics.has_store = False
    async with sampling(world):
        for ready in (7, 9):
            world.groups = [IDLE._replace(ready=ready, in_flight=None, oldest_ms=None), IDLE._replace(topic="mail")]
            await world.advance()
        pairs = [point.pair for point in world.points]
        assert [(pair.backlog, known(pair.in_flight), known(pair.oldest_s)) for pair in pairs] == [
            (7, None, None),
            (9, None, None),
        ]


async def test_a_busy_engine_leaves_no_gap() -> None:
    async with sampling(World()) as world:
        world.sent(30)
        await world.advance()
        world.busy = True
        world.sent(90)
        await world.advance()
        assert [(point.topic.sent_per_s, point.topic.bytes) for point in world.points] == [(1, 500), (3, 500)]
        world.busy, world.topics = False, [topic_row("orders", 900)]
        await world.advance()
        assert world.points[-1].topic.bytes == 900


async def test_rows_come_in_pages_and_all_of_them_count() -> None:
    async with sampling(World()) as world:
        world.topics = [topic_row(f"topic-{number}", 1) for number in range(2 * PAGE_ROWS + 1)]
        world.groups = []
        await world.advance()
        assert world.points[-1].topic.bytes == 2 * PAGE_ROWS + 1
        assert world.asked == 4


async def test_a_topic_that_is_created_again_begins_at_zero() -> None:
    async with sampling(World()) as world:
        world.sent(60)
        await world.advance()
        world.metrics.forget(topic="orders")
        assert not world.metrics.history.topics
        world.sent(30)
        await world.advance()
        assert world.points[-1].topic.sent_per_s == 1
        assert world.metrics.history.topics["orders"].began == 1


async def test_lateness_is_the_mean_since_the_sample_before() -> None:
    async with sampling(World()) as world:
        world.metrics.lateness |= {"revived": 4, "revived_late_ms": 2000, "delayed_released": 1, "delayed_late_ms": 250}
        await world.advance()
        world.metrics.lateness["revived"], world.metrics.lateness["revived_late_ms"] = 5, 4000
        await world.advance()
        late = [(point.broker.leases_late_s, point.broker.delayed_late_s) for point in world.points if point.broker]
        assert late == [(0.5, 0.25), (2, 0)]


async def test_the_file_is_written_once_a_minute_and_at_the_stop() -> None:
    async with sampling(World()) as world:
        for _ in range(6):
            await world.advance(SAVE_MS // 2)
        assert world.writes == 3
    assert world.writes == 4


async def test_after_a_restart_the_time_in_between_is_a_gap() -> None:
    async with sampling(World()) as first:
        first.sent(60)
        await first.advance()
        before = first.points
    first.clock.advance(10 * STEP_MS)
    async with sampling(World(first.kept, first.clock)) as again:
        assert again.points == before
        again.sent(30)
        await again.advance()
        assert [point.time_ms - before[0].time_ms for point in again.points] == [0, 11 * STEP_MS]
        assert [point.topic.sent_per_s for point in again.points] == [2, 1]


async def test_a_file_that_cannot_be_read_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async with sampling(World(b"PopMQ history, but damaged")) as world:
        assert "the charts begin now" in caplog.text
        await world.advance()
    async with sampling(World(world.kept, world.clock)) as again:
        assert len(again.points) == 1


async def test_a_sample_that_fails_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    async with sampling(World()) as world:
        world.topics = [None]  # type: ignore[list-item]
        await world.advance()
        assert "a sample failed" in caplog.text
        world.topics = [topic_row("orders", 1)]
        await world.advance()
        assert len(world.points) == 1
