"""A broker of taskiq on a real PopMQ whose clock the tests move, and a receiver that runs its tasks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from taskiq.receiver import Receiver

from popmq.testing import Broker
from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend

Working = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture
async def tasks(popmq_broker: Broker) -> AsyncIterator[PopMQBroker]:
    """A broker with results, as a worker has it."""
    backend = PopMQResultBackend[object](popmq_broker.endpoint)
    broker = PopMQBroker(popmq_broker.endpoint, clock=popmq_broker.clock, max_priority=9).with_result_backend(backend)
    broker.is_worker_process = True
    await broker.startup()
    yield broker
    await broker.shutdown()


@pytest.fixture
def working(tasks: PopMQBroker) -> Working:
    """Runs tasks while the block does."""

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        finish = asyncio.Event()
        receiver = Receiver(tasks, max_async_tasks=10, run_startup=False)
        listening = asyncio.create_task(receiver.listen(finish))
        try:
            yield
        finally:
            finish.set()
            await listening

    return run
