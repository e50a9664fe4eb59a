"""PopMQ in place of taskiq's broker in memory; a plugin of pytest."""

import asyncio
import atexit
import contextlib
import uuid
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import taskiq
import taskiq.brokers.inmemory_broker
from taskiq import AckableMessage, BrokerMessage, TaskiqEvents, TaskiqMiddleware
from taskiq.exceptions import UnknownTaskError
from taskiq.receiver import Receiver
from taskiq.serializers.pickle import PickleSerializer
from taskiq.utils import maybe_awaitable

import popmq.testing
from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend

_BROKER = contextlib.ExitStack()
ENDPOINT = _BROKER.enter_context(popmq.testing.broker()).endpoint
atexit.register(_BROKER.close)


def unique() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


class InMemoryBroker(PopMQBroker):
    """Runs its own tasks, as the one that it stands for; each goes through PopMQ on its way."""

    def __init__(
        self,
        sync_tasks_pool_size: int = 4,
        max_stored_results: int = 100,
        cast_types: bool = True,
        max_async_tasks: int = 30,
        max_async_tasks_jitter: int = 0,
        propagate_exceptions: bool = True,
        await_inplace: bool = False,
    ) -> None:
        name = unique()
        super().__init__(ENDPOINT, queue_name=name, group_name=name)
        self.with_result_backend(PopMQResultBackend(ENDPOINT, group_name=name, serializer=PickleSerializer()))
        self.executor = ThreadPoolExecutor(sync_tasks_pool_size)
        self.receiver = Receiver(
            broker=self,
            executor=self.executor,
            validate_params=cast_types,
            max_async_tasks=max_async_tasks,
            max_async_tasks_jitter=max_async_tasks_jitter,
            propagate_exceptions=propagate_exceptions,
        )
        self.await_inplace = await_inplace
        self._running_tasks: set[asyncio.Task[Any]] = set()
        self._listening: AsyncGenerator[AckableMessage, None] | None = None
        self._turn: asyncio.Lock | None = None

    async def kick(self, message: BrokerMessage) -> None:
        if self.find_task(message.task_name) is None:
            raise UnknownTaskError(task_name=message.task_name)
        if self._turn is None:
            self._turn = asyncio.Lock()
            await self.made_topic(self.queue_name)
            await self.result_backend.startup()
            self._listening = self.listen()
        retried = self.in_hand.running(message.task_id)  # it comes after the ack of the attempt that sends it
        await super().kick(message)
        task = asyncio.create_task(self._run_one())
        self._running_tasks.add(task)
        task.add_done_callback(self._running_tasks.discard)
        if self.await_inplace and not retried:
            await self.wait_all()

    async def _run_one(self) -> None:
        assert self._turn is not None
        assert self._listening is not None
        async with self._turn:
            message = await anext(self._listening)
        await self.receiver.callback(message)

    async def wait_all(self) -> None:
        while self._running_tasks:
            await asyncio.gather(*self._running_tasks)
        while (await self.client.wait_available(self.queue_name, self.group_name, min_ready=0)).stats.in_flight:
            pass  # acks are on their way

    async def startup(self) -> None:
        await self._tell("startup", TaskiqEvents.CLIENT_STARTUP, TaskiqEvents.WORKER_STARTUP)

    async def shutdown(self) -> None:
        await self._tell("shutdown", TaskiqEvents.CLIENT_SHUTDOWN, TaskiqEvents.WORKER_SHUTDOWN)
        self.executor.shutdown()

    async def _tell(self, name: str, *events: TaskiqEvents) -> None:
        for event in events:
            for handler in self.event_handlers.get(event, []):
                await maybe_awaitable(handler(self.state))
        for middleware in self.middlewares:
            if getattr(type(middleware), name) != getattr(TaskiqMiddleware, name):
                await maybe_awaitable(getattr(middleware, name)())


for module in (taskiq, taskiq.brokers.inmemory_broker):
    setattr(module, "InMemoryBroker", InMemoryBroker)  # noqa: B010 - mypy refuses an assignment to a class

#: Tests that say what only a broker in memory does.
_DELAYED = "retries with a delay of 5 s, which the broker in memory ignores"
INSIDE = {
    "test_cannot_listen": "only a broker in memory cannot be listened to",
    **dict.fromkeys(
        ("test_wait_result_error", "test_wait_result_no_result"), "looks into the dict of results in memory"
    ),
    "test_retry_of_custom_exc_types_of_smart_middleware": _DELAYED,
    "test_per_task_exc_types_matching[SmartRetryMiddleware]": _DELAYED,
    "test_per_task_exc_types_override_global[SmartRetryMiddleware]": _DELAYED,
    "test_progress_tracker_validation_error": "taskiq cannot make an exception of pydantic from what it serialized",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in (item.name, getattr(item, "originalname", "")):
            if name in INSIDE:
                item.add_marker(pytest.mark.skip(reason=INSIDE[name]))
                break
