"""Spans and metrics by OpenTelemetry's messaging conventions, for programs that have set OpenTelemetry up.

    span              kind      parent                links
    send TOPIC        PRODUCER  the current span                               its context goes with the messages
    receive TOPIC     CLIENT    the current span      the messages' senders
    process TOPIC     CONSUMER  the message's sender  the current span         the current one in `with delivery:`
    ack, release, …   CLIENT    the current span
      in background   CLIENT    that of one message   those of several: they are settled by one request

OpenTelemetry is never imported here: a program that has a provider has imported it. Without one, all that is done is a
look into sys.modules. A span of `receive` is made when messages came, so that idle long polls make none.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from popmq.errors import PopMQError
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq.message import Delivery

SCOPE = "popmq"
#: Upper ends of the durations in seconds, as the conventions want them.
BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

_TRACE, _METRICS = "opentelemetry.trace", "opentelemetry.metrics"

Attributes = dict[str, Any]


class _Library:
    """The parts of OpenTelemetry's API that are used, and the instruments."""

    def __init__(self) -> None:
        self.trace = importlib.import_module(_TRACE)
        self.context = importlib.import_module("opentelemetry.context")
        metrics = importlib.import_module(_METRICS)
        w3c = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        self.propagator = w3c.TraceContextTextMapPropagator()
        self.tracer = self.trace.get_tracer(SCOPE)
        meter = metrics.get_meter(SCOPE)

        def histogram(name: str) -> Any:
            return meter.create_histogram(name, unit="s", explicit_bucket_boundaries_advisory=BOUNDARIES)

        self.operations = histogram("messaging.client.operation.duration")
        self.processing = histogram("messaging.process.duration")
        self.sent = meter.create_counter("messaging.client.sent.messages", unit="{message}")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", unit="{message}")


_library: _Library | None = None


def library() -> _Library | None:
    """OpenTelemetry, once the program has set a provider of traces or metrics."""
    global _library
    if _library is not None:
        leave_ended()
        return _library
    if _TRACE not in sys.modules and _METRICS not in sys.modules:
        return None
    if _is_set(_TRACE, "get_tracer_provider") or _is_set(_METRICS, "get_meter_provider"):
        _library = _Library()
    return _library


def _is_set(module: str, getter: str) -> bool:
    """Whether a provider was set: those that the API itself brings do nothing."""
    api = sys.modules.get(module)
    return api is not None and not type(getattr(api, getter)()).__module__.startswith(module)


class Received:
    """What a pop brought."""

    deliveries: Sequence[Delivery] = ()


