"""PopMQResultBackend: results and progress of taskiq's tasks."""

import asyncio
from typing import Any

import pytest
from taskiq import TaskiqResult
from taskiq.depends.progress_tracker import TaskProgress, TaskState
from taskiq.exceptions import ResultGetError
from taskiq.receiver import Receiver

from popmq.testing import Broker, FakeClock
from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend
from tests.integrations.taskiq.conftest import Working
from tests.integrations.taskiq.helpers import dead, undone, until_done


def result(value: object) -> "TaskiqResult[Any]":
    return TaskiqResult(is_err=False, return_value=value, execution_time=0.1)


async def test_a_result_is_stored_with_the_ack_of_its_task(tasks: PopMQBroker) -> None:
    task = await tasks.register_task(lambda: None, task_name="add").kiq()
    listening = tasks.listen()
    message = await anext(listening)
    for middleware in tasks.middlewares:
        middleware.pre_execute(tasks.formatter.loads(message.data))
    await tasks.result_backend.set_result(task.task_id, result(3))
    assert not await task.is_ready()
    message.ack()
    found = await task.wait_result(check_interval=0.001)
    assert found.return_value == 3
    await listening.aclose()


async def test_what_a_task_returns_or_raises_is_its_result(tasks: PopMQBroker, working: Working) -> None:
    async def divide(one: int, other: int) -> float:
        return one / other

    task = tasks.task(divide)
    async with working():
        good, bad = await task.kiq(1, 2), await task.kiq(1, 0)
        assert (await good.wait_result(check_interval=0.01)).return_value == 0.5
        failed = await bad.wait_result(check_interval=0.01)
    assert failed.is_err
    with pytest.raises(ZeroDivisionError):
        failed.raise_for_error()


async def test_a_redriven_task_that_succeeds_has_another_result(tasks: PopMQBroker, working: Working) -> None:
    divisor = [0]

    async def divide() -> float:
        return 1 / divisor[0]

    task = tasks.task(divide)
    async with working():
        sent = await task.kiq()
        assert (await sent.wait_result(check_interval=0.01)).is_err
        divisor[0] = 2
        await tasks.client.dead_letters.redrive("taskiq")
        assert (await sent.wait_result(check_interval=0.01)).return_value == 0.5


async def test_a_task_whose_workers_died_has_an_error_that_says_so(
    tasks: PopMQBroker, popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    sent = await tasks.register_task(lambda: None, task_name="deadly").kiq()
    await tasks.client.groups.update("taskiq", max_attempts=1)
    assert await asyncio.to_thread(popmq_broker.client().pop, "taskiq", "taskiq")
    await asyncio.to_thread(popmq_clock.advance, 60_000)
    failed = await sent.wait_result(check_interval=0.01)
    assert failed.is_err
    assert str(failed.error) == "the task became a dead letter: lease expired"


async def test_results_without_a_broker_of_popmq_are_stored_at_once(popmq_broker: Broker) -> None:
    backend = PopMQResultBackend[object](popmq_broker.endpoint)
    await backend.startup()
    assert not await backend.is_result_ready("t1")
    with pytest.raises(ResultGetError):
        await backend.get_result("t1")
    await asyncio.gather(*(backend.set_result(f"t{number}", result(number)) for number in range(50)))
    assert [(await backend.get_result(f"t{number}")).return_value for number in range(50)] == list(range(50))
    await backend.set_result("t1", result("another"))
    assert (await backend.get_result("t1")).return_value == "another"
    await backend.shutdown()


async def test_a_result_that_is_not_kept_is_read_once(popmq_broker: Broker) -> None:
    backend = PopMQResultBackend[object](popmq_broker.endpoint, keep_results=False)
    await backend.startup()
    await backend.set_result("t1", result(1))
    assert (await backend.get_result("t1")).return_value == 1
    assert not await backend.is_result_ready("t1")
    await backend.shutdown()


async def test_a_result_that_is_too_large_says_so(popmq_broker: Broker) -> None:
    backend = PopMQResultBackend[object](popmq_broker.endpoint)
    await backend.startup()
    await backend.set_result("t1", result("x" * 300_000))
    found = await backend.get_result("t1")
    assert found.is_err
    assert "at most 262144" in str(found.error)
    await backend.shutdown()


async def test_the_last_progress_counts_and_is_no_result(popmq_broker: Broker) -> None:
    backend = PopMQResultBackend[object](popmq_broker.endpoint)
    await backend.startup()
    assert await backend.get_progress("t1") is None
    for percent in (10, 50):
        await backend.set_progress("t1", TaskProgress(state=TaskState.STARTED, meta={"percent": percent}))
    found = await backend.get_progress("t1")
    assert found is not None
    assert found.meta == {"percent": 50}
    assert not await backend.is_result_ready("t1")
    await backend.shutdown()


async def test_a_long_task_id_has_a_result_too(tasks: PopMQBroker, working: Working) -> None:
    async def one() -> int:
        return 1

    task = tasks.task(one)
    async with working():
        sent = await task.kicker().with_task_id("long" * 100).kiq()
        assert (await sent.wait_result(check_interval=0.01)).return_value == 1
        await until_done(tasks)


async def test_of_two_deliveries_of_one_id_each_ends_with_its_own_outcome(tasks: PopMQBroker) -> None:
    first_may = asyncio.Event()

    async def run(number: int) -> int:
        if number == 1:
            await first_may.wait()
        if number == 2:
            raise ValueError("two")
        return number

    task = tasks.task(task_name="run")(run)
    for number in (1, 2, 3):
        await task.kicker().with_task_id("t1").kiq(number)
    receiver, messages = Receiver(tasks, max_async_tasks=3), tasks.listen()
    first = asyncio.create_task(receiver.callback(await anext(messages)))
    await receiver.callback(await anext(messages))
    await receiver.callback(await anext(messages))
    while await undone(tasks) > 1:
        pass
    (letter,) = await dead(tasks)
    assert letter.json()["args"] == [2]
    assert (await tasks.result_backend.get_result("t1")).return_value == 3
    first_may.set()
    await first
    await until_done(tasks)
    assert (await tasks.result_backend.get_result("t1")).return_value == 1
    await messages.aclose()
