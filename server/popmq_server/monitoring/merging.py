"""The scrapes of several processes as one: what counts events is added up, also of processes that have ended.

counters, histograms   the sum, which never falls: what an ended process had counted at its last scrape stays in it
gauges of SUMMED       the sum
series of SHARED       those of one process: all processes ask the same cluster, or show the same
other gauges           of each process, with its number in the label `worker`
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from popmq_server.monitoring.port import App

SUMMED = frozenset(
    f"popmq_{name}"
    for name in (
        "waiters",
        "producers",
        "access_key_connections",
        "access_key_bytes_in_flight",
        "broker_in_flight",
        "parked_waits",
        "member_connections",
    )
)
#: Beginnings of names.
SHARED = (
    "popmq_build_info",
    "popmq_broker_info",
    "popmq_certificate_",
    "popmq_clock_",
    "popmq_group_",
    "popmq_topic_",
    "popmq_store_",
    "popmq_schedule",
)
_ADDED_KINDS = ("counter", "histogram")


class WorkerState(NamedTuple):
    """What a supervisor knows of a worker."""

    number: int
    is_up: bool
    restarts: int


#: A name of a sample, and its labels.
_Series = tuple[str, tuple[tuple[str, str], ...]]


class Merged:
    """A collector. `scrape`: the text of each worker that answers now, by its number. `states`: of all workers."""

    def __init__(self, scrape: Callable[[], Mapping[int, str]], states: Callable[[], list[WorkerState]]) -> None:
        self._scrape, self._states = scrape, states
        #: The last answer of each process that runs: one that does not answer in time must not lower a sum.
        self._last: dict[int, dict[str, Metric]] = {}
        #: What ended processes had counted, by family.
        self._ended: dict[str, dict[_Series, float]] = {}
        #: How often each number has been given anew: an answer of a process that has ended since counts in `_ended`.
        self._ends: dict[int, int] = {}
        self._lock = threading.Lock()

    def ended(self, worker: int) -> None:
        """The process has ended; another one takes its number."""
        with self._lock:
            self._ends[worker] = self._ends.get(worker, 0) + 1
            for family in self._last.pop(worker, {}).values():
                if _is_added(family):
                    _add(self._ended.setdefault(family.name, {}), family)

    def app(self) -> App:
        """The WSGI application that answers scrapes."""
        registry = CollectorRegistry()
        registry.register(self)
        return make_wsgi_app(registry)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One family for each name."""
        before = dict(self._ends)
        found = {worker: _families(text) for worker, text in self._scrape().items()}
        with self._lock:
            self._last |= {worker: one for worker, one in found.items() if self._ends.get(worker) == before.get(worker)}
            last = dict(sorted(self._last.items()))
            names = {name: family for families in last.values() for name, family in families.items()}
            merged = [self._merged(family, last) for family in names.values()]
        yield from merged
        yield from _state_families(self._states())

    def _merged(self, family: Metric, last: Mapping[int, Mapping[str, Metric]]) -> Metric:
        merged = Metric(family.name, family.documentation, family.type)
        each = {worker: families[family.name] for worker, families in last.items() if family.name in families}
        if family.name.startswith(SHARED):
            merged.samples = next((one.samples for one in each.values() if one.samples), [])
        elif _is_added(family) or family.name in SUMMED:
            series = dict(self._ended.get(family.name, {}))
            for one in each.values():
                _add(series, one)
            for (name, labels), value in series.items():
                merged.add_sample(name, dict(labels), value)
        else:
            for worker, one in each.items():
                for sample in one.samples:
                    merged.add_sample(sample.name, {**sample.labels, "worker": str(worker)}, sample.value)
        return merged


def _families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def _is_added(family: Metric) -> bool:
    return family.type in _ADDED_KINDS and not family.name.startswith(SHARED)


def _add(series: dict[_Series, float], family: Metric) -> None:
    for sample in family.samples:
        key = sample.name, tuple(sample.labels.items())
        series[key] = series.get(key, 0.0) + sample.value


def _state_families(states: list[WorkerState]) -> Iterator[Metric]:
    text = "Whether a worker serves: 0 while it starts, or waits to be started again"
    up = GaugeMetricFamily("popmq_worker_up", text, labels=("worker",))
    text = "Times that a worker was started again after it had ended"
    restarts = CounterMetricFamily("popmq_worker_restarts", text, labels=("worker",))
    for state in states:
        up.add_metric((str(state.number),), state.is_up)
        restarts.add_metric((str(state.number),), state.restarts)
    yield from (up, restarts)
