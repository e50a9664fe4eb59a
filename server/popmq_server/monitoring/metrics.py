"""All counters and gauges; docs/metrics.md lists them, and a test compares the two.

Counters are incremented where things happen; group and store numbers are asked from the engine at each scrape. Labels
are RPC names, codes of the contract, and names of existing topics and groups, so no caller can create label values.
"""

import contextlib
import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from popmq_server.contract.commands.numbers import (
    CommitNumbers,
    GroupNumbers,
    ScheduleNumbers,
)
from popmq_server.contract.life import EngineNumbers
from popmq_server.errors import Refused
from popmq_server.monitoring.families import CounterFamily, HistogramFamily
from popmq_server.monitoring.history import History

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_GAUGES = {
    "ready": "Messages not popped yet",
    "in_flight": "Messages leased and not acked",
    "retry": "Messages in the retry topic, deliverable",
    "backoff": "Messages released with a delay that is not over",
    "bytes_behind": "Bytes of the messages that are not popped yet, by the mean size of the topic",
    "keys_waiting": "Fair keys with messages that wait, among those that the broker has read ahead",
    "dead_blocked": "Leased messages without an attempt left whose dead letters find no room in the store",
}
_COUNTERS = {
    "acked": "Messages acked since the group exists",
    "dropped": "Messages dropped by retention before they were finished",
    "quarantined": "Messages whose stored bytes did not match their checksum",
    "expired": "Messages dropped because their ttl was over",
    "filtered": "Messages passed over because they did not match the filter",
}

_PAIR = ("group", "topic")
F = TypeVar("F", GaugeMetricFamily, CounterMetricFamily)
_TOPIC_GAUGES = {
    "bytes": "Stored bytes of messages",
    "delayed": "Messages scheduled for later",
    "half": "Half messages whose transaction is not ended",
    "lite_topics": "Lite topics of a LITE topic, whose other numbers are sums over these",
}


#: Codes of refusals by a limit of a topic or group; refusals by the store use some of them too, without that field.
_LIMITS = frozenset({"RATE_LIMITED", "IN_FLIGHT_LIMIT", "STORAGE_FULL"})


class Scrape(NamedTuple):
    """The numbers of the engine for one scrape. `began_ms`: when it began to serve. `wall_ms`: the wall clock."""

    now_ms: int
    wall_ms: int
    began_ms: int
    engine: EngineNumbers


class KeyNumbers(NamedTuple):
    """One access key for a scrape; `limited`: refused calls, by the name of the limit."""

    name: str
    connections: int
    bytes_in_flight: int
    calls: int
    limited: dict[str, int]


