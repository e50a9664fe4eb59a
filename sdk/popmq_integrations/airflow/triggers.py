"""The trigger: messages become events of an asset, from which Airflow makes runs of DAGs.

    consumer ─▶ message, leased ─▶ filter_shared_stream ─▶ event ─▶ Airflow's database ─▶ advance ─▶ ack
                   │ renewed until then                                  │ not stored in time, or refused
                   │                                                     └─▶ released, or a dead letter
                   └─ the triggerer dies: delivered again when the lease ends

It is a shared stream in ack mode (airflow.triggers.shared_stream): Airflow says when an event is in its database, from
which the scheduler makes the runs. Only then the message is acked.
"""

import base64
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

import popmq

#: Messages that wait for Airflow's database at a time. More stay in the broker, for other triggerers.
IN_HAND_MAX = 100


class PopMQTrigger(BaseEventTrigger):  # type: ignore[misc]  # of Airflow, which is not installed here
    """Fires for each message of `topic` that `group` gets. Both have to exist.

    `endpoint`: else POPMQ_ENDPOINT, in the environment of the triggerer. Access keys and TLS are only taken from there
    (POPMQ_ACCESS_KEY, POPMQ_TLS, …): arguments of a trigger are readable in Airflow's database.
    Raises TypeError and ValueError for names that are missing.
    """

    def __init__(self, topic: str, group: str, endpoint: str | None = None, **given: Any) -> None:
        super().__init__(**given)
        for name, value in (("topic", topic), ("group", group)):
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} is {value!r}: give the name of a {name} of PopMQ")
        self.topic = topic
        self.group = group
        self.endpoint = endpoint

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow keeps it."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"topic": self.topic, "group": self.group, "endpoint": self.endpoint}

    def shared_stream_key(self) -> Hashable:
        """One consumer for all triggers of a group, topic and broker."""
        return ("popmq", self.endpoint, self.topic, self.group)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> "Producer":
        """The consumer of these triggers."""
        return Producer(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """An event for each message."""
        async for payload in shared_stream:
            yield TriggerEvent(payload)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Without a shared stream, as Airflow does not run it for assets: acks a message when the next is asked for."""
        async with popmq.AsyncClient(self.endpoint) as client:
            async for delivery in client.consume(self.topic, self.group, max_in_hand=1):
                async with delivery:
                    yield TriggerEvent(payload_of(delivery))


class Producer(SharedStreamProducer):  # type: ignore[misc]  # of Airflow, which is not installed here
    """Leases messages, and settles each when Airflow has its event."""

    def __init__(self, topic: str, group: str, endpoint: str | None = None) -> None:
        self._topic = topic
        self._group = group
        self._endpoint = endpoint
        self._client: popmq.AsyncClient | None = None
        self._in_hand: dict[str, popmq.Delivery] = {}

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        """Messages, until it is cancelled. Their leases are renewed. Raises TopicNotFound, GroupNotFound."""
        self._client = popmq.AsyncClient(self._endpoint)
        consumer = self._client.consume(self._topic, self._group, max_in_hand=IN_HAND_MAX)
        async for delivery in consumer:
            await delivery.__aenter__()  # renewed from now on, until it is settled
            self._in_hand[delivery.handle] = delivery
            yield payload_of(delivery), delivery

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Settles messages by what became of their events."""
        for delivery, outcome in batch:
            del self._in_hand[delivery.handle]
            if outcome.rejected:
                delivery.reject("a trigger refused the message")
            elif outcome.is_clean:
                delivery.ack()
            else:
                delivery.release(reason="Airflow did not store an event of the message in time")

    def get_advance_lane(self, broker_payload: Any) -> Hashable:
        """Each message is settled alone: none waits for another one."""
        return str(broker_payload.handle)

    async def aclose(self) -> None:
        """What is in hand is visible to others at once, and no attempt counts."""
        for delivery in self._in_hand.values():
            delivery.release(0, uncounted=True, reason="the triggerer stopped")
        if self._client is not None:
            await self._client.close()


def payload_of(delivery: popmq.Delivery) -> dict[str, Any]:
    """A message as JSON has it: `body` a text, or base64 with `is_base64`. Deliveries of one message are the same."""
    try:
        body, is_base64 = delivery.text(), False
    except ValueError:
        body, is_base64 = base64.b64encode(delivery.body).decode(), True
    return {
        "topic": delivery.topic,
        "message_id": delivery.message_id,
        "key": delivery.key,
        "tag": delivery.tag,
        "properties": dict(delivery.properties),
        "stored_ms": delivery.stored_ms,
        "body": body,
        "is_base64": is_base64,
    }
