"""A channel of kombu: its queues and exchanges are topics, its consumers read them for the group of their queue."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.transport.virtual.base import UndeliverableWarning
from kombu.transport.virtual.exchange import TopicExchange

import popmq
from popmq.errors import (
    AlreadyExists,
    GroupNotFound,
    InvalidField,
    MessageNotFound,
    NotFound,
    PermissionDenied,
    PopMQError,
    TopicNotFound,
)
from popmq_integrations.celery import messages, names
from popmq_integrations.celery.options import Options
from popmq_integrations.celery.reader import Budget, Feed, Reader, give_back
from popmq_integrations.celery.reader import requeue as _requeue

#: A purge takes so many messages at a time.
PURGE = 1_000
#: Seconds that an event or a remote command waits for the broker: the loop of the worker sends them.
TRANSIENT_S = 5.0


class Connected(Protocol):
    """What a channel needs of its transport."""

    client: Any  # kombu's Connection
    options: Options
    declared: dict[str, dict[str, Any]]  # queues, with how they were declared here
    popmq_client: popmq.Client
    reader: Reader


class Channel(virtual.Channel):  # type: ignore[misc]  # kombu has no types
    """See the package."""

    supports_fanout = True
    do_restore = False
    body_encoding = None  # a body is bytes; no base64
    from_transport_options = ()
    connection: Connected

    def __init__(self, connection: Connected, **options: Any) -> None:
        super().__init__(connection, **options)
        self._budget = Budget()
        self._feeds: dict[str, Feed] = {}
        self._unacked: dict[int, popmq.Delivery] = {}
        self._own: set[str] = set()  # queues that end with this channel

    @property
    def client(self) -> popmq.Client:
        """Of its connection."""
        return self.connection.popmq_client

    # ── Queues ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **options: Any) -> Mapping[str, Any]:
        """`expires` and `message_ttl` of a queue, as AMQP names them."""
        given: Mapping[str, Any] = to_rabbitmq_queue_arguments(arguments, **options)
        return given

    def _new_queue(self, queue: str, **declared: Any) -> None:
        """Creates what a queue is; the group begins before the first message, so that nothing is missed."""
        group, options = names.topic_of_queue(queue), self.connection.options
        arguments = declared.get("arguments") or {}
        transient = bool(declared.get("auto_delete") or declared.get("exclusive") or "x-expires" in arguments)
        expiry = options.binding_expiry if transient else 0
        with suppress(AlreadyExists, PermissionDenied):  # an operator did it, perhaps with other settings
            self.client.groups.create(group, subscription_expiry=expiry, max_attempts=options.max_attempts)
        if transient:
            self._bind(group, names.DEFAULT_EXCHANGE, names.clause("direct", queue))
        else:
            self._create_topic(group)
            with suppress(PermissionDenied):  # of a key that only sends: who reads it has declared it before
                self.client.wait_available(group, group, min_ready=0)
        self.connection.declared[queue] = declared | {"transient": transient}

    def _create_topic(self, topic: str) -> None:
        with suppress(AlreadyExists, PermissionDenied):
            retention = popmq.Retention(keep=self.connection.options.keep)
            self.client.topics.create(topic, queues=messages.PRIORITIES, type="PRIORITY", retention=retention)

    def _has_queue(self, queue: str, **declared: Any) -> bool:
        with suppress(PermissionDenied):
            try:
                self.client.groups.get(names.topic_of_queue(queue))
            except GroupNotFound:
                return False
        return True

    def _size(self, queue: str) -> int:
        """Ready messages. Of a binding also those that its filter does not let through, until they are passed."""
        try:
            rows = self.client.broker.stats("", names.topic_of_queue(queue)).groups
        except (GroupNotFound, PermissionDenied):
            return 0
        return sum(row.ready + row.retry for row in rows)

    def _purge(self, queue: str) -> int:
        """Removes ready and delayed messages, not what a worker holds; returns how many."""
        group, gone = names.topic_of_queue(queue), 0
        for topic in list(self._filters(group)):
            while batch := self.client.pop(topic, group, PURGE):
                self.client.ack(batch)
                gone += len(batch)
            while not names.is_exchange(topic) and (rows := self.client.messages.list_delayed(topic).messages):
                for row in rows:
                    with suppress(MessageNotFound):
                        self.client.messages.recall(topic, row.recall_handle)
                        gone += 1
        return gone

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        """Deletes it with everything in it."""
        if if_empty and self._size(queue):
            return
        group = names.topic_of_queue(queue)
        self.connection.declared.pop(queue, None)
        self._own.discard(queue)
        self.state.queue_bindings_delete(queue)
        self._delete(group, NotFound)

    def _delete(self, group: str, suppressed: type[PopMQError], timeout: float | None = None) -> None:
        for delete in (self.client.groups.delete, self.client.topics.delete):
            with suppress(suppressed):
                delete(group, timeout=timeout)

    # ── Exchanges ──────────────────────────────────────────────────────────────────────────────────────────────────

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Deletes the topic of the exchange, and with it its bindings."""
        self.state.exchanges.pop(exchange, None)
        with suppress(NotFound):
            self.client.topics.delete(names.topic_of_exchange(exchange))

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        """Lets the group of the queue read the topic of the exchange, through a filter of routing keys."""
        exchange, routing_key = exchange or "amq.direct", routing_key or ""
        if not self.state.has_binding(queue, exchange, routing_key):
            with suppress(PermissionDenied):
                self._bind(names.topic_of_queue(queue), exchange, names.clause(self.typeof(exchange).type, routing_key))
            self.state.binding_declare(queue, exchange, routing_key, arguments)

    def _bind(self, group: str, exchange: str, clause: str) -> None:
        topic = names.topic_of_exchange(exchange)
        self._create_topic(topic)
        if topic not in self._filters(group):
            with suppress(InvalidField):  # another process has bound it meanwhile
                self.client.groups.set_consume_mode(topic, group, "POP", start="latest")
        self._change_filter(topic, group, lambda sql: names.with_clause(sql, clause))
        for feed in self._feeds.values():
            if feed.group == group and topic not in feed.topics:
                feed.topics.append(topic)
                self.connection.reader.start(feed)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        """The reverse of `queue_bind`."""
        exchange, routing_key = exchange or "amq.direct", routing_key or ""
        clause = names.clause(self.typeof(exchange).type, routing_key)
        topic, group = names.topic_of_exchange(exchange), names.topic_of_queue(queue)
        self.state.binding_delete(queue, exchange, routing_key)
        with suppress(NotFound):
            self._change_filter(topic, group, lambda sql: names.without_clause(sql, clause))

    def _change_filter(self, topic: str, group: str, change: Callable[[str], str]) -> None:
        sql = self._filters(group).get(topic, "")
        if (changed := change(sql)) != sql:
            self.client.groups.set_filter(topic, group, sql=changed)

    def _filters(self, group: str) -> dict[str, str]:
        """The topics that a queue reads, each with its filter."""
        return {each.topic: each.sql for each in self.client.groups.subscriptions(group)}

    # ── Sending ────────────────────────────────────────────────────────────────────────────────────────────────────

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any) -> None:
        """Stores a message; it is on the broker's disk when this returns. What no queue is bound for is dropped."""
        declared = self.connection.declared.get(routing_key, {}) if not exchange else {}
        ttl = (declared.get("arguments") or {}).get("x-message-ttl", 0) / 1000
        given = messages.encoded(message, exchange, routing_key, ttl)
        if not exchange and not declared.get("transient"):
            topic = names.topic_of_queue(routing_key)
            try:
                self.client.send(topic, given)
                return
            except TopicNotFound:
                if declared:  # somebody has deleted it
                    self._new_queue(routing_key, **declared)
                    self.client.send(topic, given)
                    return
        if exchange or declared or self._has_queue(routing_key):
            transient = exchange and message["properties"].get("delivery_mode") == 1
            with suppress(TopicNotFound):  # no queue is bound to it, as to that of events if nobody watches
                self.client.send(names.topic_of_exchange(exchange), given, timeout=TRANSIENT_S if transient else None)
        else:
            text = f"there is no queue {routing_key!r}: the message is dropped"
            warnings.warn(UndeliverableWarning(text), stacklevel=2)

    # ── Consuming ──────────────────────────────────────────────────────────────────────────────────────────────────

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **_: Any
    ) -> None:
        """Reads the queue until `basic_cancel`."""
        group = names.topic_of_queue(queue)
        exact = self._patterns(queue)

        def deliver(delivery: popmq.Delivery) -> None:
            if self._passes(delivery, group, exact):
                callback(self._message(delivery, no_ack, budget))
            else:
                self.connection.reader.settle(budget, delivery, popmq.Delivery.ack)

        budget = Budget() if no_ack else self._budget
        self._feeds[consumer_tag] = Feed(group, list(self._filters(group)), budget, deliver, no_ack)
        self._consumers.add(consumer_tag)
        declared = self.connection.declared.get(queue, {})
        if declared.get("auto_delete") or declared.get("exclusive"):
            self._own.add(queue)
        self.connection.reader.start(self._feeds[consumer_tag])

    def _patterns(self, queue: str) -> dict[str, list[str]]:
        """Of topic exchanges: their filters let too much through, and what does not match is dropped here."""
        found: dict[str, list[str]] = {}
        for binding in self.state.queue_bindings(queue):
            if isinstance(self.typeof(binding.exchange), TopicExchange):
                found.setdefault(binding.exchange, []).append(binding.routing_key)
        return found

    def _passes(self, delivery: popmq.Delivery, group: str, patterns: dict[str, list[str]]) -> bool:
        exchange = delivery.properties.get("exchange", "")
        key = delivery.properties.get("routing_key", "")
        if exchange not in patterns or names.matches(patterns[exchange], key):
            return True
        # Others may have bound the queue, too, and their patterns are not known here: only their clauses are.
        mine = {names.clause("topic", pattern) for pattern in patterns[exchange]}
        return names.lets_through(self._filters(group).get(names.topic_of_exchange(exchange), ""), mine, key)

    def _message(self, delivery: popmq.Delivery, no_ack: bool, budget: Budget) -> Any:
        tag = next(self._delivery_tags)
        if no_ack:
            self.connection.reader.settle(budget, delivery, popmq.Delivery.ack)
        else:
            self._unacked[tag] = delivery
        return self.Message(messages.decoded(delivery, tag), channel=self)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Reads no more for this consumer."""
        self._consumers.discard(consumer_tag)
        feed = self._feeds.pop(consumer_tag, None)
        if feed is not None:
            self.connection.reader.stop(feed)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """One message, or None."""
        group = names.topic_of_queue(queue)
        delivery = self.connection.reader.get(list(self._filters(group)), group, self._budget)
        return None if delivery is None else self._message(delivery, no_ack, self._budget)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """How many unacked messages the channel may hold; 0: no limit. It is also the size of a Pop."""
        self.qos.prefetch_count = prefetch_count
        self.connection.reader.soon(self._budget.changed, prefetch_count)

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acks in the background."""
        last = [tag for tag in list(self._unacked) if tag <= delivery_tag] if multiple else [delivery_tag]
        for tag in last:
            self._settle(tag, popmq.Delivery.ack)

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """With `requeue` it is delivered again at once, and the attempt counts; else it is a dead letter."""
        self._settle(delivery_tag, _requeue if requeue else popmq.Delivery.reject)

    def basic_recover(self, requeue: bool = False) -> None:
        """Gives back what is not acked."""
        for tag in list(self._unacked):
            self._settle(tag, give_back)

    def _settle(self, tag: int, how: Callable[[popmq.Delivery], None]) -> None:
        delivery = self._unacked.pop(tag, None)
        if delivery is not None:
            self.connection.reader.settle(self._budget, delivery, how)

    def close(self) -> None:
        """Gives back what is not acked, and deletes queues that were only for this process."""
        if not self.closed:
            for tag in [*self._feeds]:
                self.basic_cancel(tag)
            self.basic_recover(requeue=True)
            for queue in self._own:
                self._delete(names.topic_of_queue(queue), PopMQError, timeout=1.0)  # or the broker forgets it by itself
        super().close()
