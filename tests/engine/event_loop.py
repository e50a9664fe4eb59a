"""Helpers that wait inside an event loop, and a whole engine in one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from popmq_server.values.limits import KEEP_MS_MAX
from tests.engine.rig import verdict
from tests.engine.traffic.traffic import group

#: Seconds after which a test that hangs fails: a wake was lost.
LOST_S = 60


async def turns(count: int = 3) -> None:
    """Runs every ready task of the loop, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def whole_engine(
    folder: Path, clock: FakeClock, queues: int = 1, keep_ms: int = KEEP_MS_MAX, kind: str = "NORMAL", **settings: Any
) -> AsyncIterator[EmbeddedEngine]:
    """An engine with its writer, topic t and group g, judged when it has stopped."""
    broker = EmbeddedEngine(Options(folder, max_size=1 << 28, sync="none"), clock, Metrics())
    await broker.execute(ask.CreateTopic("t", queues, False, keep_ms, kind, **settings))
    await broker.execute(group("g", 3))
    yield broker
    broker.close_waits()
    await asyncio.to_thread(broker._writer.stop)
    broken = verdict(broker.store, broker._core.state)
    await broker.close()
    assert broken == []
