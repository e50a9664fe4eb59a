"""Fair keys beside a running engine: it reads ahead without further pops, and wakes a parked Pop when a key may go."""

import asyncio
from pathlib import Path

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.operations import ReadAhead
from popmq_server.values.records import FairKeys
from tests.engine.event_loop import LOST_S, turns, whole_engine
from tests.engine.rig import SECOND, Delivery, deliveries
from tests.engine.traffic.traffic_fair import limited, of


async def opened(broker: EmbeddedEngine, fair: FairKeys) -> None:
    await broker.execute(ask.UpdateGroup("g", {"fair_keys": fair}))
    await broker.pop(ask.Pop("t", "g"), 0)


async def send(broker: EmbeddedEngine, tenant: str, count: int) -> None:
    entries = tuple(of(tenant, count))
    await broker.execute(ask.Send("t", entries, "", 0, sum(len(entry.data) for entry in entries)))


async def pop(broker: EmbeddedEngine, messages: int = 1, wait_ms: int = 0) -> list[Delivery]:
    popped = await asyncio.wait_for(broker.pop(ask.Pop("t", "g", max_messages=messages), wait_ms), LOST_S)
    return deliveries(popped)


async def parked(broker: EmbeddedEngine) -> None:
    """Until a Pop is parked."""
    while not broker.waiters.count:
        await turns()


async def test_one_pop_makes_the_engine_read_all_that_is_there(tmp_path: Path) -> None:
    async with whole_engine(tmp_path / "data", FakeClock()) as broker:
        await opened(broker, limited())
        for _ in range(4):
            await send(broker, "acme", 4000)
        await send(broker, "bolt", 1)
        await pop(broker)
        while broker._reading._running:
            await broker.run(queries.Groups("t", "g"))
        assert not await broker.run(ReadAhead("t", "g"))
        assert [row.body for row in await pop(broker, 2)] == ["acme-1", "bolt-0"]


async def test_a_parked_pop_wakes_when_a_lease_of_a_full_key_ends(tmp_path: Path) -> None:
    async with whole_engine(tmp_path / "data", FakeClock()) as broker:
        await opened(broker, limited(1))
        await send(broker, "acme", 2)
        (first,) = await pop(broker, 9)
        waiting = asyncio.create_task(pop(broker, 9, wait_ms=60 * SECOND))
        await parked(broker)
        await broker.execute(ask.Ack("g", (first.handle,)))
        assert [row.body for row in await waiting] == ["acme-1"]


async def test_a_parked_pop_wakes_when_the_rate_of_a_key_permits(tmp_path: Path) -> None:
    clock = FakeClock()
    async with whole_engine(tmp_path / "data", clock) as broker:
        await opened(broker, limited(0, 1))
        await send(broker, "acme", 2)
        assert len(await pop(broker, 9)) == 1
        waiting = asyncio.create_task(pop(broker, 9, wait_ms=60 * SECOND))
        await parked(broker)
        clock.advance(SECOND)
        assert [row.body for row in await waiting] == ["acme-1"]


async def test_a_pop_that_waits_for_a_rate_wakes_for_another_key(tmp_path: Path) -> None:
    async with whole_engine(tmp_path / "data", FakeClock()) as broker:
        await opened(broker, limited(0, 1))
        await send(broker, "acme", 2)
        assert len(await pop(broker, 9)) == 1
        waiting = asyncio.create_task(pop(broker, 9, wait_ms=60 * SECOND))
        await parked(broker)
        await send(broker, "bolt", 1)
        assert [row.body for row in await waiting] == ["bolt-0"]