class Metrics:
    """The registry of one broker. What only an engine with a store of its own counts is shown after `watch_store`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> CounterFamily:
            return CounterFamily(f"popmq_{name}", text, labels, self.registry)

        def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> HistogramFamily:
            return HistogramFamily(f"popmq_{name}", text, labels, bounds, self.registry)

        def counter_of_store(name: str, text: str, *labels: str) -> CounterFamily:
            return CounterFamily(f"popmq_{name}", text, labels, None)

        def histogram_of_store(name: str, text: str, bounds: tuple[float, ...]) -> HistogramFamily:
            return HistogramFamily(f"popmq_{name}", text, (), bounds, None)

        names = ("method", "group", "topic")
        self.calls = counter("calls", "Calls that ended, by popmq.v1 code, OK or CANCELLED", "method", "code")
        self.requests = counter("requests", "Calls that were served, by the names in the request", *names)
        self.messages = counter("messages", "Messages stored, delivered, acked or changed", *names)
        self.bytes = counter("message_bytes", "Bytes of messages stored and delivered", *names)
        self.pulls = counter("pulls", "Pulls that were served, by what they found", "status", "group", "topic")
        self.refusals = counter("refusals", "Calls and entries of calls refused, by popmq.v1 code", "code")
        self.limited = counter("limited", "Calls refused by a limit of their topic or group", "code", "group", "topic")
        labels = ("event", "group", "topic")
        self.events = counter("events", "Events of groups, which are also logged", *labels)
        self.event_messages = counter("event_messages", "Messages that these events were about", *labels)
        self.call_seconds = histogram(
            "call_seconds", "From a call's arrival to its answer, waits of long polls included", _SECONDS, "method"
        )
        self.lease_lateness = histogram_of_store(
            "lease_lateness_seconds", "How late leases were revived after their time", _SECONDS
        )
        self.delayed_lateness = histogram_of_store(
            "delayed_lateness_seconds", "How late delayed messages became visible after their time", _SECONDS
        )
        self.checks = counter("transaction_checks", "Checks of half messages that were sent to a live producer")
        self.given_up = counter_of_store(
            "transactions_given_up", "Half messages that were not ended in 15 checks or 72 h"
        )
        self.job_failures = counter_of_store(
            "job_failures", "Pieces of maintenance that failed; the log has the reason", "name"
        )
        self.invariant_failures = counter_of_store(
            "invariant_failures", "Commands and pieces of maintenance that met a broken invariant", "invariant"
        )
        self.commit_commands = histogram_of_store("commit_commands", "Commands in one commit batch", _SIZES)
        self.commit_seconds = histogram_of_store("commit_seconds", "Time of one commit, fsync included", _SECONDS)
        self.fsyncs = counter_of_store("fsyncs", "Commits that were synced to disk")
        # Those of each commit, without a look-up.
        self._fsyncs, self._commit_commands = self.fsyncs.labels(), self.commit_commands.labels()
        self._commit_seconds = self.commit_seconds.labels()
        self.waiters = Gauge(
            "popmq_waiters", "Parked calls: long polls, WaitAvailable and waits for results", registry=self.registry
        )
        #: Whether commits are counted, and each is followed by an fsync.
        self.has_store, self.synced = False, False
        ProcessCollector(registry=self.registry)
        #: Commits since start, for GetStats; and of leases and delayed messages, how many were late and by how much.
        self.commits = 0
        self.lateness = dict.fromkeys(("revived", "revived_late_ms", "delayed_released", "delayed_late_ms"), 0)
        #: The last hour, for GetHistory; sampling.py fills it.
        self.history = History()

    def describe(self, **engine: str) -> None:
        """Shows what runs; `engine`: labels of its engine."""
        labels = {"version": release(), "python": platform.python_version(), **engine}
        build = Gauge("popmq_build_info", "What runs, in its labels; always 1", labels, registry=self.registry)
        build.labels(**labels).set(1)

    def watch_store(self, *, synced: bool) -> None:
        """Shows what the engine's own store counts. `synced`: whether each commit is followed by an fsync."""
        self.has_store, self.synced = True, synced
        for family in (
            *(self.lease_lateness, self.delayed_lateness, self.given_up, self.job_failures),
            *(self.invariant_failures, self.commit_commands, self.commit_seconds, self.fsyncs),
        ):
            self.registry.register(family)

    def watch_failures(self, jobs: Iterable[str], invariants: Iterable[str]) -> None:
        """Shows each job and invariant from its start on, with 0 failures: the first one is then an increase."""
        for name in jobs:
            self.job_failures.labels(name)
        for name in invariants:
            self.invariant_failures.labels(name)

    def watch_bugs(self, method: str, code: str) -> None:
        """Shows from the start on that a method had no bug. `code`: of a bug, in its contract."""
        self.calls.labels(method, code)

    def watch_refusals(self, codes: Iterable[str]) -> None:
        """Shows each code from the start on, with 0 refusals."""
        for code in codes:
            self.refusals.labels(code)

    def committed(self, committed: CommitNumbers) -> None:
        """Counts one commit; called on the writer thread."""
        if committed.wrote:
            self.commits += 1
            self._fsyncs.value += self.synced
            self._commit_commands.observe(committed.commands)
            self._commit_seconds.observe(committed.seconds)
        if committed.late_ms:
            self.lateness["revived"] += len(committed.late_ms)
            self.lateness["revived_late_ms"] += sum(committed.late_ms)
            for late_ms in committed.late_ms:
                self.lease_lateness.observe(late_ms / 1000)
        if committed.delayed_late_ms:
            self.lateness["delayed_released"] += len(committed.delayed_late_ms)
            self.lateness["delayed_late_ms"] += sum(committed.delayed_late_ms)
            for late_ms in committed.delayed_late_ms:
                self.delayed_lateness.observe(late_ms / 1000)
        if committed.given_up:
            self.given_up.inc(committed.given_up)
        for job in committed.failures:
            self.job_failures.labels(job).inc()
        for invariant in committed.broken:
            self.invariant_failures.labels(invariant).inc()
        for event in committed.events:
            self.events.labels(event.kind, event.group, event.topic).inc()
            self.event_messages.labels(event.kind, event.group, event.topic).inc(event.messages)

    @contextlib.contextmanager
    def limits(self, group: str, topic: str) -> Iterator[None]:
        """Counts a refusal as `limited_by` does."""
        try:
            yield
        except Refused as refused:
            self.limited_by(refused, group, topic)
            raise

    def limited_by(self, refused: Refused, group: str, topic: str) -> None:
        """Counts a refusal if it is by a limit of a topic or group; such a refusal proves that the names exist."""
        if refused.code in _LIMITS and refused.field in ("topic", "group"):
            self.limited.labels(refused.code, group, topic).inc()

    def watch(self, ask: Callable[[], Scrape | None], parked: Callable[[], float]) -> None:
        """Registers the sources of the numbers that are read at each scrape. `ask`: None if the engine is too slow."""
        self.waiters.set_function(parked)
        self.registry.register(_Asked(lambda: _families(ask())))

    def watch_keys(self, ask: Callable[[], list[KeyNumbers]]) -> None:
        """Registers the source of the numbers of access keys."""
        self.registry.register(_Asked(lambda: _key_families(ask())))

    def watch_certificate(self, left_s: Callable[[], float | None]) -> None:
        """Registers the source of the time that is left of the certificate; None: no TLS port."""
        self.registry.register(_Asked(lambda: _certificate_families(left_s())))

    def watch_log(self, dropped: Callable[[], int]) -> None:
        """Registers the source of the number of dropped lines of the log."""
        self.registry.register(_Asked(lambda: _log_families(dropped())))

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops the series of a deleted group or topic, so that short-lived names do not accumulate."""
        self.history.forget(group=group, topic=topic)
        families = (
            self.requests,
            self.messages,
            self.bytes,
            self.pulls,
            self.limited,
            self.events,
            self.event_messages,
        )
        for family in families:
            for values in family.names():
                if (group and values[1] == group) or (topic and values[2] == topic):
                    family.remove(*values)

    def app(self) -> Callable[..., Iterable[bytes]]:
        """The WSGI application that answers scrapes."""
        return make_wsgi_app(self.registry)


def release() -> str:
    """The installed version; a copy of the source that was never installed has none."""
    try:
        return version("popmq")
    except PackageNotFoundError:
        return "unknown"


class _Asked:
    """A collector that asks for its families at each scrape."""

    def __init__(self, ask: Callable[[], Iterator[Metric]]) -> None:
        self._ask = ask

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        return self._ask()


def _families(seen: Scrape | None) -> Iterator[Metric]:
    """The engine's numbers, if it answered: a scrape has the others in any case."""
    text = "Whether the engine answered; if it did not, groups, topics, store and schedules are missing"
    yield GaugeMetricFamily("popmq_engine_answers", text, value=seen is not None)
    if seen is None:
        return
    yield from _group_families(seen)
    yield from _topic_families(seen)
    text = "Session streams of producers that can answer for transactions"
    yield GaugeMetricFamily("popmq_producers", text, value=seen.engine.producers)
    if (store := seen.engine.store) is not None:
        for name, text, value in (
            ("used", "Bytes of the data file that hold something", store.used_bytes),
            ("limit", "Bytes that the data file may have", store.map_bytes),
            ("disk_free", "Free bytes of the disk under the data folder", store.disk_free_bytes),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"popmq_store_{name}_bytes", text, value=value)
    if (gateway := seen.engine.gateway) is not None:
        from popmq_server.monitoring.gateway_metrics import gateway_families  # here: no other engine needs them

        yield from gateway_families(gateway)
    if (schedules := seen.engine.schedules) is not None:
        yield from _schedule_families(schedules)
    text = "Seconds that the broker's time is behind the machine's clock; negative if it is ahead"
    yield GaugeMetricFamily("popmq_clock_behind_seconds", text, value=(seen.wall_ms - seen.now_ms) / 1000)


