"""The page about Celery and the example run as they are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from popmq.testing import Broker
from tests.integrations.celery.conftest import ROOT
from tests.integrations.programs import Program
from tests.prose import examples


@pytest.mark.slow
@pytest.mark.process
def test_the_page_works_as_it_is_written(popmq_broker: Broker, tmp_path: Path) -> None:
    """In processes of its own: a worker of Celery sets the level of all logs."""
    settings, *calls = (
        block.replace("127.0.0.1:8081", popmq_broker.endpoint)
        for block in examples(ROOT / "docs" / "integrations" / "celery.md")
    )
    (tmp_path / "shop.py").write_text(settings)
    with Program(tmp_path, settings, "-m", "celery", "-A", "shop", "worker", "--pool", "threads"):
        subprocess.run([sys.executable, "-c", "\n".join(calls)], cwd=tmp_path, timeout=120, check=True)


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
