"""Reads one queue for a worker of Dramatiq."""

import logging
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import dramatiq
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import ConnectionClosed, DecodeError

import popmq
from popmq_integrations.dramatiq.delivered import Delivered
from popmq_integrations.reasons import reason_of

log = logging.getLogger("popmq.dramatiq")


class PopMQConsumer(Consumer):
    """Messages of one queue, at most `prefetch` in hand; made by `PopMQBroker.consume`.

    A thread pops them, since Dramatiq wants to be called back every `timeout` milliseconds, and a pop may wait for a
    message for longer. While the broker is away it goes on waiting. Messages that a worker has in hand outlive the
    consumer: Dramatiq closes it when a worker is paused, and acks them with the next one.
    """

    def __init__(self, client: popmq.Client, topic: str, queue_name: str, prefetch: int, timeout: int) -> None:
        self._client = client
        self._queue_name = queue_name
        self._timeout = timeout / 1000
        self._arrived: SimpleQueue[popmq.Delivery | Exception] = SimpleQueue()
        self._loop = client.consume(topic, topic, max_messages=min(prefetch, 256), max_in_hand=prefetch)
        self._popping = Thread(target=self._pop, name=f"popmq-{topic}", daemon=True)
        self._popping.start()

    def _pop(self) -> None:
        try:
            for delivery in self._loop:
                self._arrived.put(delivery)
        except Exception as error:  # told where the messages are expected
            self._arrived.put(error)

    def __next__(self) -> MessageProxy | None:
        """The next message, or None after `timeout`. Raises what ended the pops, such as popmq.errors.TopicNotFound."""
        try:
            found = self._arrived.get(timeout=self._timeout)
        except Empty:
            return None
        if isinstance(found, Exception):
            raise found
        try:
            return Delivered(self._decoded(found.body), found, self._client.endpoint)
        except DecodeError as error:
            where = (found.message_id, found.topic, error.error)
            log.error("message %s of topic %s is no message of Dramatiq for its queue, but a dead letter: %s", *where)
            found.reject(reason_of(error.error, "dramatiq"))
            return None

    def _decoded(self, body: bytes) -> "dramatiq.Message[Any]":
        """Raises DecodeError, also for a message that would end a thread of the worker outside of its actor."""
        message: dramatiq.Message[Any] = dramatiq.Message.decode(body)
        if not isinstance(message.options, dict) or not isinstance(message.actor_name, str):
            error: Exception = TypeError("its options are no object, or the name of its actor is no text")
        elif message.queue_name != self._queue_name:
            error = ValueError(f"it is of the queue {message.queue_name!r}, not {self._queue_name!r}")
        else:
            return message
        raise DecodeError(str(error), body, error)

    def ack(self, message: MessageProxy) -> None:
        """Acks it in the background, several in one request. Messages that no consumer of PopMQ gave are ignored."""
        if isinstance(message, Delivered):
            message.ack()

    def nack(self, message: MessageProxy) -> None:
        """Makes it a dead letter, on disk when this returns. After ConnectionClosed, Dramatiq calls it again."""
        if not isinstance(message, Delivered):
            return
        try:
            message.reject(self._client)
        except popmq.errors.TryLater as error:
            raise ConnectionClosed(error) from error
        except popmq.errors.HandleLapsed as error:
            log.warning("message %s failed, and its lease is over: it comes again: %s", message.message_id, error)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Gives back what no actor has begun, to be delivered at once; no attempt counts."""
        for message in messages:
            if isinstance(message, Delivered):
                message.release()

    def close(self) -> None:
        """Stops the pops, and gives back what the worker did not take. May be called twice."""
        self._loop.stop()
        self._popping.join()
        while not self._arrived.empty():
            found = self._arrived.get()
            if isinstance(found, popmq.Delivery):
                found.release(0.0, uncounted=True)
        self._loop.close()
