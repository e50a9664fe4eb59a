"""The trigger in Airflow's own manager of shared streams: a message is acked when its event is stored."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import popmq
from popmq.testing import Broker

pytest.importorskip("airflow.triggers.shared_stream", reason="Airflow 3.3 is not here: make test-frameworks")

pytestmark = pytest.mark.slow

TOPIC, GROUP = "orders", "airflow"


@pytest.fixture
def client(popmq_broker: Broker) -> popmq.Client:
    client = popmq_broker.client()
    client.topics.create(TOPIC, queues=1)
    client.groups.create(GROUP)
    return client


@pytest.fixture
def state(client: popmq.Client) -> Callable[[str], str]:
    """The state of a message for the group."""
    return lambda id: client.messages.why(id, TOPIC, GROUP)[0].groups[0].state


class Triggerer:
    """What Airflow's triggerer does with one trigger: events, and what their database has."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
        from airflow.triggers.shared_stream import SharedStreamManager

        given = MessageQueueTrigger(scheme="popmq", topic=TOPIC, group=GROUP, endpoint=broker.endpoint)
        path, kwargs = given.serialize()
        assert path == "popmq_integrations.airflow.triggers.PopMQTrigger"
        from popmq_integrations.airflow.triggers import PopMQTrigger

        self.trigger = PopMQTrigger(**kwargs)
        self.manager = SharedStreamManager(**options)
        self.key = self.trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=1, trigger=self.trigger, key=self.key)
        self._events = self.trigger.filter_shared_stream(stream)
        self._next: asyncio.Task[Any] | None = None

    async def event(self) -> tuple[dict[str, Any], int]:
        """The next event and its number; the filter goes on to wait for another one, as in Airflow."""
        waiting = self._next or asyncio.ensure_future(anext(self._events))
        event = await waiting
        seq = self.manager.bind_pending_event(trigger_id=1, key=self.key)
        self._next = asyncio.ensure_future(anext(self._events))
        await asyncio.sleep(0)
        return event.payload, seq

    async def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await self.manager.stop_all()


@pytest.fixture
def triggerer(popmq_broker: Broker) -> Callable[..., Any]:
    @asynccontextmanager
    async def run(**options: Any) -> AsyncIterator[Triggerer]:
        made = Triggerer(popmq_broker, **options)
        try:
            yield made
        finally:
            await made.stop()

    return run


async def until(state: Callable[[str], str], id: str, wanted: str) -> None:
    async with asyncio.timeout(30):
        while await asyncio.to_thread(state, id) != wanted:
            pass


async def test_a_message_is_leased_until_airflow_has_its_event_and_then_acked(
    triggerer: Callable[..., Any], client: popmq.Client, state: Callable[[str], str]
) -> None:
    message = popmq.Message.json({"order": 7}, key="7", tag="new", properties={"a": "b"})
    sent = await asyncio.to_thread(client.send, TOPIC, message)
    async with triggerer() as running:
        payload, number = await running.event()
        assert (payload["message_id"], payload["body"], payload["key"]) == (sent.message_id, '{"order":7}', "7")
        assert (payload["properties"], payload["tag"], payload["is_base64"]) == ({"a": "b"}, "new", False)
        assert await asyncio.to_thread(state, sent.message_id) == "leased"
        running.manager.confirm_persisted([number])
        await until(state, sent.message_id, "acked")


async def test_a_triggerer_that_stops_before_leaves_the_message_to_the_next_one(
    triggerer: Callable[..., Any], client: popmq.Client, state: Callable[[str], str]
) -> None:
    sent = await asyncio.to_thread(client.send, TOPIC, b"\xff")
    async with triggerer() as running:
        first, _ = await running.event()
    async with triggerer() as running:
        again, number = await running.event()
        running.manager.confirm_persisted([number])
        await until(state, sent.message_id, "acked")
    assert (again, again["body"], again["is_base64"]) == (first, "/w==", True)


async def test_messages_do_not_wait_for_one_whose_event_is_not_stored(
    triggerer: Callable[..., Any], client: popmq.Client, state: Callable[[str], str]
) -> None:
    one, two = await asyncio.to_thread(client.send, TOPIC, ["one", "two"])
    async with triggerer() as running:
        await running.event()
        _, number = await running.event()
        running.manager.confirm_persisted([number])
        await until(state, two.message_id, "acked")
        assert await asyncio.to_thread(state, one.message_id) == "leased"


def test_the_provider_is_found_by_scheme_and_by_url() -> None:
    from airflow.providers.common.messaging.triggers import msg_queue

    (provider,) = [each for each in msg_queue.MESSAGE_QUEUE_PROVIDERS if each.scheme_matches("popmq")]
    assert (provider.queue_matches("popmq://a:1/orders"), provider.queue_matches("kafka://a:1/orders")) == (True, False)
    kwargs = provider.trigger_kwargs("popmq://a:1/orders?group=g")
    assert provider.trigger_class()(**kwargs).serialize()[1] == {"topic": "orders", "group": "g", "endpoint": "a:1"}
    with pytest.raises(ValueError, match="has no topic"):
        provider.trigger_kwargs("popmq://a:1")
    with pytest.raises(ValueError, match="group is ''"):
        provider.trigger_class()("orders", "")
