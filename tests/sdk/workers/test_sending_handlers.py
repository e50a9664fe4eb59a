"""Handlers that return what they send: it is sent in the commit of the ack."""

import runpy
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.workers.workers import sent_to

OUT = "invoices"
EXAMPLE = Path(__file__).parents[3] / "examples" / "settle.py"


def worked(broker: Broker, function: Any, *messages: Any) -> list[str]:
    """How the messages of a worker with one handler ended: "" or the error."""
    worker = popmq.Worker()
    worker.on("orders", group="billing")(function)
    sent_to(broker, worker, *messages).topics.create(OUT, queues=1)
    return [type(each.error).__name__ if each.error else "" for each in broker.work(worker)]


def texts(broker: Broker) -> list[str]:
    return sorted(one.text() for one in broker.client().messages.browse(OUT, order="oldest").deliveries)


def double(text: str) -> popmq.Send:
    return popmq.Send(OUT, text, text)


async def one_of_each(text: str) -> list[popmq.Send]:
    return [popmq.Send(OUT, f"{text}1"), popmq.Send(OUT, popmq.Message(f"{text}2", key="k"))]


@pytest.mark.parametrize(("function", "sent"), [(double, ["a", "a"]), (one_of_each, ["a1", "a2"])])
def test_what_a_handler_returns_is_sent(popmq_broker: Broker, function: Any, sent: list[str]) -> None:
    assert worked(popmq_broker, function, "a") == [""]
    assert texts(popmq_broker) == sent
    assert popmq_broker.client().broker.stats("orders", "billing").groups[0].acked == 1


def test_a_message_that_cannot_be_sent_is_a_failure_of_its_handler(popmq_broker: Broker) -> None:
    def half(text: str) -> popmq.Send:
        return popmq.Send(OUT, popmq.Message(text, transaction=True))

    assert worked(popmq_broker, half, "a") == ["InvalidField"]
    assert texts(popmq_broker) == []


def test_a_list_of_sends_and_others_is_a_failure(popmq_broker: Broker) -> None:
    def mixed(text: str) -> list[Any]:
        return [popmq.Send(OUT, text), text]

    assert worked(popmq_broker, mixed, "a") == ["TypeError"]
    assert texts(popmq_broker) == []


def test_other_lists_mean_nothing(popmq_broker: Broker) -> None:
    def many(text: str) -> list[str]:
        return [text]

    assert worked(popmq_broker, many, "a") == [""]


def test_one_worker_handles_what_another_handler_sends(popmq_broker: Broker) -> None:
    worker, seen = popmq.Worker(), list[str]()

    @worker.on("orders", group="billing")
    def bill(text: str) -> popmq.Send:
        return popmq.Send("paid", text + "!")

    @worker.on("paid", group="shipping")
    def ship(text: str) -> None:
        seen.append(text)

    sent_to(popmq_broker, worker, "a", "b")
    popmq_broker.work(worker)
    assert sorted(seen) == ["a!", "b!"]


def test_the_example_has_each_order_once_in_each_topic(popmq_broker: Broker) -> None:
    example = runpy.run_path(str(EXAMPLE))
    client = popmq_broker.client()
    example["place_orders"](client, 20)
    popmq_broker.declare(example["worker"])
    popmq_broker.work(example["worker"])
    for topic in ("orders", "invoices", "archived"):
        rows = client.messages.browse(topic, order="oldest", max_messages=100).deliveries
        assert sorted(row.json()["id"] for row in rows) == [*range(20)]
    assert rows[0].json()["total"] == 10
