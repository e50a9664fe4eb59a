"""PopMQScheduleSource: schedules of taskiq that the broker itself keeps and sends."""

from datetime import UTC, datetime, timedelta
from typing import Any

from taskiq import ScheduledTask, ScheduleSource, TaskiqMessage
from taskiq.exceptions import ScheduledTaskCancelledError
from taskiq.labels import prepare_label

import popmq
from popmq_integrations.taskiq.broker import PopMQBroker

#: The property of a delayed message that a schedule has sent, and of a message that a schedule sends: its id.
_SCHEDULE_ID = "taskiq_schedule_id"


class PopMQScheduleSource(ScheduleSource):
    """Schedules that need no scheduler process: the broker sends each task when it is due, once.

        schedules = PopMQScheduleSource(broker)
        await report.schedule_by_cron(schedules, "0 9 * * 1-5")
        await remind.schedule_by_time(schedules, tomorrow)

    A cron is a schedule of the broker named `taskiq-` and its id, a time is a delayed message. `taskiq scheduler` may
    run beside it for other sources: what it would send of this one, it leaves to the broker. Each run of a cron is a
    task with an id of its own, `taskiq-ID@2026-01-31T08:00:00Z`. Needs the right `admin`.
    """

    def __init__(self, broker: PopMQBroker, *, prefix: str = "taskiq-") -> None:
        self._broker = broker
        self._prefix = prefix

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Stores a schedule in the broker.

        Raises ValueError for an interval, which the broker has not; popmq.errors.InvalidField for a bad cron.
        """
        labels = {label: prepare_label(value) for label, value in schedule.labels.items()}
        message = TaskiqMessage(
            task_id=schedule.task_id or schedule.schedule_id,
            task_name=schedule.task_name,
            labels={label: value for label, (value, _) in labels.items()},
            labels_types={label: kind for label, (_, kind) in labels.items()},
            args=schedule.args,
            kwargs=schedule.kwargs,
        )
        dumped = self._broker.formatter.dumps(message)
        topic = await self._broker.made_topic(schedule.labels.get("queue_name") or self._broker.queue_name)
        marked = {_SCHEDULE_ID: schedule.schedule_id}
        if schedule.cron is not None:
            sent = self._broker.as_sent(dumped, message_id="", delay=0.0, properties=marked)
            zone = _zone(schedule.cron_offset)
            await self._broker.client.schedules.create(
                self._name(schedule.schedule_id), schedule.cron, topic, sent, tz=zone
            )
        elif schedule.time is not None:
            due = schedule.time if schedule.time.tzinfo else schedule.time.replace(tzinfo=UTC)
            sent = self._broker.as_sent(dumped, delay=0.0, deliver_at=due, properties=marked, key=schedule.schedule_id)
            await self._broker.client.send(topic, sent)
        else:
            raise ValueError("the broker has no intervals: give a cron, such as */5 * * * *, or use another source")

    async def delete_schedule(self, schedule_id: str) -> None:
        """Deletes a schedule; one that does not exist is ignored. Tasks that were sent stay."""
        client = self._broker.client
        try:
            await client.schedules.delete(self._name(schedule_id))
        except (popmq.errors.ScheduleNotFound, popmq.errors.InvalidField):  # it is a time, or no name of a cron
            for delayed in (await client.messages.list_delayed(key=schedule_id, whole=True)).messages:
                if delayed.message is None or delayed.message.properties.get(_SCHEDULE_ID) != schedule_id:
                    continue  # another program's message with this key
                try:
                    await client.messages.recall(delayed.topic, delayed.recall_handle)
                except popmq.errors.MessageNotFound:
                    continue  # it became due meanwhile

    async def get_schedules(self) -> list[ScheduledTask]:
        """The schedules that the broker keeps: crons, and times among the 1,000 delayed messages that are due first."""
        client = self._broker.client
        found = [
            self._scheduled(each.message.body, each.message.properties, cron=each.cron, cron_offset=each.tz)
            for each in await client.schedules.list()
            if each.name.startswith(self._prefix) and _SCHEDULE_ID in each.message.properties
        ]
        for delayed in (await client.messages.list_delayed(max_messages=1000, whole=True)).messages:
            if delayed.message is not None and _SCHEDULE_ID in delayed.message.properties:
                due = datetime.fromtimestamp(delayed.due_ms / 1000, UTC)
                found.append(self._scheduled(delayed.message.body, delayed.message.properties, time=due))
        return found

    def pre_send(self, task: ScheduledTask) -> None:
        """Tells a scheduler process that the broker sends this task."""
        raise ScheduledTaskCancelledError

    def _name(self, schedule_id: str) -> str:
        return f"{self._prefix}{schedule_id}"

    def _scheduled(self, body: Any, properties: Any, **when: Any) -> ScheduledTask:
        message = self._broker.formatter.loads(bytes(body))
        message.parse_labels()
        return ScheduledTask(
            task_name=message.task_name,
            labels=message.labels,
            args=message.args,
            kwargs=message.kwargs,
            schedule_id=properties[_SCHEDULE_ID],
            **when,
        )


def _zone(offset: str | timedelta | None) -> str:
    """The time zone of a cron. Raises ValueError for a difference to UTC, which has no daylight saving."""
    if isinstance(offset, timedelta):
        raise ValueError(f"cron_offset is {offset}: give the name of a time zone, such as Europe/Berlin")
    return offset or "UTC"