class Telemetry:
    """The spans and metrics of one client."""

    def __init__(self, endpoint: str, client_id: str) -> None:
        host, _, port = endpoint.rpartition(":")
        self._server: Attributes = {"messaging.system": "popmq", "server.address": host.strip("[]") or endpoint}
        if port.isdigit():
            self._server["server.port"] = int(port)
        self._client = {"messaging.client.id": client_id}

    def sending(self, topic: str, rows: Any) -> AbstractContextManager[Any]:
        """Around a send; the rows as they are sent: each that had no trace context has that of the span."""
        found = library()
        if found is None:
            return nullcontext(rows)
        return self._sending(found, topic, rows.rows() if hasattr(rows, "rows") else rows)  # encoded ones take no more

    @contextmanager
    def _sending(self, found: _Library, topic: str, rows: Sequence[pb.Message]) -> Iterator[Sequence[pb.Message]]:
        shared = self._shared("send", "send", topic)
        attributes = {**shared, **self._client, **_of_rows(rows)}
        span = found.tracer.start_span(f"send {topic}", kind=found.trace.SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        found.propagator.inject(carrier, found.trace.set_span_in_context(span))
        for row in rows if carrier else ():
            if not row.HasField("trace_context"):
                row.trace_context.traceparent = carrier["traceparent"]
                row.trace_context.tracestate = carrier.get("tracestate", "")
        try:
            with _timed(found, span, shared):
                yield rows
        finally:
            found.sent.add(len(rows), shared)

    @contextmanager
    def receiving(self, topic: str, group: str) -> Iterator[Received]:
        """Around a pop, which sets `deliveries`."""
        received = Received()
        found = library()
        if found is None:
            yield received
            return
        began, began_ns = time.perf_counter(), time.time_ns()
        error = None
        try:
            yield received
        except PopMQError as raised:
            error = raised
            raise
        finally:
            if received.deliveries or error is not None:
                self._received(found, (topic, group), received.deliveries, error, began_ns, began)

    def _received(
        self,
        found: _Library,
        where: tuple[str, str],
        deliveries: Sequence[Delivery],
        error: BaseException | None,
        began_ns: int,
        began: float,
    ) -> None:
        shared = self._shared("receive", "receive", *where)
        attributes = {**shared, **self._client, "messaging.batch.message_count": len(deliveries)}
        senders = [self._sender(found, each) for each in deliveries if each.trace_context is not None]
        span = found.tracer.start_span(
            f"receive {where[0]}",
            kind=found.trace.SpanKind.CLIENT,
            attributes=attributes,
            links=_links(found, (found.trace.get_current_span(each) for each in senders)),
            start_time=began_ns,
        )
        shared |= _end(found, span, error)
        found.operations.record(time.perf_counter() - began, shared)
        found.consumed.add(len(deliveries), shared)

    def processing(self, delivery: Delivery) -> Processing | None:
        """Begins the span of a handler, which is the current one until its `end`. None: there is no provider."""
        found = library()
        if found is None:
            return None
        shared = self._shared("process", "process", delivery.topic, delivery.group)
        attributes = {**shared, **self._client, **_of_delivery(delivery)}
        current = found.trace.get_current_span()
        context = self._sender(found, delivery) if delivery.trace_context else None
        span = found.tracer.start_span(
            f"process {delivery.topic}",
            context=context,
            kind=found.trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(found, [current] if context is not None else []),
        )
        return Processing(found, span, shared)

    def current(self) -> Any:
        """The span that an outcome belongs to; None: there is no provider."""
        found = library()
        return None if found is None else found.trace.get_current_span()

    @contextmanager
    def settling(self, name: str, group: str, messages: int, spans: Sequence[Any] | None = None) -> Iterator[None]:
        """Around a request that settles deliveries. `spans`: in the background, those that the handlers ended in.

        The current span of a background task is that of the code which started it: it is not the parent of these.
        """
        found = library()
        if found is None:
            yield
            return
        shared = self._shared(name, "settle", "", group)
        links, context = [], None
        if spans is not None:
            links = _links(found, spans)
            context = found.context.Context()
            if len(links) == 1:
                (span,) = [each for each in spans if each is not None and each.get_span_context().is_valid]
                links, context = [], found.trace.set_span_in_context(span, context)
        span = found.tracer.start_span(
            name,
            context=context,
            kind=found.trace.SpanKind.CLIENT,
            attributes={**shared, **self._client, "messaging.batch.message_count": messages},
            links=links,
        )
        with _timed(found, span, shared):
            yield

    def _shared(self, name: str, kind: str, topic: str, group: str = "") -> Attributes:
        """Attributes of spans and metrics alike: few values each."""
        attributes = {**self._server, "messaging.operation.name": name, "messaging.operation.type": kind}
        if topic:
            attributes["messaging.destination.name"] = topic
        if group:
            attributes["messaging.consumer.group.name"] = group
        return attributes

    def _sender(self, found: _Library, delivery: Delivery) -> Any:
        """The context that came with a message, over the current one."""
        trace = delivery.trace_context
        assert trace is not None
        carrier = {"traceparent": trace.traceparent, "tracestate": trace.tracestate}
        return found.propagator.extract(carrier, found.context.get_current())


class Processing:
    """The span of a handler that runs.

    Handlers may end in another order than they began, and in another task, of whose context that of this one is a copy.
    So a handler that ends takes no token back: the context of before is made the current one again, once all handlers
    that began in it have ended.
    """

    __slots__ = ("_attributes", "_before", "_began", "_ended", "_library", "_outer", "_span")

    def __init__(self, found: _Library, span: Any, attributes: Attributes) -> None:
        self._library = found
        self._span = span
        self._attributes = attributes
        self._began = time.perf_counter()
        self._ended = False
        self._before, self._outer = found.context.get_current(), _running.get()
        found.context.attach(found.trace.set_span_in_context(span))
        _running.set(self)

    def end(self, error: BaseException | None) -> None:
        """The handler ended."""
        self._ended = True
        leave_ended()
        attributes = self._attributes | _end(self._library, self._span, error)
        self._library.processing.record(time.perf_counter() - self._began, attributes)


#: The handler whose span is the current one, or that of which it was before it ended elsewhere.
_running: ContextVar[Processing | None] = ContextVar("popmq-processing", default=None)


def leave_ended() -> None:
    """Makes the context current again that was so before handlers that have ended, perhaps in another task."""
    while (handler := _running.get()) is not None and handler._ended:
        found = handler._library
        if found.trace.get_current_span() is not handler._span:
            return  # the program has a span of its own open
        found.context.attach(handler._before)
        _running.set(handler._outer)


def _links(found: _Library, spans: Iterable[Any]) -> list[Any]:
    contexts = [span.get_span_context() for span in spans if span is not None]
    return [found.trace.Link(context) for context in contexts if context.is_valid]


@contextmanager
def _timed(found: _Library, span: Any, attributes: Attributes) -> Iterator[None]:
    """Around an operation: ends its span, records how long it took, and adds its error to the attributes."""
    began, error = time.perf_counter(), None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        attributes |= _end(found, span, error)
        found.operations.record(time.perf_counter() - began, attributes)


def _end(found: _Library, span: Any, error: BaseException | None) -> Attributes:
    """Ends a span. Returns what its metrics say of the error."""
    failed: Attributes = {}
    if error is not None:
        failed["error.type"] = type(error).__qualname__
        span.record_exception(error)
        span.set_attributes(failed)
        span.set_status(found.trace.Status(found.trace.StatusCode.ERROR, str(error)))
    span.end()
    return failed


def _of_rows(rows: Sequence[pb.Message]) -> Attributes:
    if len(rows) == 1:
        return {"messaging.message.id": rows[0].message_id, "messaging.message.body.size": len(rows[0].body)}
    return {"messaging.batch.message_count": len(rows)}


def _of_delivery(delivery: Delivery) -> Attributes:
    return {
        "messaging.message.id": delivery.message_id,
        "messaging.message.body.size": len(delivery.body),
        "messaging.destination.partition.id": str(delivery.queue),
        "popmq.message.attempt": delivery.attempt,
    }
