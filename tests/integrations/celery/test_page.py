"""The page about Celery and the example run as they are written."""

import os
import subprocess
import sys
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker

from popmq.testing import Broker
from popmq_integrations.celery.backend import connected
from tests.integrations.celery.conftest import ROOT
from tests.prose import examples


@pytest.mark.slow
@pytest.mark.smoke
def test_the_page_works_as_it_is_written(popmq_broker: Broker) -> None:
    names: dict[str, Any] = {"__name__": "shop"}
    settings, *calls = (
        block.replace("127.0.0.1:8081", popmq_broker.endpoint)
        for block in examples(ROOT / "docs" / "integrations" / "celery.md")
    )
    exec(compile(settings, "celery.md", "exec"), names)
    app = names["app"]
    with start_worker(app, perform_ping_check=False, pool="threads", shutdown_timeout=60):
        for block in calls:
            exec(compile(block, "celery.md", "exec"), names)
    app.backend.client.close()
    app.close()
    connected.cache_clear()


@pytest.mark.slow
@pytest.mark.process
def test_the_example_works(popmq_broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, "celery_app.py"],
        cwd=ROOT / "examples",
        env=os.environ | {"CELERY_BROKER_URL": f"popmq://{popmq_broker.endpoint}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the sum of a chord: 11.0\nretries: 2\n" in done.stdout


@pytest.mark.slow
@pytest.mark.process
def test_the_transport_is_found_by_its_path_without_an_import(popmq_broker: Broker) -> None:
    program = f"""
from celery import Celery
app = Celery(broker="popmq://{popmq_broker.endpoint}", backend="popmq://{popmq_broker.endpoint}")
app.conf.broker_transport = "popmq_integrations.celery.transport:Transport"
print(app.send_task("add", (1, 2)).state)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("PENDING\n", 0), done.stderr
    assert popmq_broker.client().broker.stats("celery", "celery").groups[0].ready == 1
