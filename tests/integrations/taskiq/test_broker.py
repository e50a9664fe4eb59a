"""taskiq on PopMQ: what its broker does for tasks and workers."""

import asyncio
from typing import Any

import pytest
from taskiq import AckableMessage, BrokerMessage, SimpleRetryMiddleware, TaskiqMessage
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

import popmq
from popmq.testing import Broker, FakeClock
from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend
from tests.integrations.taskiq.conftest import Working
from tests.integrations.taskiq.helpers import HOUR_MS, dead, numbers, undone, until_done


async def test_a_task_runs_and_is_acked(tasks: PopMQBroker, working: Working) -> None:
    ran = list[int]()
    task = tasks.register_task(lambda number: ran.append(number), task_name="note")
    async with working():
        await task.kiq(1)
        await until_done(tasks)
    assert ran == [1]
    assert await dead(tasks) == []


async def test_a_delayed_task_waits_in_the_broker(tasks: PopMQBroker, working: Working, popmq_clock: FakeClock) -> None:
    ran = asyncio.Event()

    async def run() -> None:
        ran.set()

    task = tasks.task(run)
    async with working():
        await task.kicker().with_labels(delay=3600).kiq()
        await asyncio.to_thread(popmq_clock.advance, HOUR_MS - 1)
        assert (await numbers(tasks)).delayed == 1
        assert not ran.is_set()
        await asyncio.to_thread(popmq_clock.advance, 1)
        await ran.wait()
        await until_done(tasks)


async def test_a_failed_task_is_a_dead_letter_with_its_traceback(tasks: PopMQBroker, working: Working) -> None:
    async def divide() -> None:
        print(1 / 0)

    task = tasks.task(task_name="divide")(divide)
    async with working():
        await task.kiq()
        await until_done(tasks)
    (letter,) = await dead(tasks)
    assert letter.dead_letter is not None
    assert letter.tag == "divide"
    assert letter.dead_letter.reason.splitlines()[0] == "ZeroDivisionError: division by zero"
    assert "print(1 / 0)" in letter.dead_letter.reason
    assert "receiver.py" not in letter.dead_letter.reason


async def test_a_broker_without_dead_letters_acks_what_failed(popmq_broker: Broker) -> None:
    tasks = PopMQBroker(popmq_broker.endpoint, dead_letters=False)

    async def divide() -> None:
        print(1 / 0)

    await tasks.startup()
    task = tasks.task(task_name="divide")(divide)
    await task.kiq()
    message = await anext(tasks.listen())
    await Receiver(tasks, max_async_tasks=1).callback(message)
    await until_done(tasks)
    assert await dead(tasks) == []
    await tasks.shutdown()


async def test_a_retry_is_stored_in_the_commit_that_ends_its_attempt(tasks: PopMQBroker) -> None:
    tasks.add_middlewares(SimpleRetryMiddleware(default_retry_label=True))
    task = tasks.register_task(lambda: None, task_name="fails")
    await task.kicker().with_task_id("t1").kiq()
    listening = tasks.listen()
    taken = await anext(listening)
    assert isinstance(taken, AckableMessage)
    message = tasks.formatter.loads(taken.data)
    for middleware in tasks.middlewares:
        middleware.pre_execute(message)
    await task.kicker().with_task_id("t1").with_labels(_retries=1).kiq()
    assert await undone(tasks) == 1  # a worker that is killed here leaves one message
    ended = taken.ack()
    assert ended is None
    again = await anext(listening)
    assert isinstance(again, AckableMessage)
    assert tasks.formatter.loads(again.data).labels["_retries"] == "1"
    again.ack()
    await listening.aclose()


async def test_a_task_whose_retry_cannot_be_sent_is_a_dead_letter(tasks: PopMQBroker) -> None:
    task = tasks.register_task(lambda: None, task_name="fails")
    await task.kicker().with_task_id("t1").kiq()
    listening = tasks.listen()
    taken = await anext(listening)
    tasks.in_hand.begin("t1")
    retry = BrokerMessage(task_id="t1", task_name="fails", message=b"x" * 5_000_000, labels={})
    await tasks.kick(retry)
    taken.ack()
    await listening.aclose()
    await until_done(tasks)
    (letter,) = await dead(tasks)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason.startswith("its retry cannot be sent: the body has 5000000 bytes")


