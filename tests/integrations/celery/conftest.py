"""A broker, connections of kombu, and worker processes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest

import popmq_integrations.celery  # noqa: F401  # kombu knows popmq://
from popmq.testing import Broker

ROOT = Path(__file__).resolve().parents[3]
#: The command of this environment.
CELERY = str(Path(sys.executable).with_name("celery"))

Connect = Callable[..., kombu.Connection]
StartWorker = Callable[..., "Worker"]


@pytest.fixture
def connect(popmq_broker: Broker) -> Iterator[Connect]:
    """Makes connections, with transport options."""
    made: list[kombu.Connection] = []

    def make(url: str = "", **options: Any) -> kombu.Connection:
        made.append(kombu.Connection(url or f"popmq://{popmq_broker.endpoint}", transport_options=options))
        return made[-1]

    yield make
    for connection in made:
        connection.release()


@pytest.fixture
def connection(connect: Connect) -> kombu.Connection:
    return connect()


class Worker:
    """`celery worker` with the app of this folder, as a process; what its tasks note is in `out`."""

    def __init__(self, url: str, out: Path, *arguments: str, **environment: str) -> None:
        self.out = out
        self.environment = os.environ | {"POPMQ_CELERY": url, "POPMQ_CELERY_OUT": str(out)} | environment
        out.touch()
        command = (CELERY, "-A", "tests.integrations.celery.app", "worker", "-l", "INFO")
        self.process = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        self.log: list[str] = []

    def wait_for(self, text: str) -> str:
        """The next line of its log with this text; the test's time limit ends the waiting."""
        assert self.process.stderr
        for raw in self.process.stderr:
            self.log.append(line := raw.decode(errors="replace").rstrip())
            if text in line:
                return line
        raise AssertionError("\n".join([f"the worker ended without {text!r}:", *self.log[-40:]]))

    def kill(self) -> None:
        """kill -9: it and the children of its pool."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        self.process.kill()
        for child in children.stdout.split():
            subprocess.run(["kill", "-9", child], check=False, stderr=subprocess.DEVNULL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM: it finishes what it has begun. Returns the exit code."""
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def start_worker(popmq_broker: Broker, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts workers, and returns when they are ready; `url`, arguments and environment may be given."""
    started: list[Worker] = []

    def start(*arguments: str, url: str = "", ready: str = " ready.", **environment: str) -> Worker:
        url = url or f"popmq://{popmq_broker.endpoint}"
        started.append(Worker(url, tmp_path / "out.txt", *arguments, **environment))
        started[-1].wait_for(ready)
        return started[-1]

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.kill()
        if worker.process.stderr:
            worker.process.stderr.close()
