"""Every counter and gauge, in one place; docs/metrics.md lists them.

Counters move where things happen; gauges of groups are asked from the engine when somebody scrapes.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric

from popmq_server.core import Committed
from popmq_server.stats import GroupNumbers

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_GAUGES = ("ready", "in_flight", "retry", "backoff", "dead")


class Metrics:
    """The registry of one broker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"popmq_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"popmq_{name}", text, buckets=buckets, registry=self.registry)

        self.requests = counter("requests", "Calls, by method and popmq.v1 code", "method", "code")
        self.messages = counter("messages", "Messages sent, popped, acked, …", "method", "group", "topic")
        self.bytes = counter("message_bytes", "Bytes of messages sent and popped", "method", "group", "topic")
        self.refusals = counter("refusals", "Calls and entries refused, by popmq.v1 code", "code")
        self.request_seconds = Histogram(
            "popmq_request_seconds",
            "Time from a call's arrival to its answer, waiting of long polls included",
            ["method"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.lease_lateness = histogram(
            "lease_lateness_seconds", "How late leases were revived after their time", _SECONDS
        )
        self.commit_commands = histogram("commit_commands", "Commands in one group commit", _SIZES)
        self.commit_seconds = histogram("commit_seconds", "Time of one group commit, fsync included", _SECONDS)
        self.fsyncs = counter("fsyncs", "Commits that were synced to disk")
        self.waiters = Gauge("popmq_waiters", "Parked Pops", registry=self.registry)
        self._server: Any = None
        #: Commits since start, for GetStats.
        self.commits = 0

    def committed(self, committed: Committed) -> None:
        """Counts one group; called on the writer thread."""
        if committed.wrote:
            self.commits += 1
            self.fsyncs.inc()
            self.commit_commands.observe(len(committed.results))
            self.commit_seconds.observe(committed.seconds)
        for late_ms in committed.late_ms:
            self.lease_lateness.observe(late_ms / 1000)

    def watch_groups(self, ask: Callable[[], Iterable[GroupNumbers]]) -> None:
        """Gauges by group and topic, asked at each scrape."""
        self.registry.register(_Groups(ask))

    def serve(self, port: int) -> None:
        """Answers scrapes on the loopback. Raises OSError when the port is taken."""
        self._server, _ = start_http_server(port, addr="127.0.0.1", registry=self.registry)

    def close(self) -> None:
        """Ends the scrape port."""
        if self._server is not None:
            threading.Thread(target=self._server.shutdown, daemon=True).start()
            self._server.server_close()


class _Groups:
    """A collector: one gauge family for each number of a group."""

    def __init__(self, ask: Callable[[], Iterable[GroupNumbers]]) -> None:
        self._ask = ask

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        rows = list(self._ask())
        for name in _GAUGES:
            family = GaugeMetricFamily(
                f"popmq_group_{name}", f"Messages of a group in a topic: {name}", labels=["group", "topic"]
            )
            for row in rows:
                family.add_metric([row.group, row.topic], getattr(row, name))
            yield family
