"""Workers that pass each message on: a ─▶ b ─▶ c ─▶ d, each step in the commit of its ack; and what is in the topics.

python -m tests.crash.settling.chain HOST:PORT     one worker, until it is killed
"""

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Self

import popmq
from harness.broker_process import ROOT

TOPICS, GROUP = ("a", "b", "c", "d"), "chain"
#: Seconds: what a killed worker held comes again soon.
LEASE_S = 1.0


def create(client: popmq.Client) -> None:
    client.groups.create(GROUP, invisible=LEASE_S, max_attempts=1000, backoff=[0.0])
    for topic in TOPICS:
        client.topics.create(topic, queues=2)


def worker(endpoint: str) -> popmq.Worker:
    made = popmq.Worker(endpoint)
    for source, target in itertools.pairwise(TOPICS):
        made.on(source, group=GROUP)(passing_to(target))
    return made


def passing_to(target: str) -> Callable[[popmq.Delivery], popmq.Send]:
    def pass_on(delivery: popmq.Delivery) -> popmq.Send:
        return popmq.Send(target, popmq.Message(delivery.body, properties={"attempt": str(delivery.attempt)}))

    return pass_on


class WorkerProcess:
    """A worker in a process of its own, which can be killed and started again."""

    def __init__(self, endpoint: str) -> None:
        self._command = [sys.executable, "-m", "tests.crash.settling.chain", endpoint]
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def check(self) -> None:
        """Raises AssertionError for a worker that has ended by itself: its messages would be waited for for ever."""
        assert self._process.poll() is None, f"a worker has ended by itself, with {self._process.returncode}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def spawn(self) -> None:
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def messages(client: popmq.Client, topic: str) -> list[popmq.Delivery]:
    """All messages of a topic."""
    found: list[popmq.Delivery] = []
    for queue in range(2):
        offset = 0
        while (page := client.messages.browse(topic, queue, offset, 4096)).deliveries:
            found += page.deliveries
            offset = page.next_offset
    return found


def unfinished(client: popmq.Client) -> int:
    """How many messages of all topics but the last their group has not done."""
    rows = [row for row in client.broker.stats(group=GROUP).groups if row.topic != TOPICS[-1]]
    return sum((row.ready or 0) + (row.in_flight or 0) + (row.retry or 0) + (row.backoff or 0) for row in rows)


if __name__ == "__main__":
    worker(sys.argv[1]).run()
