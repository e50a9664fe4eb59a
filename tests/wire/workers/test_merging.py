"""Scrapes of several workers as one, and the pauses before a worker is started again."""

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry

from popmq_server.monitoring.merging import Merged, WorkerState
from popmq_server.monitoring.metrics import Metrics
from popmq_server.process.workers.restarts import FIRST_S, MOST_S, SOUND_S, Restarts

Scrapes = dict[int, str]


def scrape(calls: int, seconds: float = 0.003, waiters: int = 0, acked: int = 7) -> str:
    """What a worker shows that has served so many calls."""
    metrics = Metrics()
    metrics.describe()
    metrics.calls.labels("Send", "OK").inc(calls)
    for _ in range(calls):
        metrics.call_seconds.labels("Send").observe(seconds)
    metrics.waiters.set(waiters)
    labels = '{group="g",topic="t"}'
    shared = (
        f"# TYPE popmq_group_acked_total counter\npopmq_group_acked_total{labels} {acked}\n"
        f"# TYPE popmq_group_ready gauge\npopmq_group_ready{labels} {acked}\n"
    )
    return generate_latest(metrics.registry).decode() + shared


class Scraped:
    """`now`: what each worker answers."""

    def __init__(self, now: Scrapes) -> None:
        self.now = now
        self.answer: Callable[[], Scrapes] = lambda: self.now
        self.merged = Merged(lambda: self.answer(), lambda: [WorkerState(1, True, 0), WorkerState(2, False, 3)])

    def __call__(self, name: str, **labels: str) -> float | None:
        registry = CollectorRegistry()
        registry.register(self.merged)
        return registry.get_sample_value(name, labels)


CALLS = {"method": "Send", "code": "OK"}


def test_counters_and_histograms_are_added_up() -> None:
    scraped = Scraped({1: scrape(2, seconds=0.003), 2: scrape(3, seconds=0.03)})
    assert scraped("popmq_calls_total", **CALLS) == 5
    assert scraped("popmq_call_seconds_count", method="Send") == 5
    assert scraped("popmq_call_seconds_bucket", method="Send", le="0.005") == 2
    assert scraped("popmq_call_seconds_bucket", method="Send", le="+Inf") == 5
    assert scraped("popmq_call_seconds_sum", method="Send") == pytest.approx(0.096)


def test_a_gauge_is_added_up_where_that_has_a_meaning_and_has_its_worker_elsewhere() -> None:
    scraped = Scraped({1: scrape(0, waiters=2), 2: scrape(0, waiters=3)})
    assert scraped("popmq_waiters") == 5
    for worker in ("1", "2"):
        assert scraped("process_start_time_seconds", worker=worker)
    assert scraped("process_start_time_seconds") is None


def test_what_all_workers_ask_the_cluster_is_shown_once() -> None:
    scraped = Scraped({1: scrape(0, acked=7), 2: scrape(0, acked=8)})
    assert scraped("popmq_group_acked_total", group="g", topic="t") == 7
    assert scraped("popmq_group_ready", group="g", topic="t") == 7


def test_a_sum_does_not_fall_when_a_worker_does_not_answer_or_ends() -> None:
    """A counter that falls is one that began anew: a rate would then count all of it again."""
    scraped = Scraped({1: scrape(2), 2: scrape(3)})
    assert scraped("popmq_calls_total", **CALLS) == 5
    scraped.now = {1: scrape(4)}
    assert scraped("popmq_calls_total", **CALLS) == 7
    scraped.merged.ended(2)
    assert scraped("popmq_calls_total", **CALLS) == 7
    assert scraped("popmq_call_seconds_count", method="Send") == 7
    scraped.now = {1: scrape(4), 2: scrape(1)}
    assert scraped("popmq_calls_total", **CALLS) == 8


def test_an_answer_of_a_worker_that_ends_during_the_scrape_is_not_counted_twice() -> None:
    scraped = Scraped({1: scrape(2), 2: scrape(3)})
    assert scraped("popmq_calls_total", **CALLS) == 5

    def ends() -> Scrapes:
        scraped.merged.ended(2)
        return {1: scrape(2), 2: scrape(3)}

    scraped.answer = ends
    assert scraped("popmq_calls_total", **CALLS) == 5


def test_a_gauge_of_a_worker_that_has_ended_is_gone() -> None:
    scraped = Scraped({1: scrape(0, waiters=2), 2: scrape(0, waiters=3)})
    assert scraped("popmq_waiters") == 5
    scraped.now = {1: scrape(0, waiters=2)}
    scraped.merged.ended(2)
    assert scraped("popmq_waiters") == 2
    assert scraped("process_start_time_seconds", worker="2") is None


def test_each_worker_is_shown_as_up_or_not_with_its_restarts() -> None:
    scraped = Scraped({})
    assert (scraped("popmq_worker_up", worker="1"), scraped("popmq_worker_up", worker="2")) == (1, 0)
    assert scraped("popmq_worker_restarts_total", worker="2") == 3


def test_the_pause_doubles_while_starts_fail_and_begins_anew_after_a_sound_one() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_s(1.0) for _ in range(9)]
    assert pauses == [FIRST_S, 1, 2, 4, 8, 16, MOST_S, MOST_S, MOST_S]
    assert restarts.pause_s(SOUND_S) == FIRST_S
    assert restarts.count == 10
