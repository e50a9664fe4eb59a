"""PopMQBroker: queues of Dramatiq are topics, delays and leases are kept by the broker."""

import threading
import time
from typing import Any

import dramatiq
from dramatiq.broker import Broker, Consumer
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound
from dramatiq.middleware import Middleware
from dramatiq.results import Results

import popmq
from popmq.duration import Duration
from popmq_integrations.clients import ClientOfProcess
from popmq_integrations.dramatiq.consumer import PopMQConsumer
from popmq_integrations.dramatiq.delivered import Delivered
from popmq_integrations.dramatiq.results import PopMQBackend, topic_of
from popmq_integrations.queues import group_settings, id_of, tag_of, topic_settings


class PopMQBroker(Broker):
    """A broker of Dramatiq on PopMQ.

        broker = PopMQBroker("127.0.0.1:8081")
        dramatiq.set_broker(broker)

    The queue `default` is the topic `dramatiq.default` (`namespace`, a dot, its name), and workers read it as the group
    of the same name, whose dead letters are in `%DLQ%dramatiq.default`. Both are made at the first use; what exists
    keeps its settings. Nothing connects before.

    `max_priority`: messages may have the option `broker_priority`, from 0 to this number; higher ones come first.
    `invisible_time`: after how long a message of a worker that was killed is delivered again. `max_attempts`: how many
    workers may die of one message before it is a dead letter (what actors raise is counted by Dramatiq's Retries).
    `keep`: how long messages stay readable after they are done. `client_options`: as of popmq.Client.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        middleware: list[Middleware] | None = None,
        namespace: str = "dramatiq",
        max_priority: int | None = None,
        invisible_time: Duration = "30s",
        max_attempts: int = 17,
        keep: Duration = "1h",
        **client_options: Any,
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.namespace = namespace
        self.max_priority = max_priority
        self._topic = topic_settings(max_priority, keep)
        self._group = group_settings(invisible_time, max_attempts)
        self._client = ClientOfProcess(endpoint, **client_options)
        self._made: set[str] = set()
        self._ending = threading.local()
        if max_priority:
            self.actor_options.add("broker_priority")

    @property
    def client(self) -> popmq.Client:
        """The client of this process."""
        return self._client()

    def topic_of(self, queue_name: str) -> str:
        """The topic, and the group, of a queue."""
        return topic_of(self.namespace, queue_name)

    def close(self) -> None:
        """Sends outstanding acks to the broker, and closes the connection of this process."""
        self._client.close()

    # ── Queues ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def declare_queue(self, queue_name: str) -> None:
        """Declares a queue. It has no delay queue beside it: what is delayed stays in the broker until it is due."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """The names of the queues that were declared so far."""
        return self.queues.copy()

    def _made_topic(self, queue_name: str) -> str:
        """The topic of a queue, which exists, as its group does."""
        topic = self.topic_of(queue_name)
        if topic not in self._made:
            self._make(topic)
            self._made.add(topic)
        return topic

    def _make(self, topic: str) -> None:
        client = self.client
        try:
            client.topics.create(topic, **self._topic)
        except (popmq.errors.AlreadyExists, popmq.errors.Denied) as error:
            self.logger.debug("Topic %r stays as it is: %s", topic, error)
        try:
            client.groups.create(topic, **self._group)
        except (popmq.errors.AlreadyExists, popmq.errors.Denied) as error:
            self.logger.debug("Group %r stays as it is: %s", topic, error)
        for middleware in self.middleware:  # before the first message fails: its dead letter is its result
            if isinstance(middleware, Results) and isinstance(middleware.backend, PopMQBackend):
                middleware.backend.keep_for(topic, middleware.result_ttl)

    # ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, message: "dramatiq.Message[Any]", *, delay: int | None = None) -> "dramatiq.Message[Any]":
        """Stores a message; it is on the broker's disk when this returns. `delay`: milliseconds, up to 100 years.

        What middlewares enqueue when an actor has ended (the retry, the next message of a pipeline, the callback of a
        group) is stored in the commit that ends the attempt instead.
        Raises ConnectionClosed if the broker does not answer, popmq.errors.InvalidField for what it does not take.
        """
        self.logger.debug("Enqueueing message %r on queue %r.", message.message_id, message.queue_name)
        self.emit_before("enqueue", message, delay)
        try:
            self._store(message, delay)
        except popmq.errors.TryLater as error:
            raise ConnectionClosed(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def _store(self, message: "dramatiq.Message[Any]", delay: int | None) -> None:
        topic = self._made_topic(message.queue_name)
        send = popmq.Send(topic, self._as_sent(message, delay))
        ending = getattr(self._ending, "message", None)
        if isinstance(ending, Delivered) and ending.rides(send, self.client.endpoint):
            return
        try:
            self.client.send(topic, send.messages)
        except popmq.errors.TopicNotFound:  # an operator has deleted it since
            self._made.discard(topic)
            self.client.send(self._made_topic(message.queue_name), send.messages)

    def _as_sent(self, message: "dramatiq.Message[Any]", delay: int | None) -> popmq.Message:
        priority = message.options.get("broker_priority")
        if priority is None and message.actor_name in self.actors:
            priority = self.actors[message.actor_name].options.get("broker_priority")
        return popmq.Message(
            message.encode(),
            message_id=id_of(message.message_id),
            tag=tag_of(message.actor_name),
            delay=max(0, delay or 0) / 1000,
            priority=priority or 0,
        )

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> Consumer:
        """Reads a queue, with at most `prefetch` messages in hand; its iterator returns None after `timeout` ms.

        Raises QueueNotFound for a queue that was not declared, ConnectionClosed if the broker does not answer.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        self._made.discard(self.topic_of(queue_name))  # it may have been deleted while no worker ran
        try:
            topic = self._made_topic(queue_name)
        except popmq.errors.TryLater as error:
            raise ConnectionClosed(error) from error
        return PopMQConsumer(self.client, topic, queue_name, prefetch, timeout)

    def emit_after(self, signal: str, *args: Any, **kwargs: Any) -> None:
        """Notes which message a worker's thread ends: what middlewares enqueue meanwhile is stored with its ack."""
        if signal != "process_message":
            super().emit_after(signal, *args, **kwargs)
            return
        self._ending.message = args[0]
        try:
            super().emit_after(signal, *args, **kwargs)
        finally:
            self._ending.message = None

    # ── For operators and tests ──────────────────────────────────────────────────────────────────────────────────────

    def flush(self, queue_name: str) -> None:
        """Drops all messages of a queue, also delayed ones and those in hand. Dead letters stay."""
        try:
            self.client.topics.purge(self.topic_of(queue_name))
        except popmq.errors.TopicNotFound:
            self.logger.debug("Queue %r has no topic yet.", queue_name)

    def flush_all(self) -> None:
        """Drops all messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """(ready or in hand, delayed, dead letters) of a queue."""
        topic = self.topic_of(queue_name)
        try:
            # One call, so that no message is missed on its way from one number to another; and one that knows what a
            # group would get which has not read the topic yet.
            group = self.client.wait_available(topic, topic, min_ready=0).stats
        except (popmq.errors.TopicNotFound, popmq.errors.GroupNotFound):
            return 0, 0, 0
        undone = group.ready + (group.in_flight or 0) + group.retry + (group.backoff or 0)
        return undone, group.delayed or 0, group.dead

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Waits until all messages of a queue are done, also delayed ones; looks every `interval` milliseconds.

        For tests. Raises QueueJoinTimeout after `timeout` milliseconds.
        """
        until = None if timeout is None else time.monotonic() + timeout / 1000
        while any(self.get_queue_message_counts(queue_name)[:2]):
            if until is not None and time.monotonic() >= until:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)
