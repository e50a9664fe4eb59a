"""Calls of many entries whose callers leave: what one commit did not do is done in the next ones."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.writer.batch import Committed
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from tests.engine.rig import HOUR, MINUTE, deliveries, sending
from tests.engine.traffic.traffic import group

COUNT = 1_200


async def filled(options: Options, clock: FakeClock) -> EmbeddedEngine:
    """With COUNT messages for group g."""
    broker = EmbeddedEngine(options, clock, Metrics())
    await broker.execute(ask.CreateTopic("t", 1, False, HOUR))
    await broker.execute(group("g", 17))
    await broker.pop(ask.Pop("t", "g"), 0)
    await broker.execute(sending(*map(str, range(COUNT))))
    return broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[EmbeddedEngine]:
    broker = await filled(Options(tmp_path / "data", max_size=1 << 28, sync="none"), FakeClock())
    yield broker
    await broker.close()


async def numbers(broker: EmbeddedEngine) -> GroupNumbers:
    """Once the calls are finished whose callers have left."""
    while True:
        (found,) = await broker.ask(queries.Groups("t", "g"))
        if not broker._carried_on:
            return found
        await asyncio.wait(broker._carried_on)


async def test_all_that_a_pop_leased_is_back_when_its_caller_has_left(broker: EmbeddedEngine) -> None:
    popping = asyncio.create_task(broker.pop(ask.Pop("t", "g", max_messages=COUNT), 0))
    await asyncio.sleep(0)
    popping.cancel()
    await broker.ask(queries.Groups("t", "g"))  # answered after the pop
    found = await numbers(broker)
    assert (found.in_flight, found.retry) == (0, COUNT)


@pytest.mark.parametrize("count", [1, COUNT])
async def test_what_the_last_batch_before_a_stop_leased_to_a_caller_that_left_is_back_after_the_start(
    tmp_path: Path, count: int
) -> None:
    options, clock = Options(tmp_path / "data", max_size=1 << 28, sync="none"), FakeClock()
    broker = await filled(options, clock)
    popping = asyncio.create_task(broker.pop(ask.Pop("t", "g", max_messages=count), 0))
    await asyncio.sleep(0)
    popping.cancel()
    await broker.close()
    broker = EmbeddedEngine(options, clock, Metrics())
    found = await numbers(broker)
    await broker.close()
    assert (found.in_flight, found.retry) == (0, count)


@pytest.mark.parametrize("turns", range(1, 8))
async def test_all_entries_of_a_change_are_done_when_its_caller_has_left(broker: EmbeddedEngine, turns: int) -> None:
    """Whenever it leaves: before the first commit, after it, or in between two of them."""
    popped = deliveries(await broker.execute(ask.Pop("t", "g", max_messages=COUNT, invisible_ms=MINUTE)))
    command = ask.ChangeInvisibleTime("g", tuple(ask.Change(row.handle, "release") for row in popped))
    changing = asyncio.create_task(broker.execute(command))
    for _ in range(turns):
        await asyncio.sleep(0)
    changing.cancel()
    await asyncio.wait([changing])
    await broker.ask(queries.Groups("t", "g"))
    found = await numbers(broker)
    assert (found.in_flight, found.retry) == (0, COUNT)


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("answered", [False, True])
async def test_messages_are_sent_back_once_when_their_caller_leaves(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch, at: int, answered: bool
) -> None:
    """A pulled message has no handle that would refuse a second time.

    The caller leaves before one of the four commits is answered, or in the turn of the loop in which it is.
    """
    await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "PULL"))
    await broker.execute(ask.UpdateOffsets("t", "g", {0: COUNT}))
    command = ask.SendBack("t", "g", tuple(ask.SentBack(0, offset, delay_ms=0) for offset in range(COUNT)))
    answer, commits = broker._answer, 0

    def counted(tickets: list[Any], committed: Committed) -> None:
        nonlocal commits
        if commits == at and not answered:
            sending_back.cancel()
        answer(tickets, committed)
        if commits == at and answered:
            sending_back.cancel()
        commits += bool(tickets)

    monkeypatch.setattr(broker, "_answer", counted)
    sending_back = asyncio.create_task(broker.execute(command))
    await asyncio.wait([sending_back])
    assert sending_back.cancelled()
    assert (await numbers(broker)).retry == COUNT


async def test_queue_locks_go_with_their_topic_when_the_caller_of_the_deletion_has_left(broker: EmbeddedEngine) -> None:
    await broker.execute(ask.CreateTopic("locked", 2, False, HOUR))
    assert await broker.execute(ask.LockQueues("locked", "g", "client", (0, 1))) == [0, 1]
    deleting = asyncio.create_task(broker.execute(ask.DeleteTopic("locked")))
    await asyncio.sleep(0)
    deleting.cancel()
    await broker.execute(ask.CreateTopic("locked", 2, False, HOUR))
    assert await broker.execute(ask.LockQueues("locked", "g", "other", (0, 1))) == [0, 1]
