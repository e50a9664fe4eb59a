"""Handlers that return what they send: it is sent in the commit of the ack."""

import runpy
import threading
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


# ── Results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def kept(broker: Broker, function: Any, *messages: Any) -> tuple[list[str], dict[str, popmq.Result]]:
    """How the messages of a worker ended, and their results."""
    client = broker.client()
    client.groups.create("billing", results_keep="1h")
    ended = worked(broker, function, *messages)
    ids = [row.message_id for row in client.messages.browse("orders", order="oldest").deliveries]
    return ended, client.results(ids, "billing")


def test_the_result_that_a_handler_returns_is_kept(popmq_broker: Broker) -> None:
    def count(text: str) -> popmq.Result:
        return popmq.Result({"length": len(text)})

    ended, results = kept(popmq_broker, count, "abc")
    assert ended == [""]
    assert [one.json() for one in results.values()] == [{"length": 3}]


def test_a_handler_may_return_a_result_and_what_it_sends(popmq_broker: Broker) -> None:
    async def both(text: str) -> list[Any]:
        return [popmq.Send(OUT, text), popmq.Result(text)]

    ended, results = kept(popmq_broker, both, "a")
    assert (ended, texts(popmq_broker), [one.text() for one in results.values()]) == ([""], ["a"], ["a"])


def test_two_results_of_one_message_are_a_failure(popmq_broker: Broker) -> None:
    def twice(text: str) -> list[popmq.Result]:
        return [popmq.Result(text), popmq.Result(text)]

    ended, results = kept(popmq_broker, twice, "a")
    assert (ended, results) == (["TypeError"], {})


def test_a_rejected_message_has_a_failed_result(popmq_broker: Broker) -> None:
    def refuse(text: str) -> None:
        raise popmq.Reject("no stock")

    _, results = kept(popmq_broker, refuse, "a")
    assert [(one.failed, one.reason) for one in results.values()] == [(True, "no stock")]


def test_the_example_of_results_answers_each_task(popmq_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLE.with_name("results.py")))
    client = popmq_broker.client()
    client.topics.create("sums")
    client.groups.create("adder", results_keep="1h")
    caller = threading.Thread(target=example["ask"], args=[client])
    caller.start()
    while caller.is_alive():
        popmq_broker.work(example["worker"])
        caller.join(0.05)
    printed = capsys.readouterr().out
    assert "{'sum': 3}" in printed
    assert "{'sum': 12}" in printed
    assert "there is nothing to add" in printed
