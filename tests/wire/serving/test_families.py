"""Counters and histograms of our own are shown as prometheus-client shows its own."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics import disable_created_metrics, enable_created_metrics

from popmq_server.monitoring.families import CounterFamily, HistogramFamily

BOUNDS = (0.5, 1, 2.5)


@pytest.fixture(autouse=True)
def without_created() -> Iterator[None]:
    """The library then leaves out when each child was made, which ours do not keep."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client
    yield
    enable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus-client


def test_families_are_shown_as_the_librarys_counters_and_histograms_are() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    calls = Counter("calls", "Calls", ("method", "code"), registry=theirs)
    total = Counter("total_bytes", "Bytes", registry=theirs)
    seconds = Histogram("seconds", "Time", ("method",), buckets=BOUNDS, registry=theirs)
    sizes = Histogram("sizes", "Sizes", buckets=BOUNDS, registry=theirs)
    our_calls = CounterFamily("calls", "Calls", ("method", "code"), ours)
    our_total = CounterFamily("total_bytes", "Bytes", (), ours)
    our_seconds = HistogramFamily("seconds", "Time", ("method",), BOUNDS, ours)
    our_sizes = HistogramFamily("sizes", "Sizes", (), BOUNDS, ours)
    assert generate_latest(ours) == generate_latest(theirs)
    for labels in (("Send", "OK"), ("Send", "BUSY"), ("Send", "OK")):
        calls.labels(*labels).inc()
        our_calls.labels(*labels).inc()
    for value in (0.1, 0.5, 0.7, 2.5, 9.0):
        seconds.labels("Send").observe(value)
        our_seconds.labels("Send").observe(value)
        sizes.observe(value)
        our_sizes.observe(value)
        total.inc(value)
        our_total.inc(value)
    assert generate_latest(ours) == generate_latest(theirs)
    calls.remove("Send", "BUSY")
    our_calls.remove("Send", "BUSY")
    assert our_calls.names() == [("Send", "OK")]
    assert generate_latest(ours) == generate_latest(theirs)