def _schedule_families(schedules: ScheduleNumbers) -> Iterator[Metric]:
    """The earliest next occurrence of any schedule. While one is due, it is counted as late, and none as ahead."""
    yield GaugeMetricFamily("popmq_schedules", "Schedules, also those that are paused", value=schedules.schedules)
    ahead_ms = 0 if schedules.ahead_ms is None else schedules.ahead_ms
    text = "Seconds by which the earliest unsent occurrence is late; 0 if none is due"
    yield GaugeMetricFamily("popmq_schedule_late_seconds", text, value=max(0, -ahead_ms) / 1000)
    following = GaugeMetricFamily(
        "popmq_schedule_next_seconds", "Seconds until the earliest next occurrence of any schedule"
    )
    if schedules.ahead_ms is not None:
        following.add_metric((), max(0, ahead_ms) / 1000)
    yield following


def _certificate_families(left_s: float | None) -> Iterator[Metric]:
    text = "Seconds until the certificate of the TLS port expires; negative if it has"
    family = GaugeMetricFamily("popmq_certificate_expires_seconds", text)
    if left_s is not None:
        family.add_metric((), left_s)
    yield family


def _log_families(dropped: int) -> Iterator[Metric]:
    text = "Lines of the log that were dropped, because they had no reader or the system refused them"
    yield CounterMetricFamily("popmq_log_lines_dropped", text, value=dropped)


