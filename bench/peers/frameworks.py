"""No-op tasks a second through Dramatiq and taskiq, on PopMQ and on Redis, by prefetch.

    python -m bench.peers.frameworks dramatiq taskiq --rounds 3

In each round and for each prefetch, both brokers run one after the other: tasks are sent, then one worker process runs
them all. The rate is of the runs, from the first to the last. PopMQ syncs each send and ack to the disk; Redis appends
to its file, and syncs once a second (appendfsync everysec).
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers import install
from harness.broker_process import BrokerProcess, own_port

PREFETCHES = (1, 32)
BROKERS = ("popmq", "redis")


class Tally:
    """Counts runs in a worker; tells the seconds from the first to the last, and ends the process."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._ran = 0
        self._first = 0.0
        self._lock = threading.Lock()

    def ran(self) -> None:
        with self._lock:
            self._ran += 1
            if self._ran == 1:
                self._first = time.monotonic()
            if self._ran == self._tasks:
                print(time.monotonic() - self._first, flush=True)


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
    tally = Tally(tasks)
    actor = framework.actor(actor_name="nothing")(tally.ran)
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
    tally = Tally(tasks)

    async def nothing() -> None:
        tally.ran()

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


FRAMEWORKS: dict[str, Callable[[str, str, int, int, bool], None]] = {"dramatiq": dramatiq, "taskiq": taskiq}


@contextmanager
def started(broker: str, folder: Path) -> Iterator[str]:
    """A fresh broker; yields its endpoint."""
    if broker == "popmq":
        with BrokerProcess(folder / "data") as broker_process:
            yield broker_process.endpoint
        return
    port = own_port()
    words = [str(install.redis()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(install.LIBRARIES)}
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen([*words, "--appendonly", "yes"], stdout=log, stderr=log, env=environment)
    try:
        while "Ready to accept" not in (folder / "redis.log").read_text():
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def rate(framework: str, broker: str, prefetch: int, tasks: int) -> float:
    """Tasks a second of one worker process."""
    words = [sys.executable, "-m", "bench.peers.frameworks", "--part", framework, broker]
    with tempfile.TemporaryDirectory() as name, started(broker, Path(name)) as endpoint:
        subprocess.run([*words, endpoint, str(prefetch), str(tasks), "send"], check=True, stderr=subprocess.DEVNULL)
        worker = subprocess.Popen(
            [*words, endpoint, str(prefetch), str(tasks), "work"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert worker.stdout is not None
        try:
            return tasks / float(worker.stdout.readline())
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()


def main() -> None:
    if sys.argv[1:2] == ["--part"]:
        name, broker, endpoint, in_hand, tasks, what = sys.argv[2:]
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
