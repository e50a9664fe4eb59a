"""Workers of Celery as processes: pools, leases, kills, remote control."""

import importlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chord, group
from celery.exceptions import NotRegistered, TaskRevokedError

from popmq.testing import Broker
from popmq_integrations.celery.backend import connected
from tests.integrations.celery.conftest import CELERY, ROOT, StartWorker, Worker

pytestmark = pytest.mark.process


@pytest.fixture
def tasks(popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The app of this folder, for this broker."""
    monkeypatch.setenv("POPMQ_CELERY", f"popmq://{popmq_broker.endpoint}")
    module = importlib.reload(importlib.import_module("tests.integrations.celery.app"))
    yield module
    module.app.backend.client.close()
    module.app.close()
    connected.cache_clear()


def lines(worker: Worker) -> list[str]:
    return worker.out.read_text().splitlines()


def until(worker: Worker, line: str, count: int = 1) -> None:
    """Waits for a line that a task writes."""
    while lines(worker).count(line) < count:
        assert worker.process.poll() is None


def command(worker: Worker, *words: str) -> str:
    """What a command of Celery prints."""
    full = (CELERY, "-A", "tests.integrations.celery.app", *words)
    return subprocess.run(
        full, cwd=ROOT, env=worker.environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout


@pytest.mark.slow
@pytest.mark.smoke
def test_a_worker_runs_tasks_retries_groups_and_chords_and_stops_on_sigterm(
    start_worker: StartWorker, tasks: Any
) -> None:
    worker = start_worker("-c", "2")
    assert tasks.add.delay(1, 2).get(timeout=60) == 3
    assert tasks.flaky.delay("f").get(timeout=60) == 2
    assert lines(worker).count("try f") == 3
    assert group(tasks.add.s(n, n) for n in range(20))().get(timeout=60) == [2 * n for n in range(20)]
    assert chord(tasks.add.s(n, 1) for n in range(5))(tasks.total.s()).get(timeout=60) == 15
    assert len(tasks.send_more.delay(["x", "y"]).get(timeout=60)) == 2
    with pytest.raises(ValueError, match="boom"):
        tasks.fail.delay("boom").get(timeout=60)
    tasks.note.delay("slow", 1.0)
    until(worker, "begin slow")
    assert worker.stop() == 0
    assert "end slow" in lines(worker)


@pytest.mark.slow
def test_children_of_the_pool_leave_no_result_behind(start_worker: StartWorker, tasks: Any) -> None:
    worker = start_worker("-c", "2", "--max-tasks-per-child", "3")
    sent = [tasks.early.delay(number) for number in range(12)]
    assert [each.get(timeout=60) for each in sent] == list(range(12))
    last = tasks.early.delay(12)
    worker.wait_for(f"{last.id}] succeeded")
    assert worker.stop() == 0
    assert last.get(timeout=10) == 12


@pytest.mark.slow
def test_a_task_whose_worker_is_killed_runs_again_when_its_lease_has_ended(
    start_worker: StartWorker, tasks: Any
) -> None:
    first = start_worker("-c", "1", POPMQ_CELERY_LEASE="2s")
    result = tasks.note.delay("job", 5.0)  # longer than its lease, which is renewed
    until(first, "begin job")
    first.kill()
    second = start_worker("-c", "1", POPMQ_CELERY_LEASE="2s")
    assert result.get(timeout=60) == "job"
    assert lines(second) == ["begin job", "begin job", "end job"]


@pytest.mark.slow
def test_a_task_that_takes_longer_than_its_lease_runs_once(start_worker: StartWorker, tasks: Any) -> None:
    first = start_worker("-c", "1", "-n", "one@%h", POPMQ_CELERY_LEASE="1s")
    start_worker("-c", "1", "-n", "two@%h", POPMQ_CELERY_LEASE="1s")
    tasks.note.apply_async(("now", 4.0))
    later = tasks.note.apply_async(("later", 0.0), countdown=4)
    assert later.get(timeout=60) == "later"
    assert sorted(lines(first)) == ["begin later", "begin now", "end later", "end now"]


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_every_pool_runs_tasks_also_those_that_send(start_worker: StartWorker, tasks: Any, pool: str) -> None:
    # Each child of prefork ends after two tasks: the others are forked beside the threads of the connection.
    worker = start_worker("-P", pool, "-c", "2", *(("--max-tasks-per-child", "2") if pool == "prefork" else ()))
    sent = [tasks.send_more.delay([f"{number}a", f"{number}b"]) for number in range(10)]
    for result in sent:
        result.get(timeout=60)
    until(worker, "end 9b")
    while len(lines(worker)) < 40:
        assert worker.process.poll() is None
    assert worker.stop() == 0
    assert sorted(lines(worker)) == sorted(
        f"{when} {n}{x}" for when in ("begin", "end") for n in range(10) for x in "ab"
    )


@pytest.mark.slow
def test_urgent_tasks_run_first(start_worker: StartWorker, tasks: Any) -> None:
    for number, priority in enumerate((0, 5, 9, 5, 0)):
        last = tasks.note.apply_async((f"{number} {priority}",), priority=priority)
    worker = start_worker("-c", "1", POPMQ_CELERY_PREFETCH="1")
    last.get(timeout=60)
    begun = [line for line in lines(worker) if line.startswith("begin")]
    assert begun == ["begin 2 9", "begin 1 5", "begin 3 5", "begin 0 0", "begin 4 0"]


@pytest.mark.slow
def test_revoke_inspect_control_and_events_reach_workers(start_worker: StartWorker, tasks: Any) -> None:
    workers = [start_worker("-c", "1", "-E", "-n", f"{name}@host", "-Q", "celery") for name in ("one", "two")]
    names = {"one@host", "two@host"}
    running = tasks.note.delay("running", 30.0)
    until(workers[0], "begin running")
    inspect = tasks.app.control.inspect(timeout=5.0, limit=2)
    assert set(inspect.ping()) == names
    active = [task["id"] for rows in inspect.active().values() for task in rows]
    assert active == [running.id]
    assert set(inspect.stats()) == names
    assert "2 nodes online" in command(workers[0], "inspect", "ping", "-t", "5")
    later = tasks.note.apply_async(("never",), countdown=3)
    tasks.app.control.revoke(later.id)
    running.revoke(terminate=True)
    for result in (later, running):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=60)
    assert "never" not in " ".join(lines(workers[0]))
    replies = tasks.app.control.broadcast("pool_grow", arguments={"n": 1}, reply=True, timeout=5.0, limit=2)
    assert len(replies) == 2


@pytest.mark.slow
def test_events_are_seen_by_who_watches(start_worker: StartWorker, tasks: Any) -> None:
    worker = start_worker("-c", "1", "-E")
    dump = subprocess.Popen(
        [CELERY, "-A", "tests.integrations.celery.app", "events", "--dump"],
        cwd=ROOT,
        env=worker.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert dump.stdout
        seen = ""
        while "heartbeat" not in seen:  # it listens
            seen = dump.stdout.readline()
        tasks.add.delay(1, 2).get(timeout=60)
        while "succeeded" not in seen:
            seen = dump.stdout.readline()
        assert "add" in seen
    finally:
        dump.kill()
        dump.communicate()


@pytest.mark.slow
def test_a_task_that_no_worker_knows_fails_and_the_worker_goes_on(
    start_worker: StartWorker, tasks: Any, popmq_broker: Broker
) -> None:
    start_worker("-c", "1")
    unknown = tasks.app.send_task("unknown")
    with pytest.raises(NotRegistered):
        unknown.get(timeout=60)
    assert tasks.add.delay(1, 2).get(timeout=60) == 3
    (dead,) = popmq_broker.client().messages.browse("%DLQ%celery").deliveries
    assert dead.key == unknown.id
