"""No-op tasks a second through task frameworks, on PopMQ and on Redis, by prefetch.

    python -m bench.peers.frameworks dramatiq taskiq celery --rounds 3

In each round and for each prefetch, both brokers run one after the other: tasks are sent, then one worker runs them
all. The rate is of the runs, from the first to the last. PopMQ syncs each send and ack to the disk; Redis appends to
its file, and syncs once a second (appendfsync everysec).

Celery's worker has CHILDREN processes; its prefetch is for each of them. `celery` keeps no results, as the other two;
`celery-results` does, and `celery-late` also acks late: after the result of a task is stored.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.redis_server import RedisServer
from harness.broker_process import BrokerProcess

PREFETCHES = (1, 32)
BROKERS = ("popmq", "redis")
#: Where workers tell of each run: the standard output of their process, which nothing else then writes to.
RUNS = 9


#: A worker's processes, for each of which Celery prefetches.
CHILDREN = 4


def ran() -> None:
    """The task: a byte to the process that measures, which counts them."""
    os.write(RUNS, b".")


def dramatiq_broker(broker: str, endpoint: str) -> Any:
    if broker == "popmq":
        from popmq_integrations.dramatiq import PopMQBroker

        return PopMQBroker(endpoint)
    return import_module("dramatiq.brokers.redis").RedisBroker(url=f"redis://{endpoint}")


def dramatiq(broker: str, endpoint: str, prefetch: int, tasks: int, works: bool) -> None:
    """Sends the tasks, or runs them."""
    import dramatiq as framework

    made = dramatiq_broker(broker, endpoint)
    framework.set_broker(made)
    actor = framework.actor(actor_name="nothing")(ran)
    if not works:
        for _ in range(tasks):
            actor.send()
        made.close()
        return
    worker = framework.Worker(made, worker_threads=8)
    worker.queue_prefetch = prefetch
    worker.start()
    signal.pause()


def taskiq(broker: str, endpoint: str, prefetch: int, tasks: int, works: bool) -> None:
    """The same."""
    from taskiq.api import run_receiver_task

    if broker == "popmq":
        from popmq_integrations.taskiq import PopMQBroker

        made: Any = PopMQBroker(endpoint)
    else:
        made = import_module("taskiq_redis").RedisStreamBroker(f"redis://{endpoint}", consumer_id="0")

    async def nothing() -> None:
        ran()

    task = made.register_task(nothing, task_name="nothing")

    async def send() -> None:
        await made.startup()
        for _ in range(tasks // 100):
            await asyncio.gather(*(task.kiq() for _ in range(100)))
        await made.shutdown()

    if works:
        made.is_worker_process = True
        asyncio.run(run_receiver_task(made, max_async_tasks=prefetch, run_startup=True))
    else:
        asyncio.run(send())


def celery(
    broker: str, endpoint: str, prefetch: int, tasks: int, works: bool, results: bool = False, late: bool = False
) -> None:
    """The same, with the pool of processes."""
    import celery as framework

    import_module("popmq_integrations.celery")  # kombu knows popmq://
    url = f"{broker}://{endpoint}"
    app = framework.Celery("bench", broker=url, backend=url if results else None)
    app.conf.update(worker_prefetch_multiplier=prefetch, task_acks_late=late)
    task = app.task(name="nothing")(ran)
    if works:
        app.worker_main(["worker", "--concurrency", str(CHILDREN), "--loglevel", "ERROR"])
    else:
        for _ in range(tasks):
            task.delay()


FRAMEWORKS: dict[str, Callable[[str, str, int, int, bool], None]] = {
    "dramatiq": dramatiq,
    "taskiq": taskiq,
    "celery": celery,
    "celery-results": partial(celery, results=True),
    "celery-late": partial(celery, results=True, late=True),
}


@contextmanager
def started(broker: str, folder: Path) -> Iterator[str]:
    """A fresh broker; yields its endpoint."""
    if broker == "popmq":
        with BrokerProcess(folder / "data") as broker_process:
            yield broker_process.endpoint
        return
    redis = RedisServer(folder)
    redis.start()
    try:
        redis.wait()
        yield redis.endpoint
    finally:
        redis.kill()


def rate(framework: str, broker: str, prefetch: int, tasks: int) -> float:
    """Tasks a second of one worker."""
    words = [sys.executable, "-m", "bench.peers.frameworks", "--part", framework, broker]
    with tempfile.TemporaryDirectory() as name, started(broker, Path(name)) as endpoint:
        subprocess.run([*words, endpoint, str(prefetch), str(tasks), "send"], check=True, stderr=subprocess.DEVNULL)
        worker = subprocess.Popen(
            [*words, endpoint, str(prefetch), str(tasks), "work"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert worker.stdout is not None
        try:
            first, left = 0.0, tasks
            while left:
                told = os.read(worker.stdout.fileno(), left)
                assert told, f"the worker of {framework} on {broker} ended by itself"
                first, left = first or time.monotonic(), left - len(told)
            return tasks / (time.monotonic() - first)
        finally:
            worker.terminate()
            worker.wait()
            worker.stdout.close()


def main() -> None:
    if sys.argv[1:2] == ["--part"]:
        name, broker, endpoint, in_hand, tasks, what = sys.argv[2:]
        os.dup2(1, RUNS)
        os.dup2(2, 1)  # Celery prints a banner
        FRAMEWORKS[name](broker, endpoint, int(in_hand), int(tasks), what == "work")
        return
    asked = argparse.ArgumentParser(description="No-op tasks a second through frameworks, on PopMQ and on Redis.")
    asked.add_argument("frameworks", nargs="+", choices=sorted(FRAMEWORKS))
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--tasks", type=int, default=2000)
    given = asked.parse_args()
    print("| | prefetch | PopMQ | Redis | PopMQ / Redis |", "|---|--:|--:|--:|--:|", sep="\n", flush=True)
    for framework in given.frameworks:
        for prefetch in PREFETCHES:
            found: dict[str, list[float]] = {broker: [] for broker in BROKERS}
            for _ in range(given.rounds):
                for broker in BROKERS:
                    found[broker].append(rate(framework, broker, prefetch, given.tasks))
            ours, theirs = (statistics.median(found[broker]) for broker in BROKERS)
            row = f"| {framework} | {prefetch} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
