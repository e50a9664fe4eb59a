"""Calls of many entries whose callers leave: what one commit did not do is done in the next ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from popmq_server import commands as ask
from popmq_server.clock import FakeClock
from popmq_server.commands import queries
from popmq_server.commands.numbers import GroupNumbers
from popmq_server.engine.broker import Broker
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from tests.engine.rig import HOUR, MINUTE, deliveries, sending
from tests.engine.traffic.traffic import group

COUNT = 1_200


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """With COUNT messages for group g."""
    broker = Broker(Options(tmp_path / "data", max_size=1 << 28, sync="none"), FakeClock(), Metrics())
    await broker.execute(ask.CreateTopic("t", 1, False, HOUR))
    await broker.execute(group("g", 17))
    await broker.pop(ask.Pop("t", "g"), 0)
    await broker.execute(sending(*map(str, range(COUNT))))
    yield broker
    await broker.close()


async def numbers(broker: Broker) -> GroupNumbers:
    """Once the calls are finished whose callers have left."""
    while broker._carried_on:
        await asyncio.wait(broker._carried_on)
    return (await broker.ask(queries.Groups("t", "g")))[0]


async def test_all_that_a_pop_leased_is_back_when_its_caller_has_left(broker: Broker) -> None:
    popping = asyncio.create_task(broker.pop(ask.Pop("t", "g", max_messages=COUNT), 0))
    await asyncio.sleep(0)
    popping.cancel()
    await broker.ask(queries.Groups("t", "g"))  # answered after the pop
    found = await numbers(broker)
    assert (found.in_flight, found.retry) == (0, COUNT)


@pytest.mark.parametrize("turns", range(1, 8))
async def test_all_entries_of_a_change_are_done_when_its_caller_has_left(broker: Broker, turns: int) -> None:
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
