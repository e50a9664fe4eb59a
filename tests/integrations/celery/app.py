"""A small Celery app for tests and measurements: `celery -A tests.integrations.celery.app worker`.

Its tasks are not shared: other tests make apps of their own, and this module is loaded again for each broker.
POPMQ_CELERY names the broker (popmq://host:port); POPMQ_CELERY_OUT a file that `note` appends to.
"""

import os
import threading
from typing import Any

from celery import Celery

import popmq_integrations.celery  # noqa: F401  # kombu knows popmq://

URL = os.environ.get("POPMQ_CELERY", "popmq://127.0.0.1:8081")

app = Celery("tests", broker=URL, backend=URL)
app.conf.update(
    broker_transport_options={"invisible_time": os.environ.get("POPMQ_CELERY_LEASE", "60s")},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=int(os.environ.get("POPMQ_CELERY_PREFETCH", "4")),
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


def write(line: str) -> None:
    """One write of a short line: processes may share the file."""
    with open(os.environ["POPMQ_CELERY_OUT"], "a") as out:
        out.write(f"{line}\n")


@app.task(shared=False, name="add")
def add(x: int, y: int) -> int:
    return x + y


@app.task(shared=False, name="early", acks_late=False)
def early(number: int) -> int:
    return number


@app.task(shared=False, name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(shared=False, name="note")
def note(line: str, seconds: float = 0.0) -> str:
    """Writes when it begins and when it has ended."""
    write(f"begin {line}")
    threading.Event().wait(seconds)
    write(f"end {line}")
    return line


@app.task(shared=False, name="flaky", bind=True, max_retries=3)
def flaky(self: Any, line: str) -> int:
    """Succeeds at the third try."""
    write(f"try {line}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


@app.task(shared=False, name="send_more")
def send_more(lines: list[str]) -> list[str]:
    """A task that sends tasks."""
    return [str(note.delay(line).id) for line in lines]


@app.task(shared=False, name="fail")
def fail(text: str) -> None:
    raise ValueError(text)