def _key_families(keys: list[KeyNumbers]) -> Iterator[Metric]:
    """The numbers of access keys, labelled by their names."""
    label = ("access_key",)
    connections = GaugeMetricFamily("popmq_access_key_connections", "Open connections of an access key", labels=label)
    text = "Bytes of requests that are being answered, and of answers that are not taken yet"
    in_flight = GaugeMetricFamily("popmq_access_key_bytes_in_flight", text, labels=label)
    calls = CounterMetricFamily(
        "popmq_access_key_calls", "Calls with an access key, refused ones included", labels=label
    )
    text = "Calls refused by a limit of their access key"
    limited = CounterMetricFamily("popmq_access_key_limited", text, labels=("access_key", "limit"))
    for key in keys:
        connections.add_metric((key.name,), key.connections)
        in_flight.add_metric((key.name,), key.bytes_in_flight)
        calls.add_metric((key.name,), key.calls)
        for limit, count in key.limited.items():
            limited.add_metric((key.name, limit), count)
    yield from (connections, in_flight, calls, limited)


def _topic_families(seen: Scrape) -> Iterator[Metric]:
    """A gauge family for each number of a topic, without rows where it is unknown.

    Dead-letter topics are reported with their groups.
    """
    for name, text in _TOPIC_GAUGES.items():
        family = GaugeMetricFamily(f"popmq_topic_{name}", text, labels=("topic",))
        for row in seen.engine.topics:
            if not row.topic.is_dead_letter and (value := getattr(row, name)) is not None:
                family.add_metric((row.topic.name,), value)
        yield family


def _group_families(seen: Scrape) -> Iterator[Metric]:
    """A family for each number of a group, labelled by group and topic."""
    groups, now_ms = seen.engine.groups, seen.now_ms
    for name, text in _GAUGES.items():
        yield _of_groups(GaugeMetricFamily(f"popmq_group_{name}", text, labels=_PAIR), groups, attrgetter(name))
    for name, text in _COUNTERS.items():
        yield _of_groups(CounterMetricFamily(f"popmq_group_{name}", text, labels=_PAIR), groups, attrgetter(name))
    idle = GaugeMetricFamily(
        "popmq_group_idle_seconds", "Seconds since the group last read the topic, or since the start", labels=_PAIR
    )
    left = GaugeMetricFamily("popmq_group_expires_seconds", "Seconds until an idle subscription expires", labels=_PAIR)
    oldest = GaugeMetricFamily("popmq_group_oldest_age_seconds", "Age of the oldest unfinished message", labels=_PAIR)
    yield _of_groups(idle, groups, lambda row: _since_s(_or(row.read_ms, seen.began_ms), now_ms))
    yield _of_groups(left, groups, lambda row: _since_s(now_ms, row.expires_ms) if row.expires_ms else None)
    yield _of_groups(oldest, groups, lambda row: _since_s(_or(row.oldest_ms, now_ms), now_ms))
    # A group has one dead-letter topic for all its topics; with a topic label, a sum over topics would count it twice.
    dead = GaugeMetricFamily("popmq_group_dead", "Messages in the dead-letter topic", labels=("group",))
    for group, count in {row.group: row.dead for row in seen.engine.groups}.items():
        dead.add_metric((group,), count)
    yield dead


def _of_groups(family: F, groups: Iterable[GroupNumbers], value: Callable[[GroupNumbers], float | None]) -> F:
    """Adds a row for each group in a topic whose value is known."""
    for row in groups:
        if (number := value(row)) is not None:
            family.add_metric((row.group, row.topic), number)
    return family


def _or(ms: int | None, instead_ms: int) -> int | None:
    """A time, and another one in place of 0."""
    return None if ms is None else ms or instead_ms


def _since_s(ms: int | None, until_ms: int) -> float | None:
    return None if ms is None else max(0, until_ms - ms) / 1000
