"""PopMQScheduleSource: the broker keeps and sends what is scheduled."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from taskiq.exceptions import ScheduledTaskCancelledError

import popmq
from popmq.testing import FakeClock
from popmq_integrations.taskiq import PopMQBroker, PopMQScheduleSource
from tests.integrations.taskiq.conftest import Working
from tests.integrations.taskiq.helpers import HOUR_MS, eventually, until_done


async def test_a_cron_runs_without_a_scheduler_process_and_each_run_is_a_task_of_its_own(
    tasks: PopMQBroker, working: Working, popmq_clock: FakeClock
) -> None:
    ran = list[str]()

    async def note(text: str) -> str:
        ran.append(text)
        return text

    source = PopMQScheduleSource(tasks)
    task = tasks.task(note)
    created = await task.kicker().with_schedule_id("hourly").schedule_by_cron(source, "0 * * * *", "now")
    (listed,) = await source.get_schedules()
    assert (listed.schedule_id, listed.cron, listed.args) == ("hourly", "0 * * * *", ["now"])
    async with working():
        await asyncio.to_thread(popmq_clock.advance, HOUR_MS)
        await eventually(lambda: len(ran) == 1)
        await asyncio.to_thread(popmq_clock.advance, HOUR_MS)
        await eventually(lambda: len(ran) == 2)
        await until_done(tasks)
    sent = await tasks.client.messages.browse("taskiq", queue=0, max_messages=10)
    first, second = (delivery.message_id for delivery in sent.deliveries)
    assert first != second
    assert set(await tasks.client.results([first, second], "taskiq")) == {first, second}
    await created.unschedule()
    assert await source.get_schedules() == []


async def test_a_time_is_a_delayed_message_that_can_be_taken_back(tasks: PopMQBroker, popmq_clock: FakeClock) -> None:
    source = PopMQScheduleSource(tasks)
    task = tasks.register_task(lambda: None, task_name="remind")
    now = datetime.fromtimestamp(popmq_clock.now_ms() / 1000, UTC)
    due = now + timedelta(hours=1)
    created = await task.schedule_by_time(source, due)
    other = await task.schedule_by_time(source, due + timedelta(hours=1))
    assert [each.time for each in await source.get_schedules()] == [due, due + timedelta(hours=1)]
    await created.unschedule()
    assert [each.schedule_id for each in await source.get_schedules()] == [other.schedule_id]
    await source.delete_schedule("of nobody")
    await tasks.client.send("taskiq", popmq.Message("another program's", key="k1", delay=60.0))
    await source.delete_schedule("k1")
    assert len((await tasks.client.messages.list_delayed(key="k1")).messages) == 1


async def test_a_scheduler_process_leaves_them_to_the_broker(tasks: PopMQBroker) -> None:
    source = PopMQScheduleSource(tasks)
    task = tasks.register_task(lambda: None, task_name="tidy")
    await task.schedule_by_cron(source, "0 0 * * *")
    (listed,) = await source.get_schedules()
    with pytest.raises(ScheduledTaskCancelledError):
        source.pre_send(listed)


async def test_what_the_broker_cannot_schedule_is_refused(tasks: PopMQBroker) -> None:
    source = PopMQScheduleSource(tasks)
    task = tasks.register_task(lambda: None, task_name="tidy")
    with pytest.raises(ValueError, match="no intervals"):
        await task.schedule_by_interval(source, 90)
    assert await source.get_schedules() == []
