"""The broker is killed while tasks are sent, handled and acked. The whole campaign of all frameworks is elsewhere."""

import importlib
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess
from popmq_integrations.celery.backend import connected
from tests.integrations.celery.conftest import Worker

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.process]
TASKS, KILLS_AFTER = 120, (30, 60, 90)


def test_no_task_is_lost_and_no_worker_restarts_when_the_broker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        url = f"popmq://{broker.endpoint}"
        monkeypatch.setenv("POPMQ_CELERY", url)
        module = importlib.reload(importlib.import_module("tests.integrations.celery.app"))
        worker = Worker(url, tmp_path / "out.txt", "-c", "2", POPMQ_CELERY_LEASE="3s")
        try:
            worker.wait_for(" ready.")
            results = []
            for number in range(TASKS):
                results.append(module.note.delay(str(number)))
                if number in KILLS_AFTER:
                    broker.kill()
                    broker.start()
            assert [result.get(timeout=120) for result in results] == [str(number) for number in range(TASKS)]
            assert worker.stop() == 0
        finally:
            if worker.process.poll() is None:
                worker.kill()
            module.app.backend.client.close()
            module.app.close()
            connected.cache_clear()
    ended = [line for line in worker.out.read_text().splitlines() if line.startswith("end")]
    assert set(ended) == {f"end {number}" for number in range(TASKS)}
