"""Helpers that wait inside an event loop."""

from __future__ import annotations

import asyncio

#: Seconds after which a test that hangs fails: a wake was lost.
LOST_S = 60


async def turns(count: int = 3) -> None:
    """Runs every ready task of the loop, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)
