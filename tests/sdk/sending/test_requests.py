"""Requests that wait for a reply: by both clients, by workers, over restarts, and when nobody answers."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, Connect

pytestmark = pytest.mark.capability("lite")  # replies go to a lite topic of each client

ASK = "questions"


@pytest.fixture
async def client(connect: Connect) -> Any:
    """A client with a topic and a group."""
    client = connect()
    await client.topics.create(ASK)
    await client.groups.create(GROUP)
    return client


async def next_of(client: Any) -> popmq.Delivery:
    (delivery,) = await client.pop(ASK, GROUP, max_messages=1, wait=20.0)
    assert isinstance(delivery, popmq.Delivery)
    return delivery


async def test_a_request_gets_only_its_own_reply(client: Any, connect: Connect) -> None:
    other = connect()
    asked = [asyncio.ensure_future(each.request(ASK, f"ask {n}")) for n, each in enumerate((client, other, client))]
    for _ in asked:
        delivery = await next_of(client)
        await client.reply(delivery, delivery.text().replace("ask", "answer"))
        await client.ack(delivery)
    assert [(await reply).text() for reply in asked] == ["answer 0", "answer 1", "answer 2"]
    replies = await client.topics.get("popmq-replies")
    assert (replies.type, replies.lite.ttl) == ("LITE", 3600.0), "idle ends of clients are removed"


async def test_the_properties_are_those_of_the_page(client: Any) -> None:
    asked = asyncio.ensure_future(client.request(ASK, popmq.Message("?", properties={"a": "b"})))
    delivery = await next_of(client)
    topic, _, lite_topic = delivery.properties["popmq_reply_to"].partition("/")
    correlation_id = delivery.properties["popmq_correlation_id"]
    assert (topic, delivery.properties["a"]) == ("popmq-replies", "b")
    by_hand = popmq.Message("!", lite_topic=lite_topic, properties={"popmq_correlation_id": correlation_id})
    await client.send(topic, by_hand)
    assert (await asked).body == b"!", "any program can reply"


async def test_a_request_ends_when_its_client_is_closed(client: Any, connect: Connect) -> None:
    asking = connect()
    asked = asyncio.ensure_future(asking.request(ASK, "?", timeout=10.0))
    await next_of(client)
    await asking.close()
    with pytest.raises(errors.ClientClosed, match="may still be handled"):
        await asked


async def test_a_request_without_a_reply_times_out_and_a_late_reply_is_dropped(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(errors.DeadlineExceeded, match=r"no reply to the request to 'questions' within 0.01 s"):
        await client.request(ASK, "late", timeout=0.01)
    await client.reply(await next_of(client), "too late")
    with caplog.at_level(logging.INFO, "popmq.client"):
        asked = asyncio.ensure_future(client.request(ASK, "in time"))
        await client.reply(await next_of(client), "now")
        assert (await asked).text() == "now"
    assert "a reply came after its request had ended" in caplog.text


async def test_replies_to_a_client_that_has_gone_are_dropped_while_others_ask(
    client: Any, connect: Connect, advance: Callable[[float], Awaitable[None]]
) -> None:
    gone = connect()
    with pytest.raises(errors.DeadlineExceeded):
        await gone.request(ASK, "late", timeout=0.01)
    await gone.close()
    late = await next_of(client)
    await client.reply(late, "too late")
    await client.ack(late)
    for _ in range(6):
        await advance(3600)
        asked = asyncio.ensure_future(client.request(ASK, "in time"))
        delivery = await next_of(client)
        await client.reply(delivery, "now")
        await client.ack(delivery)
        await asked
    stats = await client.broker.stats("popmq-replies")
    assert stats.groups[0].ready == 0
    assert stats.topics[0].lite_topics == 1, "that of the client which still asks"


@pytest.mark.parametrize("timeout", [0, -1, "0s"])
async def test_a_request_without_time_is_refused_and_not_stored(client: Any, timeout: Any) -> None:
    with pytest.raises(errors.InvalidField, match=r"timeout is .*: a call needs some time .*leave it out for 30 s"):
        await client.request(ASK, "?", timeout=timeout)
    assert (await client.broker.stats(ASK)).topics[0].messages == 0


async def test_a_request_that_became_a_dead_letter_fails_at_once(client: Any) -> None:
    asked = asyncio.ensure_future(client.request(ASK, "?", timeout=600.0))
    await client.reject(await next_of(client), "no such article")
    with pytest.raises(errors.RequestFailed, match="dead letter of group billing after 1 attempt: no such article"):
        await asked


async def test_a_request_without_attempts_left_fails_at_once(client: Any) -> None:
    await client.groups.update(GROUP, max_attempts=1)
    asked = asyncio.ensure_future(client.request(ASK, "?", timeout=600.0))
    await client.release(await next_of(client), reason="the catalog does not answer")
    with pytest.raises(errors.RequestFailed, match="the catalog does not answer"):
        await asked


async def test_a_message_that_asked_for_no_reply_cannot_be_answered(client: Any) -> None:
    await client.send(ASK, "just a message")
    with pytest.raises(errors.InvalidField, match="asks for no reply"):
        await client.reply(await next_of(client), "?")
    with pytest.raises(RuntimeError, match="no client"):
        popmq.Delivery(b"", properties={"popmq_reply_to": "a/b"}).reply("?")


async def test_a_delivery_replies_by_itself(client: Any, kind: str) -> None:
    asked = asyncio.ensure_future(client.request(ASK, "?"))
    delivery = await next_of(client)
    receipt = await delivery.reply("!") if kind == "async" else await asyncio.to_thread(delivery.reply, "!")
    assert isinstance(receipt, popmq.SendReceipt)
    assert (await asked).text() == "!"


async def test_requests_are_answered_again_after_the_topic_of_replies_was_deleted(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for deleted in (False, True):
        if deleted:
            await client.topics.delete("popmq-replies")
        asked = asyncio.ensure_future(client.request(ASK, "?", timeout=60.0))
        delivery = await next_of(client)
        while True:
            with contextlib.suppress(errors.TopicNotFound):
                await client.reply(delivery, "!")
                break
        assert (await asked).text() == "!"
        await client.ack(delivery)
    assert "Traceback" not in caplog.text


@pytest.mark.slow
async def test_a_request_lives_through_a_restart_of_the_broker(client: Any, popmq_broker: Broker) -> None:
    asked = asyncio.ensure_future(client.request(ASK, "?", timeout=60))
    delivery = await next_of(client)
    await asyncio.to_thread(popmq_broker.restart)
    await client.reply(delivery, "!")
    await asyncio.to_thread(popmq_broker.restart)
    assert (await asked).text() == "!"


@dataclass
class Sum:
    total: int


def served(broker: Broker, worker: popmq.Worker, *asked: Any) -> list[Any]:
    """What requests to a running worker ended with."""
    client = broker.client()
    for topic in {handler.topic for handler in worker.handlers}:
        client.topics.create(topic)
    client.groups.create(GROUP)
    thread = threading.Thread(target=lambda: asyncio.run(_serve(broker, worker)))
    thread.start()
    answers = list[Any]()
    try:
        for each in asked:
            try:
                answers.append(client.request(ASK, each).json())
            except popmq.PopMQError as error:
                answers.append(error)
    finally:
        worker.stop()
        thread.join()
        client.close()
    return answers


async def _serve(broker: Broker, worker: popmq.Worker) -> None:
    await worker.serve(popmq.AsyncClient(broker.endpoint))


@pytest.mark.slow
def test_the_return_value_of_a_handler_is_the_reply(popmq_broker: Broker) -> None:
    worker = popmq.Worker()

    @worker.on(ASK, group=GROUP)
    def add(numbers: list[int]) -> Sum:
        if not numbers:
            raise popmq.Reject("nothing to add")
        return Sum(sum(numbers))

    good, empty, odd = served(popmq_broker, worker, "[1, 2]", "[]", '"two"')
    assert good == {"total": 3}
    assert isinstance(empty, errors.RequestFailed)
    assert "nothing to add" in str(empty)
    assert isinstance(odd, errors.RequestFailed)
    assert "list" in str(odd)
    assert popmq_broker.client().broker.stats(ASK, GROUP).groups[0].dead == 2


def test_a_return_value_that_cannot_be_a_reply_fails_the_request_after_one_call(popmq_broker: Broker) -> None:
    worker = popmq.Worker()
    values = {"object": object(), "nan": float("nan"), "huge": b"x" * (5 << 20), "empty": ""}
    called = list[str]()

    @worker.on(ASK, group=GROUP)
    def answer(delivery: popmq.Delivery) -> Any:
        called.append(delivery.text())
        return values[delivery.text()]

    for failed in served(popmq_broker, worker, *values):
        assert isinstance(failed, errors.RequestFailed)
        assert "what the handler returned cannot be the reply" in str(failed)
    assert called == list(values)
    assert popmq_broker.client().broker.stats(ASK, GROUP).groups[0].dead == len(values)