async def test_a_task_is_tried_again_by_a_middleware_and_then_is_a_dead_letter(
    tasks: PopMQBroker, working: Working
) -> None:
    tasks.add_middlewares(SimpleRetryMiddleware(default_retry_count=3, default_retry_label=True))
    tries = list[int]()

    async def fails() -> None:
        tries.append(1)
        raise ValueError(f"no {len(tries)}")

    task = tasks.task(fails)
    async with working():
        await task.kiq()
        await until_done(tasks)
    (letter,) = await dead(tasks)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason.startswith("ValueError: no 3")
    assert len(tries) == 3


async def test_a_broker_whose_middlewares_were_replaced_acks_what_taskiq_acks(
    tasks: PopMQBroker, working: Working
) -> None:
    tasks.middlewares = []
    task = tasks.register_task(lambda: None, task_name="plain")
    async with working():
        await task.kiq()
        await until_done(tasks)
    assert await dead(tasks) == []


@pytest.mark.parametrize("body", [b"not of this kind", b"unknown"])
async def test_what_no_worker_can_run_is_a_dead_letter(tasks: PopMQBroker, working: Working, body: bytes) -> None:
    if body == b"unknown":
        message = TaskiqMessage(task_id="t1", task_name="nobody", labels={}, args=[], kwargs={})
        body = tasks.formatter.dumps(message).message
    await tasks.kick(BrokerMessage(task_id="t1", task_name="nobody", message=body, labels={}))
    async with working():
        await until_done(tasks)
    (letter,) = await dead(tasks)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason.startswith("taskiq did not run it")


async def test_a_label_names_another_queue_that_workers_read_if_they_are_told_to(popmq_broker: Broker) -> None:
    tasks = PopMQBroker(popmq_broker.endpoint, additional_queues=["mails"])
    await tasks.startup()
    task = tasks.register_task(lambda: None, task_name="mail")
    await task.kicker().with_labels(queue_name="mails").kiq()
    listening = tasks.listen()
    taken = await anext(listening)
    assert isinstance(taken, AckableMessage)
    assert tasks.formatter.loads(taken.data).labels["queue_name"] == "mails"
    await listening.aclose()
    await tasks.shutdown()
    popped = popmq_broker.client().pop("mails", "taskiq")
    assert [delivery.attempt for delivery in popped] == [1]  # given back, and no attempt counted


async def test_urgent_tasks_come_first(tasks: PopMQBroker) -> None:
    task = tasks.register_task(lambda number: None, task_name="say")
    for number in (1, 9, 5):
        await task.kicker().with_labels(priority=number).kiq(number)
    listening = tasks.listen()
    order = list[Any]()
    async for message in listening:
        order.append(tasks.formatter.loads(message.data).args[0])
        message.ack()
        if len(order) == 3:
            break
    await listening.aclose()
    assert order == [9, 5, 1]


async def test_a_lease_is_renewed_for_as_long_as_a_task_runs(
    tasks: PopMQBroker, popmq_clock: FakeClock, popmq_broker: Broker
) -> None:
    await tasks.register_task(lambda: None, task_name="slow").kiq()
    listening = tasks.listen()
    await anext(listening)
    await asyncio.to_thread(popmq_clock.advance, HOUR_MS // 6)
    assert await asyncio.to_thread(popmq_broker.client().pop, "taskiq", "taskiq") == []
    await listening.aclose()


async def test_a_broker_that_does_not_answer_is_an_error_of_the_sender() -> None:
    tasks = PopMQBroker("127.0.0.1:1", retry=popmq.Retry(tries=1))
    task = tasks.register_task(lambda: None, task_name="early")
    with pytest.raises(SendTaskError):
        await task.kiq()
    await tasks.shutdown()


async def test_a_topic_that_was_deleted_is_made_again(tasks: PopMQBroker) -> None:
    task = tasks.register_task(lambda: None, task_name="again")
    await task.kiq()
    await tasks.client.topics.delete("taskiq")
    await task.kiq()
    assert await undone(tasks) == 1


@pytest.mark.parametrize("priority", [0, 1024, "high"])
def test_a_max_priority_that_no_topic_has_is_refused(priority: Any) -> None:
    with pytest.raises(ValueError, match="from 1 to 1023"):
        PopMQBroker(max_priority=priority)


@pytest.mark.parametrize("kind", [PopMQBroker, PopMQResultBackend])
def test_an_option_that_no_client_has_is_refused_before_anything_connects(kind: Any) -> None:
    with pytest.raises(TypeError, match="'invisble_time'"):
        kind(invisble_time="5s")
