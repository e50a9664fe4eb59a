"""Measures how long tasks of others wait beside one tenant's backlog: Celery's round robin over Redis, and fair keys.

    python -m bench.features.celery_turns [--waiting 100000]

Celery has a queue for each of 100 tenants; its worker takes from them in turn (`queue_order_strategy`, round robin by
default), four tasks at a time, without prefetching more. PopMQ has one topic with fair keys and four workers. A task
takes 5 ms in both, and both get 400 tasks of others, one by one.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import popmq
from bench.features.fair_keys import BUSY, EVERY_S, OTHERS, WORK_S, WORKERS, waits
from bench.measuring.measure import percentile, subject
from bench.peers.frameworks import started

TENANTS = 100
#: Where tasks put the milliseconds that they waited.
FOUND = "found"
#: Copies of a task in one request.
COPIES = 1000


def app_of(endpoint: str) -> Any:
    """The Celery app of senders and workers."""
    app = import_module("celery").Celery(broker=f"redis://{endpoint}")
    app.conf.worker_prefetch_multiplier = 1
    return app


def queue_of(tenant: int) -> str:
    return f"tenant-{tenant}"


def work(endpoint: str) -> None:
    """The worker."""
    app, store = app_of(endpoint), redis_of(endpoint)

    def handle(sent: float) -> None:
        if sent:
            store.rpush(FOUND, 1e3 * (time.monotonic() - sent))
        time.sleep(WORK_S)

    app.task(handle, name="handle")
    queues = ",".join((BUSY, *map(queue_of, range(TENANTS))))
    plain = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")
    app.worker_main(["worker", "--pool=threads", f"--concurrency={WORKERS}", f"--queues={queues}", *plain])


def redis_of(endpoint: str) -> Any:
    host, _, port = endpoint.rpartition(":")
    return import_module("redis").Redis(host, int(port))


@contextmanager
def working(endpoint: str) -> Iterator[None]:
    words = [sys.executable, "-m", "bench.features.celery_turns", "--work", endpoint]
    worker = subprocess.Popen(words, env={**os.environ, "PYTHONWARNINGS": "ignore"}, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def of_celery(endpoint: str, backlog: int, every_s: float) -> list[float]:
    """Milliseconds that the tasks of others waited."""
    app, store = app_of(endpoint), redis_of(endpoint)
    store.flushall()
    if backlog:
        app.send_task("handle", (0.0,), queue=BUSY)
        (task,) = store.lrange(BUSY, 0, -1)
        for _ in range(backlog // COPIES):
            store.lpush(BUSY, *[task] * COPIES)
    with working(endpoint):
        app.send_task("handle", (time.monotonic(),), queue=queue_of(0))
        while not store.llen(FOUND):  # the worker has started
            time.sleep(0.05)
        store.delete(FOUND)
        began = time.monotonic()
        for number in range(OTHERS):
            time.sleep(max(0.0, began + every_s * number - time.monotonic()))
            app.send_task("handle", (time.monotonic(),), queue=queue_of(number % TENANTS))
        until = time.monotonic() + 60
        while store.llen(FOUND) < OTHERS and time.monotonic() < until:
            time.sleep(0.05)
        found = sorted(map(float, store.lrange(FOUND, 0, -1)))
    assert len(found) == OTHERS, f"{len(found)} of {OTHERS} tasks ran within a minute"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.features.celery_turns")
    parser.add_argument("--waiting", type=int, default=100_000, help="tasks of the tenant with a backlog")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between two tasks of others")
    parser.add_argument("--work", metavar="ENDPOINT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    with tempfile.TemporaryDirectory(prefix="popmq-fair-") as name:
        with started("redis", Path(name)) as endpoint:
            print("| Redis and Celery: backlog of one tenant | p50 ms | p99 ms |\n|---|--:|--:|")
            for backlog in (0, options.waiting):
                found = of_celery(endpoint, backlog, options.every)
                print(f"| {backlog:,} | {percentile(found, 0.5):.1f} | {percentile(found, 0.99):.1f} |", flush=True)
        with subject(Path(name) / "broker") as broker, popmq.Client(broker.endpoint) as client:
            waits(broker, client, options.waiting, options.every)


if __name__ == "__main__":
    main()
