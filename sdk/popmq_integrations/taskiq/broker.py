"""PopMQBroker: queues of taskiq are topics, and one group reads them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.abc.result_backend import AsyncResultBackend
from taskiq.exceptions import NoResultError

import popmq
from popmq.duration import Duration
from popmq_integrations.clients import ClientOfLoop
from popmq_integrations.queues import group_settings, id_of, tag_of, topic_settings
from popmq_integrations.reasons import reason_of
from popmq_integrations.taskiq.in_hand import HandLedger
from popmq_integrations.taskiq.results import PopMQResultBackend


class PopMQBroker(AsyncBroker):
    """A broker of taskiq on PopMQ.

        broker = PopMQBroker("127.0.0.1:8081").with_result_backend(PopMQResultBackend("127.0.0.1:8081"))

    A task goes to the topic `queue_name`, or to the one that its label `queue_name` names. Workers read `queue_name`
    and `additional_queues`, as the group `group_name`. Topics and group are made at the first use; what exists keeps
    its settings. The label `delay` (seconds) is a delay of the broker.

    `max_priority`: tasks may have the label `priority`, from 0 to this number; higher ones come first.
    `dead_letters`: a task that failed, and is not tried again by a middleware, stays in `%DLQ%taskiq` with its
    traceback; False: it is acked, and only its result says so. `invisible_time`: after how long a task of a worker that
    was killed is delivered again. `max_attempts`: how many workers may die of one task before it is a dead letter.
    `keep`: how long messages stay readable after they are done. `client_options`: as of popmq.AsyncClient.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        queue_name: str = "taskiq",
        additional_queues: Sequence[str] = (),
        group_name: str = "taskiq",
        max_priority: int | None = None,
        dead_letters: bool = True,
        invisible_time: Duration = "30s",
        max_attempts: int = 17,
        keep: Duration = "1h",
        **client_options: Any,
    ) -> None:
        super().__init__()
        self.queue_name = queue_name
        self.additional_queues = tuple(additional_queues)
        self.group_name = group_name
        self.dead_letters = dead_letters
        self._topic = topic_settings(max_priority, keep)
        self._group = group_settings(invisible_time, max_attempts)
        self._client = ClientOfLoop(endpoint, **client_options)
        self._made: set[str] = set()
        self.in_hand = HandLedger()
        self.add_middlewares(_Watch(self))  # the first one: its on_error runs after those that try again

    @property
    def client(self) -> popmq.AsyncClient:
        """The client of the running event loop."""
        return self._client()

    def with_result_backend(self, result_backend: "AsyncResultBackend[Any]") -> Self:
        """Sets the result backend. One of PopMQ stores results in the commit that acks their tasks."""
        if isinstance(result_backend, PopMQResultBackend):
            result_backend.in_hand = self.in_hand
        return super().with_result_backend(result_backend)

    async def startup(self) -> None:
        """Makes topics and group if they do not exist."""
        for queue in (self.queue_name, *self.additional_queues) if self.is_worker_process else (self.queue_name,):
            await self.made_topic(queue)
        await super().startup()

    async def shutdown(self) -> None:
        """Gives back tasks that were not begun, sends outstanding acks to the broker, and closes the connection."""
        await super().shutdown()
        self.in_hand.give_back_unbegun()
        await self._client.close()

    async def made_topic(self, topic: str) -> str:
        """A topic, which exists, as the group does."""
        if topic not in self._made:
            with contextlib.suppress(popmq.errors.AlreadyExists, popmq.errors.Denied):
                await self.client.topics.create(topic, **self._topic)
            with contextlib.suppress(popmq.errors.AlreadyExists, popmq.errors.Denied):
                await self.client.groups.create(self.group_name, **self._group)
            self._made.add(topic)
        return topic

    async def kick(self, message: BrokerMessage) -> None:
        """Sends a task; it is on the broker's disk when this returns.

        The retry of a task that runs here, which has its id, is stored in the commit that ends the failed attempt.
        """
        topic = await self.made_topic(message.labels.get("queue_name") or self.queue_name)
        sent = self.as_sent(message)
        if running := self.in_hand.running(message.task_id):
            running.sends.append(popmq.Send(topic, sent))
            return
        try:
            await self.client.send(topic, sent)
        except popmq.errors.TopicNotFound:  # an operator has deleted it since
            self._made.discard(topic)
            await self.client.send(await self.made_topic(topic), sent)

    def as_sent(self, message: BrokerMessage, **fields: Any) -> popmq.Message:
        """The message of a task. `fields`: of popmq.Message, in place of those that its labels say."""
        said = {
            "message_id": id_of(message.task_id),
            "tag": tag_of(message.task_name),
            "delay": max(0.0, float(message.labels.get("delay") or 0)),
            "priority": int(message.labels.get("priority") or 0),
        }
        return popmq.Message(message.message, **{**said, **fields})

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks as they come, each under a lease that is renewed until taskiq acks it. The broker may restart."""
        arrived: asyncio.Queue[popmq.Delivery | BaseException] = asyncio.Queue(1)
        queues = [await self.made_topic(queue) for queue in (self.queue_name, *self.additional_queues)]
        consumers = [self.client.consume(queue, self.group_name) for queue in queues]
        pumps = [asyncio.create_task(_pump(consumer, arrived)) for consumer in consumers]
        try:
            while True:
                found = await arrived.get()
                if isinstance(found, BaseException):
                    raise found
                yield self._taken(found)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            while not arrived.empty():
                left = arrived.get_nowait()
                if isinstance(left, popmq.Delivery):
                    left.release(0.0, uncounted=True)
            for consumer in consumers:
                await consumer.close()

    def _taken(self, delivery: popmq.Delivery) -> AckableMessage:
        data, task_id = delivery.body, delivery.message_id
        with contextlib.suppress(Exception):  # what taskiq cannot read either, it acks without having begun it
            message = self.formatter.loads(data)
            if delivery.properties.get("popmq_schedule"):  # one message is sent each time, and each time is a task
                message.task_id = delivery.message_id
                data = self.formatter.dumps(message).message
            task_id = message.task_id
        taken = self.in_hand.take(delivery, task_id)
        # Who replaces the list of middlewares has none that would tell which tasks run: then all that is acked counts.
        taken.begun = not any(isinstance(each, _Watch) for each in self.middlewares)
        return AckableMessage(data=data, ack=lambda: self.in_hand.settle(taken))


async def _pump(consumer: popmq.AsyncConsumer, arrived: "asyncio.Queue[popmq.Delivery | BaseException]") -> None:
    try:
        async for delivery in consumer:
            await _put(arrived, delivery)
    except popmq.PopMQError as error:
        await arrived.put(error)


async def _put(arrived: "asyncio.Queue[popmq.Delivery | BaseException]", delivery: popmq.Delivery) -> None:
    try:
        await arrived.put(delivery)
    except asyncio.CancelledError:
        delivery.release(0.0, uncounted=True)
        raise


class _Watch(TaskiqMiddleware):
    """Notes which tasks taskiq runs, and which of them fail for good."""

    def __init__(self, broker: PopMQBroker) -> None:
        super().__init__()
        self._popmq = broker

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        self._popmq.in_hand.begin(message.task_id)
        return message

    def on_error(self, message: TaskiqMessage, result: "TaskiqResult[Any]", exception: BaseException) -> None:
        running = self._popmq.in_hand.running(message.task_id)
        if running and self._popmq.dead_letters and not isinstance(result.error, NoResultError):
            running.failure = reason_of(exception, "taskiq")
