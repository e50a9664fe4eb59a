"""What only a gateway counts: its calls to brokers, and what it knows of them; docs/metrics.md lists them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from popmq_server.contract.life import BrokerNumbers, GatewayNumbers
from popmq_server.monitoring.families import CounterFamily, HistogramFamily

#: A broker in the same network answers in a millisecond; a deadline is 10 s at most.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class GatewayMetrics:
    """Its calls to brokers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = CounterFamily(
            "popmq_broker_calls",
            "Calls to a broker, by the name of its response code, or of what went wrong",
            ("broker", "code"),
            registry,
        )
        self._seconds = HistogramFamily(
            "popmq_broker_call_seconds",
            "From a call to a broker to its answer, without those that are parked there",
            ("broker",),
            _SECONDS,
            registry,
        )

    def called(self, broker: str, code: str, seconds: float, *, is_parked: bool) -> None:
        """Counts a call that has ended. `is_parked`: it waited for messages."""
        self._calls.labels(broker, code).inc()
        if not is_parked:
            self._seconds.labels(broker).observe(seconds)


def gateway_families(now: GatewayNumbers) -> Iterator[Metric]:
    """The families of one scrape."""
    yield from _of_brokers(now.brokers)
    age = GaugeMetricFamily("popmq_route_age_seconds", "Since name servers said last which brokers there are")
    if now.route_age_s is not None:
        age.add_metric((), now.route_age_s)
    yield age
    text = "Requests that are parked at brokers until messages come"
    yield GaugeMetricFamily("popmq_parked_waits", text, value=now.parked_waits)
    text = "Messages of single sends that travelled with those of other callers"
    yield CounterMetricFamily("popmq_gathered_sends", text, value=now.gathered_sends)
    text = "Look-ups whether a transaction is committed already"
    yield CounterMetricFamily("popmq_lookups_before_commit", text, value=now.lookups_before_commit)
    text = "Connections to brokers that stand for members of groups"
    yield GaugeMetricFamily("popmq_member_connections", text, value=now.member_connections)


def _of_brokers(brokers: list[BrokerNumbers]) -> Iterator[Metric]:
    label = ("broker",)
    in_flight = GaugeMetricFamily("popmq_broker_in_flight", "Calls that wait for a broker's answer", labels=label)
    text = "Times that a broker was connected to again"
    reconnects = CounterMetricFamily("popmq_broker_reconnects", text, labels=label)
    text = "1 while a broker is not called because it could not be reached"
    breaker = GaugeMetricFamily("popmq_broker_breaker_open", text, labels=label)
    text = "Seconds that a broker's clock is ahead of the gateway's; negative if it is behind"
    ahead = GaugeMetricFamily("popmq_broker_clock_ahead_seconds", text, labels=label)
    info = GaugeMetricFamily(
        "popmq_broker_info", "A broker's version, in its label; always 1", labels=("broker", "version")
    )
    for each in brokers:
        in_flight.add_metric((each.name,), each.in_flight)
        reconnects.add_metric((each.name,), each.reconnects)
        breaker.add_metric((each.name,), each.breaker_open)
        if each.ahead_s is not None:
            ahead.add_metric((each.name,), each.ahead_s)
        if each.version:
            info.add_metric((each.name, each.version), 1)
    yield from (in_flight, reconnects, breaker, ahead, info)
