"""The page and the example do what they say, and the page lists which of Django's own tests fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.broker_process import ROOT
from popmq.testing import Broker
from tests.integrations.django.own_tests import EXPECTED
from tests.prose import examples

PAGE = ROOT / "docs/integrations/django.md"
EXAMPLE = ROOT / "examples/django/manage.py"


def run(folder: Path, broker: Broker, *words: str | Path) -> str:
    environment = os.environ | {"POPMQ_ENDPOINT": broker.endpoint, "SHOP_DATABASE": str(folder / "shop.db")}
    command = [sys.executable, "-W", "error", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
@pytest.mark.process
def test_the_page_enqueues_a_task_that_is_there_and_one_for_later(popmq_broker: Broker, tmp_path: Path) -> None:
    text = "\n".join(examples(PAGE)).replace("127.0.0.1:8081", popmq_broker.endpoint)
    (tmp_path / "page.py").write_text(text)
    run(tmp_path, popmq_broker, "page.py")
    client = popmq_broker.client()
    (only,) = client.pop("django-mails", "django", wait=5)
    assert (only.json()["args"], client.messages.list_delayed("django-mails").total) == (["Ann"], 1)


@pytest.mark.slow
@pytest.mark.process
def test_the_example_writes_an_invoice_for_each_order(popmq_broker: Broker, tmp_path: Path) -> None:
    run(tmp_path, popmq_broker, EXAMPLE, "migrate", "--run-syncdb", "-v", "0")
    told = run(tmp_path, popmq_broker, EXAMPLE, "order", "7", "8")
    ids = re.findall(r"task ([0-9a-f]{32})", told)
    environment = os.environ | {"POPMQ_ENDPOINT": popmq_broker.endpoint, "SHOP_DATABASE": str(tmp_path / "shop.db")}
    command = [sys.executable, str(EXAMPLE), "popmq_worker"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as worker:
        results = popmq_broker.client().results(ids, "django", wait=30)
        worker.terminate()
    assert [results[id].json()["return_value"] for id in ids] == ["invoice of order 7", "invoice of order 8"]
    assert worker.returncode == 0


def test_the_page_lists_the_tests_of_django_that_fail() -> None:
    rows = re.findall(r"^\| `(\w+\.test_\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == EXPECTED
