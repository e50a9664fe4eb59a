"""Results that are stored while the next tasks run."""

import threading
from collections.abc import Callable, Mapping

import pytest
from celery import Celery, states
from celery.app.task import Context

import popmq
from popmq.errors import Unavailable
from popmq.testing import Broker
from popmq_integrations.celery import backend as results
from popmq_integrations.celery import behind
from popmq_integrations.celery.behind import WAITING_MAX, Behind


class Stored:
    """Takes what is stored, once it may."""

    def __init__(self, *errors: Exception) -> None:
        self.calls: list[list[str]] = []
        self.may = threading.Event()
        self.asked = threading.Event()
        self._errors = [*errors]

    def __call__(self, given: Mapping[str, popmq.Result]) -> None:
        self.asked.set()
        self.may.wait()
        if self._errors:
            raise self._errors.pop(0)
        self.calls.append([*given])


def test_what_waits_while_a_call_runs_is_stored_by_one_call() -> None:
    stored = Stored()
    kept = Behind(stored)
    kept.put("first", popmq.Result(b"1"))
    stored.asked.wait()
    for number in range(5):
        kept.put(f"r{number}", popmq.Result(b"2"))
    stored.may.set()
    kept.flush()
    assert stored.calls == [["first"], ["r0", "r1", "r2", "r3", "r4"]]


def test_who_gives_too_many_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored()
    kept = Behind(stored)
    kept.put("first", popmq.Result(b"1"))
    stored.asked.wait()
    for number in range(WAITING_MAX):
        kept.put(f"r{number}", popmq.Result(b"2"))
    waits, wait_for = threading.Event(), kept._changed.wait_for

    def noted(predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        if not predicate():
            waits.set()
        return wait_for(predicate, timeout)

    monkeypatch.setattr(kept._changed, "wait_for", noted)
    one_more = threading.Thread(target=kept.put, args=("last", popmq.Result(b"3")))
    one_more.start()
    assert waits.wait(20)
    stored.may.set()
    one_more.join()
    kept.flush()
    assert sum(map(len, stored.calls)) == WAITING_MAX + 2


def test_a_broker_that_is_away_gets_them_later_and_a_refusal_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(behind, "AGAIN_S", 0.0)
    stored = Stored(Unavailable("away"), popmq.errors.PermissionDenied("no"))
    stored.may.set()
    kept = Behind(stored)
    kept.put("first", popmq.Result(b"1"))
    kept.flush()
    kept.put("second", popmq.Result(b"2"))
    kept.flush()
    assert stored.calls == [["second"]]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


@pytest.fixture
def app(popmq_broker: Broker) -> Celery:
    url = f"popmq://{popmq_broker.endpoint}"
    made = Celery("tests", broker=url, backend=url, set_as_current=False)
    made.task(name="early")(nothing)
    made.task(name="late", acks_late=True)(nothing)
    return made


def nothing() -> None:
    """The body of the tasks here: no worker runs them."""


def context(task: str, **more: object) -> Context:
    return Context({"task": task, "id": "t1", "args": (), "kwargs": {}, **more})


def test_only_results_of_tasks_that_were_acked_before_are_stored_behind(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[str] = []
    monkeypatch.setattr(Behind, "put", lambda self, place, result: put.append(place))
    for task_id, request in {
        "acked": context("early"),
        "acked-late": context("late"),
        "part": context("early", chord={"task": "body"}),
        "by-hand": None,
        "foreign": context("unknown"),
    }.items():
        app.backend.store_result(task_id, 1, states.SUCCESS, request=request)
    assert put == ["celery-task-meta-acked"]
    app.backend.store_result("large", "x" * 100_000, states.SUCCESS, request=context("early"))
    assert len(put) == 1
    results.connected.cache_clear()


def test_a_process_reads_what_it_has_given(app: Celery) -> None:
    for number in range(20):
        app.backend.store_result(f"t{number}", number, states.SUCCESS, request=context("early"))
    assert [app.AsyncResult(f"t{number}").result for number in range(20)] == list(range(20))
    app.backend.store_result("t1", ValueError("late"), states.FAILURE, request=context("early"))
    assert app.AsyncResult("t1").state == states.SUCCESS  # it stays
    app.backend.forget("t1")
    assert app.AsyncResult("t1").state == states.PENDING
    app.backend.client.close()
    results.connected.cache_clear()


def test_a_large_state_that_comes_after_a_small_one_stays(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    store, begun, may = popmq.Client.store_results, threading.Event(), threading.Event()

    def stored(self: popmq.Client, given: Mapping[str, popmq.Result], group: str) -> None:
        if threading.current_thread().name == "popmq-results":
            begun.set()
            may.wait()
        store(self, given, group)

    monkeypatch.setattr(popmq.Client, "store_results", stored)
    app.backend.store_result("t1", "small", "PROGRESS", request=context("early"))
    begun.wait()
    flushes, flush = threading.Event(), Behind.flush

    def flushed(self: Behind, places: list[str] | None = None, timeout: float | None = None) -> None:
        flushes.set()
        flush(self, places, timeout)

    monkeypatch.setattr(Behind, "flush", flushed)
    large = ("t1", "x" * 100_000, "PROGRESS")
    storing = threading.Thread(target=app.backend.store_result, args=large, kwargs={"request": context("early")})
    storing.start()
    assert flushes.wait(20)
    may.set()
    storing.join()
    assert len(app.AsyncResult("t1").info) == 100_000
    app.backend.client.close()
    results.connected.cache_clear()
