"""A program with OpenTelemetry that prints its spans and metrics: a provider is set once in a process, for good."""

import asyncio
import contextlib
import json
import sys
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import popmq
import popmq.testing


def story(client: popmq.Client, broker: popmq.testing.Broker) -> None:
    """Sends, handles, fails, settles: what the test asks about has a name of its own."""
    tracer = trace.get_tracer("shop")
    worker = popmq.Worker()

    @worker.on("orders", group="billing", concurrency=1)
    def bill(delivery: popmq.Delivery) -> None:
        with tracer.start_as_current_span(f"work on {delivery.text()}"):
            if delivery.text() == "bad":
                raise ValueError("no such customer")

    @worker.on("mails", group="mailer")
    async def mail(text: str) -> None:
        await asyncio.sleep(0)

    @worker.on("parcels", group="packer")
    def pack(text: str) -> None: ...

    broker.declare(worker)
    with tracer.start_as_current_span("checkout"):
        client.send("orders", "one")
        client.send("mails", ["two", "three"])
        client.send("parcels", popmq.EncodedMessages.of_columns([b"five"]))
    client.send("orders", [popmq.Message("bad", trace_context=popmq.TraceContext(f"00-{'a' * 32}-{'b' * 16}-01"))])
    broker.work(worker)
    client.send("orders", "four")
    client.groups.create("desk")
    with tracer.start_as_current_span("desk"):
        client.ack(client.pop("orders", "desk"))
    with contextlib.suppress(popmq.errors.TopicNotFound):
        client.send("nowhere", "x")
    client.pop("mails", "desk", wait=0.0)
    client.pop("mails", "desk", wait=0.0)  # empty


def plain(span: ReadableSpan) -> dict[str, Any]:
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{context.trace_id:032x}",
        "id": f"{context.span_id:016x}",
        "parent": f"{parent.span_id:016x}" if parent else "",
        "links": sorted(f"{link.context.span_id:016x}" for link in span.links),
        "status": span.status.status_code.name,
        "attributes": dict(span.attributes or {}),
        "events": [event.name for event in span.events],
    }


def measured(reader: InMemoryMetricReader) -> list[dict[str, Any]]:
    data = reader.get_metrics_data()
    assert data is not None
    return [
        {
            "name": metric.name,
            "unit": metric.unit,
            "attributes": dict(point.attributes or {}),
            "value": getattr(point, "value", None) or getattr(point, "count", 0),
        }
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ]


def main() -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    with popmq.testing.broker() as broker:
        with broker.client(client_id="shop-1") as client:
            story(client, broker)
        spans = [plain(span) for span in exporter.get_finished_spans()]
        json.dump({"spans": spans, "metrics": measured(reader)}, sys.stdout)


if __name__ == "__main__":
    main()
