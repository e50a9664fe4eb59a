"""Workers of Celery as processes: pools, leases, kills, remote control."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chord, group
from celery.exceptions import TaskRevokedError

from popmq.testing import Broker
from popmq_integrations.celery.backend import connected
from tests.integrations.celery.conftest import ROOT, StartWorker, Worker

pytestmark = pytest.mark.process


@pytest.fixture
def tasks(popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The app of this folder, for this broker."""
    from tests.integrations.celery import app as module

    url = f"popmq://{popmq_broker.endpoint}"
    module.app.conf.update(broker_url=url, broker_read_url=url, broker_write_url=url, result_backend=url)
    yield module
    module.app.backend.client.close()
    module.app.close()
    module.app._local.__dict__.clear()
    module.app._backend_cache = None
    connected.cache_clear()


def lines(worker: Worker) -> list[str]:
    return worker.out.read_text().splitlines()


def until(worker: Worker, line: str, count: int = 1) -> None:
    """Waits for a line that a task writes."""
    while lines(worker).count(line) < count:
        assert worker.process.poll() is None


def command(worker: Worker, *words: str) -> str:
    """What a command of Celery prints."""
    full = (sys.executable, "-m", "celery", "-A", "tests.integrations.celery.app", *words)
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
