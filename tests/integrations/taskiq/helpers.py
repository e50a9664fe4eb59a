"""What several tests of taskiq do."""

import asyncio
import itertools
from collections.abc import Callable

import popmq
from popmq_integrations.taskiq import PopMQBroker

HOUR_MS = 3_600_000


async def numbers(tasks: PopMQBroker) -> popmq.GroupStats:
    found = await tasks.client.wait_available(tasks.queue_name, tasks.group_name, min_ready=0)
    return found.stats


async def undone(tasks: PopMQBroker) -> int:
    found = await numbers(tasks)
    return found.ready + (found.in_flight or 0) + found.retry + (found.backoff or 0) + (found.delayed or 0)


async def until_done(tasks: PopMQBroker) -> None:
    while await undone(tasks):
        pass


async def eventually(condition: Callable[[], bool]) -> None:
    """Lets other tasks of the event loop run until the condition holds, or the test's time limit ends the test."""
    for _ in itertools.count():
        if condition():
            return
        await asyncio.sleep(0)


async def dead(tasks: PopMQBroker) -> list[popmq.Delivery]:
    return list((await tasks.client.messages.browse(f"%DLQ%{tasks.group_name}")).deliveries)
