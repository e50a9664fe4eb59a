"""PopMQBackend: enqueues tasks, and tells what became of them."""

import time
from collections.abc import Iterator
from typing import Any

from django.core import checks

import popmq
from popmq import errors
from popmq_integrations.django import options, records
from popmq_integrations.django.processes import Process, process_of
from popmq_integrations.django.seam import BaseTaskBackend, TaskResultDoesNotExist, TaskResultStatus, task_enqueued

#: The state of a message for the group of the workers → the status of its task. All others are ready.
STATUS = {
    "leased": TaskResultStatus.RUNNING,
    "acked": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "expired": TaskResultStatus.FAILED,
    "dropped": TaskResultStatus.FAILED,
    "quarantined": TaskResultStatus.FAILED,
}


#: Seconds after the commit in which the broker shows a message.
VISIBLE_S = 1.0


class PopMQBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Tasks are messages: a queue is a topic, a result is kept with the ack of its message.

    OPTIONS are those of `options.Options`, and the connection as of popmq.Client. In a transaction of the database that
    they name, a task is enqueued if and only if the transaction commits. Raises what `client.send` raises.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.connection, self.settings = options.read(self.options)

    @property
    def process(self) -> Process:
        """The client and the outbox of this process."""
        return process_of(self.connection, self.settings)

    def topic_of(self, queue: str) -> str:
        """The topic of a queue."""
        return f"{self.settings.topic_prefix}{queue}"

    def queue_of(self, topic: str) -> str:
        """The queue of a topic."""
        return topic.removeprefix(self.settings.topic_prefix)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Sends a task, in the transaction that is under way if there is one. Raises InvalidTask, TypeError."""
        self.validate_task(task)
        result = records.result_of(task, records.new_id(task.queue_name), args, kwargs, self.alias, records.now())
        self.process.send(self.topic_of(task.queue_name), records.message_of(result))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """What is known of a task: from the history of its message, and its result.

        Raises TaskResultDoesNotExist, also after results were kept for as long as `results_keep` says, and before the
        transaction has committed; ImportError for a task that this code does not have.
        """
        life = self._life(result_id)
        message = self._message(life, result_id)
        try:
            result = records.read(message, self.queue_of(life.topic), self.alias)
        except ValueError as error:
            raise TaskResultDoesNotExist(result_id) from error
        for group in life.groups:
            records.add_history(result, group.events)
            status = STATUS.get(group.state, TaskResultStatus.READY)
            if status == TaskResultStatus.SUCCESSFUL:
                kept = self.process.client.results([result_id], self.settings.group)
                if result_id not in kept:
                    raise TaskResultDoesNotExist(result_id)
                records.add_stored(result, kept[result_id])
            elif status == TaskResultStatus.FAILED:
                records.add_end(result, group)
            records.change(result, status=status)
        return result

    def history(self, result_id: str) -> list[popmq.LifeEvent]:
        """What happened to the message of a task so far, since it was last redriven, if it was.

        For its worker; empty if its access key may not ask.
        """
        try:
            events = [event for group in self._life(result_id).groups for event in group.events]
        except (TaskResultDoesNotExist, popmq.PopMQError):
            return []
        redriven = [place for place, event in enumerate(events, 1) if event.what == "redriven"]
        return events[max(redriven, default=0) :]

    def check(self, **_: Any) -> Iterator[checks.CheckMessage]:
        """What is wrong in the settings of this backend."""
        return options.checked(self.alias, self.options, self.queues)

    def _life(self, result_id: str) -> popmq.MessageLife:
        if (life := self._visible(result_id)) is not None:
            return life
        until = time.monotonic() + VISIBLE_S
        while self.process.decided(str(result_id)) and time.monotonic() < until:
            if (life := self._visible(result_id)) is not None:
                return life
        raise TaskResultDoesNotExist(result_id)

    def _visible(self, result_id: str) -> popmq.MessageLife | None:
        for life in self._lives(result_id):
            if life.place in ("stored", "delayed") and life.topic.startswith(self.settings.topic_prefix):
                return life
        return None

    def _lives(self, result_id: str) -> list[popmq.MessageLife]:
        ask, id, group = self.process.client.messages.why, str(result_id), self.settings.group
        # All topics, if TASKS names no queue: that needs the right admin.
        topics = [self.topic_of(queue) for queue in records.ordered(self.queues, id)] or [""]
        for topic in topics:
            try:
                return ask(id, topic, group)
            except errors.GroupNotFound:  # no worker has begun, and the topic was created by others
                self.process.declare()
                return ask(id, topic, group)
            except (errors.NotFound, errors.InvalidField):
                continue
        return []

    def _message(self, life: popmq.MessageLife, result_id: str) -> popmq.Delivery:
        calls = self.process.client.messages
        if life.place == "delayed":
            for each in calls.list_delayed(life.topic, whole=True, message_id=result_id).messages:
                if each.message is not None:
                    return each.message
        for stored in calls.browse(life.topic, life.queue, life.offset, 1).deliveries:
            if stored.message_id == result_id:
                return stored
        raise TaskResultDoesNotExist(result_id)
