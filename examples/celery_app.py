"""Celery over PopMQ: a retry, an ETA and a chord.

popmq serve, then: python examples/celery_app.py (it starts a worker, asks, and stops the worker)
In production the worker is a command: celery -A celery_app worker
"""

import os
import subprocess
import sys
import time

from celery import Celery, chord

import popmq_integrations.celery  # noqa: F401  # now kombu knows popmq://

URL = os.environ.get("CELERY_BROKER_URL", "popmq://127.0.0.1:8081")

app = Celery("celery_app", broker=URL, backend=URL)
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)


@app.task
def price(article: str) -> float:
    return float(len(article))


@app.task
def total(prices: list[float]) -> float:
    return sum(prices)


@app.task(bind=True, max_retries=5)
def at_third_try(self) -> int:
    """A retry is a new message that the broker delivers when it is due."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return self.request.retries


def main() -> None:
    print("the sum of a chord:", chord(price.s(name) for name in ("pen", "ink", "paper"))(total.s()).get(timeout=60))
    print("retries:", at_third_try.delay().get(timeout=60))
    began = time.monotonic()
    price.apply_async(("late",), countdown=1).get(timeout=60)
    print(f"a countdown of 1 s took {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    celery = os.path.join(os.path.dirname(sys.executable), "celery")
    command = (celery, "-A", "celery_app", "worker", "--concurrency", "2", "--loglevel", "WARNING")
    worker = subprocess.Popen(command, cwd=os.path.dirname(os.path.abspath(__file__)))
    try:
        main()
    finally:
        worker.terminate()
        worker.wait()
