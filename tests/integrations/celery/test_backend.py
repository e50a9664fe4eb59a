"""The result backend, with a real broker and without a worker."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, states
from celery.app.task import Context
from celery.exceptions import TimeoutError as ResultTimeout
from celery.result import GroupResult

from popmq.testing import Broker, FakeClock
from popmq_integrations.celery.backend import GROUP, PopMQBackend, connected


@pytest.fixture
def app(popmq_broker: Broker) -> Iterator[Celery]:
    url = f"popmq://{popmq_broker.endpoint}"
    with Celery("tests", broker=url, backend=url, set_as_current=False) as app:
        yield app
        app.backend.client.close()
    connected.cache_clear()


@pytest.fixture
def backend(app: Celery) -> PopMQBackend:
    assert isinstance(app.backend, PopMQBackend)  # found by its entry point
    return app.backend


def test_a_result_is_kept_and_forgotten(app: Celery, backend: PopMQBackend) -> None:
    assert app.AsyncResult("t1").state == states.PENDING
    backend.store_result("t1", {"sum": 3}, states.SUCCESS)
    assert app.AsyncResult("t1").get(timeout=10) == {"sum": 3}
    backend.forget("t1")
    assert app.AsyncResult("t1").state == states.PENDING


def test_states_on_the_way_do_not_wake_who_waits_for_the_end(app: Celery, backend: PopMQBackend) -> None:
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(app.AsyncResult("t1").get(timeout=20)))
    waiting.start()
    backend.store_result("t1", {"pid": 1}, states.STARTED)
    backend.store_result("t1", {"done": 10}, "PROGRESS")
    assert (app.AsyncResult("t1").state, app.AsyncResult("t1").info) == ("PROGRESS", {"done": 10})
    assert not got
    backend.store_result("t1", "end", states.SUCCESS)
    waiting.join()
    assert got == ["end"]
    backend.store_result("t1", {"pid": 2}, states.STARTED)
    backend.store_result("t1", ValueError("again"), states.FAILURE)
    assert app.AsyncResult("t1").state == states.SUCCESS  # it stays


def test_a_failure_is_raised_by_get(app: Celery, backend: PopMQBackend) -> None:
    backend.store_result("t1", ValueError("boom"), states.FAILURE)
    with pytest.raises(ValueError, match="boom"):
        app.AsyncResult("t1").get(timeout=10)


def test_waiting_ends_with_its_timeout(app: Celery) -> None:
    with pytest.raises(ResultTimeout):
        app.AsyncResult("t1").get(timeout=0.05)


def test_a_group_is_joined_in_its_order_whichever_ends_first(app: Celery, backend: PopMQBackend) -> None:
    ids = [f"t{number}" for number in range(5)]
    for task_id in reversed(ids):
        backend.store_result(task_id, task_id, states.SUCCESS)
    group = GroupResult("g1", [app.AsyncResult(task_id) for task_id in ids], app=app)
    group.save()
    restored = GroupResult.restore("g1", app=app)
    assert restored is not None
    assert restored.get(timeout=10) == ids
    restored.delete()
    assert GroupResult.restore("g1", app=app) is None


def test_a_value_larger_than_a_result_is_kept_in_parts(app: Celery, backend: PopMQBackend) -> None:
    long = "x" * 700_000
    backend.store_result("t1", long, states.SUCCESS)
    assert app.AsyncResult("t1").get(timeout=10) == long


def test_the_parts_of_a_value_are_stored_in_one_commit_so_that_they_expire_together(
    backend: PopMQBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(type(backend.client), "store_results", lambda _, results, group: calls.append([*results]))
    backend.store_result("t1", "x" * 700_000, states.SUCCESS)
    assert calls == [["celery-task-meta-t1-1", "celery-task-meta-t1-2", "celery-task-meta-t1"]]


def test_a_value_without_all_of_its_parts_is_none(app: Celery, backend: PopMQBackend) -> None:
    backend.store_result("t1", "x" * 700_000, states.SUCCESS)
    backend.client.forget_results(["celery-task-meta-t1-1"], GROUP)  # as a limit of bytes drops the oldest results
    assert app.AsyncResult("t1").state == states.PENDING
    with pytest.raises(ResultTimeout):
        app.AsyncResult("t1").get(timeout=0.05)


def test_a_task_id_that_no_lite_topic_may_have_is_as_good(app: Celery, backend: PopMQBackend) -> None:
    backend.store_result("übung/" + "x" * 90, 1, states.SUCCESS)
    assert app.AsyncResult("übung/" + "x" * 90).get(timeout=10) == 1


def test_results_expire(popmq_broker: Broker, popmq_clock: FakeClock, app: Celery) -> None:
    app.conf.result_expires = 600
    app.backend.store_result("t1", 1, states.SUCCESS)
    popmq_clock.advance(599_000)
    assert app.AsyncResult("t1").state == states.SUCCESS
    app.backend._cache.clear()
    popmq_clock.advance(2_000)
    assert app.AsyncResult("t1").state == states.PENDING


def test_parts_of_a_chord_ask_for_its_size_until_it_is_known(
    backend: PopMQBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = PopMQBackend.get

    def noted(self: PopMQBackend, key: str) -> bytes | None:
        asked.append(key)
        return get(self, key)

    monkeypatch.setattr(PopMQBackend, "get", noted)
    so_far = []
    for index in range(4):
        if index == 1:
            backend.set_chord_size("g1", 9)
        context = Context({"id": f"t{index}", "group": "g1", "group_index": index, "chord": {}})
        backend.on_chord_part_return(context, states.SUCCESS, index)
        so_far.append(len(asked))
    assert so_far == [1, 2, 2, 2]


def test_each_part_of_a_chord_counts_once_also_if_it_ends_twice(
    app: Celery, backend: PopMQBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    ids = ["t0", "t1", "t2"]
    for task_id in ids:
        backend.store_result(task_id, task_id, states.SUCCESS)
    GroupResult("g1", [app.AsyncResult(task_id) for task_id in ids], app=app).save(backend)
    body = app.signature("body", task_id="body-1")
    monkeypatch.setattr(type(body), "delay", lambda self, results: started.append(results))

    def ends(index: int) -> None:
        context = Context({"id": ids[index], "group": "g1", "group_index": index, "chord": dict(body)})
        backend.on_chord_part_return(context, states.SUCCESS, ids[index])

    for index in (0, 1, 1, 0):
        ends(index)
    backend.set_chord_size("g1", 3)  # Celery tells it before it sends the last part
    assert started == []
    ends(2)
    ends(2)  # its worker died before its ack: the task ran again
    assert started == [ids]
    assert app.AsyncResult("body-1").state == states.PENDING  # and did not fail
