"""Waiting in an event loop, for tests of what waits there."""

from __future__ import annotations

import asyncio

#: Seconds after which a test that hangs fails: a wake was lost.
LOST_S = 60


async def turns(count: int = 3) -> None:
    """Lets every ready task of the loop run so many times."""
    for _ in range(count):
        await asyncio.sleep(0)
