"""`manage.py popmq_worker`, as a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.broker_process import ROOT
from popmq.testing import Broker

pytestmark = [pytest.mark.slow, pytest.mark.process]

MANAGE = "tests.integrations.django.manage"

ENQUEUE = """
import os
import django
django.setup()
from tests.integrations.django.shop.tasks import add, paid
from django.db import connection, transaction
first = add.enqueue(1, 2)
child = os.fork()
if not child:
    with transaction.atomic():
        add.enqueue(3, 4)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(first.id, flush=True)
"""


def environment(broker: Broker, folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SHOP_ENDPOINT": broker.endpoint,
        "SHOP_DATABASE": str(folder / "shop.db"),
        "DJANGO_SETTINGS_MODULE": "tests.integrations.django.shop.settings",
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def worker(broker: Broker, folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", MANAGE, "popmq_worker", *words]
    with subprocess.Popen(
        command, cwd=folder, env=environment(broker, folder), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def enqueued(broker: Broker, folder: Path) -> str:
    """Enqueues two tasks: one, and another in a transaction of a forked child, which dies when that has committed."""
    words = [sys.executable, "-W", "error", "-c", ENQUEUE]
    done = subprocess.run(
        words, cwd=folder, env=environment(broker, folder), capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), marks=pytest.mark.smoke),
        ("--processes", "2", "--concurrency", "2", "--queue", "default"),
    ],
)
def test_the_command_runs_tasks_also_of_a_process_that_died_after_its_commit_and_drains_at_sigterm(
    popmq_broker: Broker, tmp_path: Path, words: tuple[str, ...]
) -> None:
    client = popmq_broker.client()
    client.topics.create("django-default", queues=201, type="PRIORITY")
    client.groups.create("django")  # keeps no results yet: the worker sees to that
    result = enqueued(popmq_broker, tmp_path)
    with worker(popmq_broker, tmp_path, *words) as process:
        while not client.groups.get("django").results_keep:
            assert process.poll() is None
        assert client.result(result, "django", wait=30).json()["return_value"] == 3
        while len(client.messages.browse("%RESULT%django", order="oldest").deliveries) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.stderr
        told = process.stderr.read()
        assert process.wait(30) == 0, told
    assert ("queue default handles django-default for django" in told, "Traceback" in told) == (True, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--queue", "post"), "TASKS['default'] has no queue 'post': it has ['default', 'mails']"),
        (("--backend", "other"), "other"),
        (("--concurrency", "0"), "concurrency is 0"),
    ],
)
def test_a_worker_that_could_not_run_says_why_and_ends(
    popmq_broker: Broker, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    with worker(popmq_broker, tmp_path, *words) as process:
        assert process.stderr
        told = process.stderr.read()
        assert process.wait(30) != 0
    assert said in told
    assert "Traceback" not in told
