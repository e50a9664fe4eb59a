"""OpenTelemetry: spans by the messaging conventions, one trace from the sender to the handler, metrics; or nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
SHARED = {"messaging.system": "popmq", "server.address": "127.0.0.1"}


class Seen(NamedTuple):
    """What the program of tests/sdk/calling/traced.py exported."""

    spans: list[dict[str, Any]]
    metrics: list[dict[str, Any]]

    def named(self, name: str, **attributes: Any) -> list[dict[str, Any]]:
        """Spans of a name with these attributes, dots written as two underscores."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [span for span in self.spans if span["name"] == name and wanted.items() <= span["attributes"].items()]

    def total(self, metric: str, **attributes: Any) -> float:
        """The sum of a metric's points with these attributes."""
        wanted = {f"messaging.{key.replace('__', '.')}": value for key, value in attributes.items()}
        points = [each for each in self.metrics if each["name"] == metric]
        return sum(float(each["value"]) for each in points if wanted.items() <= each["attributes"].items())


@pytest.fixture(scope="module")
def seen() -> Seen:
    pytest.importorskip("opentelemetry.sdk")
    done = subprocess.run(
        [sys.executable, "-m", "tests.sdk.calling.traced"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return Seen(**json.loads(done.stdout))


@pytest.mark.slow
def test_a_send_is_a_producer_span_below_the_current_one(seen: Seen) -> None:
    (checkout,) = seen.named("checkout")
    (one, *_) = seen.named("send orders")
    (two,) = seen.named("send mails")
    assert {one["parent"], two["parent"]} == {checkout["id"]}
    assert (one["kind"], one["status"]) == ("PRODUCER", "UNSET")
    expected = {**SHARED, "messaging.operation.name": "send", "messaging.operation.type": "send"}
    expected |= {"messaging.destination.name": "orders", "messaging.client.id": "shop-1"}
    assert expected.items() <= one["attributes"].items()
    assert one["attributes"]["messaging.message.id"]
    assert two["attributes"]["messaging.batch.message_count"] == 2


@pytest.mark.slow
def test_an_encoded_message_carries_the_trace_of_its_sender(seen: Seen) -> None:
    ((sent,), (process,)) = seen.named("send parcels"), seen.named("process parcels")
    assert (process["trace"], process["parent"]) == (sent["trace"], sent["id"])


@pytest.mark.slow
def test_a_handler_is_a_consumer_span_in_the_trace_of_the_sender(seen: Seen) -> None:
    (one, *_) = seen.named("send orders")
    process, *_ = seen.named("process orders")
    (work,) = seen.named("work on one")  # in the thread of the handler
    assert (process["kind"], process["parent"], process["trace"]) == ("CONSUMER", one["id"], one["trace"])
    assert work["parent"] == process["id"]
    expected = {"messaging.operation.type": "process", "messaging.consumer.group.name": "billing"}
    assert (expected | {"popmq.message.attempt": 1}).items() <= process["attributes"].items()


def test_each_message_of_a_batch_continues_the_trace(seen: Seen) -> None:
    (two,) = seen.named("send mails")
    assert [each["parent"] for each in seen.named("process mails")] == [two["id"]] * 2


def test_a_trace_context_that_a_message_brings_is_kept(seen: Seen) -> None:
    (work,) = seen.named("work on bad")
    assert work["trace"] == "a" * 32
    assert "b" * 16 in [span["parent"] for span in seen.named("process orders")]


def test_a_pop_that_brought_messages_is_a_client_span_with_links_to_their_senders(seen: Seen) -> None:
    (desk,) = seen.named("desk")
    (receive,) = seen.named("receive orders", messaging__consumer__group__name="desk")
    assert (receive["kind"], receive["parent"]) == ("CLIENT", desk["id"])
    assert receive["attributes"]["messaging.batch.message_count"] == 3
    senders = [span["id"] for span in seen.named("send orders") if span["attributes"]["messaging.message.body.size"]]
    assert len(receive["links"]) == 3
    assert set(receive["links"]) <= {*senders, "b" * 16}
    assert len(seen.named("receive mails", messaging__consumer__group__name="desk")) == 1  # the empty one is none


def test_settling_is_a_span_of_its_own_below_what_it_settles(seen: Seen) -> None:
    (desk,) = seen.named("desk")
    (ack,) = seen.named("ack", messaging__consumer__group__name="desk")
    assert (ack["parent"], ack["attributes"]["messaging.operation.type"]) == (desk["id"], "settle")
    (background,) = seen.named("ack", messaging__consumer__group__name="billing")
    (release,) = seen.named("release")
    assert [background["parent"], release["parent"]] == [span["id"] for span in seen.named("process orders")]
    settled = [
        span["id"] in (ack["parent"], *ack["links"])
        for span in seen.named("process mails")
        for ack in seen.named("ack", messaging__consumer__group__name="mailer")
    ]
    assert settled.count(True) == 2


def test_errors_are_in_the_spans_of_the_handler_and_of_the_send(seen: Seen) -> None:
    _, failed = seen.named("process orders")
    (refused,) = seen.named("send nowhere")
    assert (failed["status"], failed["events"], refused["status"]) == ("ERROR", ["exception"], "ERROR")
    assert failed["attributes"]["error.type"] == "ValueError"
    assert refused["attributes"]["error.type"] == "TopicNotFound"


def test_the_metrics_count_messages_and_time_operations(seen: Seen) -> None:
    assert seen.total("messaging.client.sent.messages", destination__name="orders") == 3
    assert seen.total("messaging.client.sent.messages", destination__name="mails") == 2
    assert seen.total("messaging.client.consumed.messages", consumer__group__name="billing") == 2
    assert seen.total("messaging.process.duration", consumer__group__name="mailer") == 2
    assert seen.total("messaging.client.operation.duration", operation__name="send") == 6
    assert {each["unit"] for each in seen.metrics} == {"s", "{message}"}
    assert not [each for each in seen.metrics if "messaging.message.id" in each["attributes"]]


@pytest.mark.slow
def test_telemetry_without_a_provider_does_and_imports_nothing() -> None:
    code = """
import sys, popmq.testing
if len(sys.argv) > 1: import opentelemetry.trace, opentelemetry.metrics
before = set(sys.modules)
with popmq.testing.broker() as broker:
    client = broker.client()
    client.topics.create("orders"), client.groups.create("billing")
    client.send("orders", "one")
    for delivery in client.consume("orders", "billing", until_idle=0.0):
        with delivery: print(delivery.trace_context)
print(sorted(name for name in set(sys.modules) - before if name.startswith("opentelemetry")))
"""
    for more in ([], ["with the API and no provider"]):
        if more:
            pytest.importorskip("opentelemetry.trace")
        done = subprocess.run([sys.executable, "-c", code, *more], capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("None\n[]\n", "")


HANDLERS_OUT_OF_ORDER = """
import asyncio, popmq.testing
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
current = lambda: getattr(trace.get_current_span(), "name", "none")

async def main(client):
    async def pipeline():
        async for delivery in client.consume("mails", "mailer", until_idle=0.0):
            async with delivery:
                yield delivery
    deliveries = pipeline()
    await anext(deliveries)
    async def end():
        await deliveries.aclose()
        print("in the task that ended it:", current())
    await asyncio.create_task(end())
    await client.send("mails", "later")
    print("in its own, after a call:", current())
    await client.close()

with popmq.testing.broker() as broker:
    client = broker.client()
    client.topics.create("orders"), client.topics.create("mails"), client.groups.create("billing")
    client.groups.create("mailer")
    client.send("orders", ["one", "two"]), client.send("mails", "three")
    one, two = client.pop("orders", "billing")
    one.__enter__(), two.__enter__(), one.__exit__(None, None, None)
    print("while two runs:", current())
    two.__exit__(None, None, None)
    print("after both:", current())
    asyncio.run(main(broker.async_client()))
"""


def test_a_handler_that_ends_out_of_order_or_elsewhere_leaves_no_span_current() -> None:
    pytest.importorskip("opentelemetry.sdk")
    done = subprocess.run([sys.executable, "-c", HANDLERS_OUT_OF_ORDER], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "while two runs: process orders",
        "after both: none",
        "in the task that ended it: none",
        "in its own, after a call: none",
    ]
    assert "Failed to detach" not in done.stderr
