"""Kills workers and brokers while tasks run, and counts what became of the tasks.

    python -m tests.integrations.campaign.campaign dramatiq taskiq --kills 1000 --broker-kills 20 --seconds 300

A producer sends numbered tasks, a third of them for later. Each run appends to a log. At the end:

lost      tasks whose send returned, and which never ran
early     runs before their time
again     repeated runs: at-least-once, since their worker was killed between the run and its ack
outage    repeated runs, since the broker was away for longer than what was left of their lease
twice     repeated runs, although neither the worker nor the broker was killed since
most      repeated runs after one kill of a worker, at most
missing   tasks that ran, and have no result
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from bench.peers.redis_server import RedisServer
from harness.broker_process import BrokerProcess
from tests.integrations.campaign.adapters import ADAPTERS, Adapter

#: Seconds without a new run after which what has not run counts as lost: several leases, and Redis's maintenance.
QUIET_S = 30.0
#: Clocks of Redis's delays are whole milliseconds.
EARLY_S = 0.002
#: Seconds after an outage in which workers begin tasks that they had prefetched before it, whose leases it outlasted.
PREFETCHED_S = 5.0


class Process(Protocol):
    """A broker that is killed and started again on its data."""

    @property
    def endpoint(self) -> str: ...

    def start(self) -> Any: ...
    def kill(self) -> Any: ...


@dataclass
class Counts:
    """What a campaign found."""

    framework: str
    broker: str
    sent: int = 0
    kills: int = 0
    broker_kills: int = 0
    runs: int = 0
    lost: int = 0
    early: int = 0
    again: int = 0
    outage: int = 0
    twice: int = 0
    most: int = 0
    missing: int = 0
    seconds: float = 0.0
    details: list[str] = field(default_factory=list)

    def row(self) -> str:
        shown = [str(getattr(self, each.name)) for each in fields(self)[:-2]]
        return f"| {' | '.join(shown)} | {self.seconds:.0f} |"


HEADER = f"| {' | '.join(each.name for each in fields(Counts)[:-1])} |".replace("_", " ")


@dataclass(frozen=True)
class Plan:
    """How long, and how much is killed."""

    kills: int
    broker_kills: int
    seconds: float
    rate: float = 100.0  # tasks a second
    delay: float = 3.0  # seconds, at most


@contextmanager
def killing_workers(
    framework: str, broker: str, endpoint: str, plan: Plan, log: Path
) -> Iterator[list[tuple[int, float]]]:
    """Workers, some of which are killed; yields the kills so far."""
    words = [framework, broker, endpoint, str(plan.kills), str(plan.seconds), "8"]
    environment = {**os.environ, "POPMQ_CAMPAIGN_LOG": str(log)}
    kills: list[tuple[int, float]] = []
    with log.with_suffix(".workers").open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integrations.campaign.workers", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", log.with_suffix(".workers").read_text()

    def read() -> None:
        for line in process.stdout or ():
            _, pid, when = line.split()
            kills.append((int(pid), float(when)))

    reading = threading.Thread(target=read)
    reading.start()
    try:
        yield kills
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        reading.join()
        process.stdout.close()


def produce(adapter: Adapter, plan: Plan, until: float) -> dict[int, Any]:
    """Sends tasks at a steady rate; returns those that are known to be stored."""
    sent: dict[int, Any] = {}
    began, number = time.monotonic(), 0
    while time.monotonic() < until:
        delay = random.uniform(0.05, plan.delay) if adapter.delays and number % 3 == 0 else 0.0
        try:
            sent[number] = adapter.send(number, time.time() + delay, delay)
        except Exception:  # the broker is away: it is not known whether the task is stored
            time.sleep(0.05)
        number += 1
        time.sleep(max(0.0, began + number / plan.rate - time.monotonic()))
    return sent


def kill_brokers(broker: Process, plan: Plan, outages: list[tuple[float, float]]) -> None:
    """kill -9 of the broker, spread evenly, each followed by a start at once: notes when it was away."""
    for _ in range(plan.broker_kills):
        threading.Event().wait(plan.seconds / plan.broker_kills * random.uniform(0.7, 1.0))
        broker.kill()
        killed = time.time()
        broker.start()
        outages.append((killed, time.time()))


def runs_of(log: Path) -> dict[int, list[tuple[float, float, float, int]]]:
    """Number → (due, begun, ended, process) of each run."""
    found = defaultdict(list)
    for line in log.read_text().splitlines() if log.exists() else ():
        number, due, begun, ended, process = line.split()
        found[int(number)].append((float(due), float(begun), float(ended), int(process)))
    return found


def settle(log: Path, sent: dict[int, Any]) -> None:
    """Waits until all tasks have run, or none has for a while."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S and not sent.keys() <= runs_of(log).keys():
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        time.sleep(0.5)


def missing_results(adapter: Adapter, numbers: dict[int, Any]) -> list[int]:
    """Those without a result, asked again for ten seconds: acks are on their way."""
    until = time.monotonic() + 10.0
    left = dict(numbers)
    while left and time.monotonic() < until:
        left = {number: each for number, each in left.items() if not adapter.result(each)}
        time.sleep(0.2)
    return sorted(left)


def judge(
    counts: Counts, runs: dict[int, Any], killed: list[tuple[int, float]], outages: list[tuple[float, float]]
) -> None:
    """Sorts the runs. A repeated run has a cause if its first worker was killed, or the broker was away, meanwhile."""
    ends = dict(killed)
    by_worker: Counter[int] = Counter()
    for number, found in runs.items():
        found.sort(key=lambda run: run[1])
        counts.runs += len(found)
        counts.early += sum(begun < due - EARLY_S for due, begun, _, _ in found)
        for (_, before, _, process), (_, begun, _, _) in itertools.pairwise(found):
            if process in ends and ends[process] <= begun:
                counts.again += 1
                by_worker[process] += 1
            elif any(before - PREFETCHED_S <= up and down <= begun for down, up in outages):
                counts.outage += 1
            else:
                counts.twice += 1
                counts.details.append(f"task {number} ran at {before} in {process} and at {begun}")
    if counts.twice:
        counts.details += [f"the broker was away from {down} to {up}" for down, up in outages]
    counts.most = max(by_worker.values(), default=0)


def run(framework: str, broker_name: str, plan: Plan) -> Counts:
    """One campaign."""
    counts = Counts(framework, broker_name)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker: Process = BrokerProcess(folder / "data") if broker_name == "popmq" else RedisServer(folder)
        log, outages = folder / "runs.txt", list[tuple[float, float]]()
        broker.start()
        try:
            adapter = ADAPTERS[framework, broker_name](broker.endpoint)
            with killing_workers(framework, broker_name, broker.endpoint, plan, log) as killed:
                chaos = threading.Thread(target=kill_brokers, args=(broker, plan, outages))
                chaos.start()
                sent = produce(adapter, plan, time.monotonic() + plan.seconds)
                chaos.join()
                settle(log, sent)
                runs = runs_of(log)
                done = {number: each for number, each in sent.items() if number in runs}
                missing = missing_results(adapter, done)
            judge(counts, runs, killed, outages)
        finally:
            broker.kill()
    lost = sorted(sent.keys() - runs.keys())
    counts.sent, counts.kills, counts.broker_kills = len(sent), len(killed), len(outages)
    counts.lost, counts.missing = len(lost), len(missing)
    counts.details += [f"lost: {lost[:20]}"] * bool(lost) + [f"without a result: {missing[:20]}"] * bool(missing)
    counts.seconds = time.monotonic() - began
    return counts


def main() -> None:
    asked = argparse.ArgumentParser(description="Kills workers and brokers of task frameworks, on PopMQ and on Redis.")
    asked.add_argument("frameworks", nargs="+", choices=sorted({framework for framework, _ in ADAPTERS}))
    asked.add_argument("--brokers", nargs="+", default=["popmq", "redis"], choices=["popmq", "redis"])
    asked.add_argument("--kills", type=int, default=1000)
    asked.add_argument("--broker-kills", type=int, default=20)
    asked.add_argument("--seconds", type=float, default=240.0)
    given = asked.parse_args()
    plan = Plan(given.kills, given.broker_kills, given.seconds)
    print(HEADER, "|---" * (len(fields(Counts)) - 1) + "|", sep="\n", flush=True)
    for framework in given.frameworks:
        for broker in given.brokers:
            if (framework, broker) not in ADAPTERS:
                print(f"{framework} has nothing that works on {broker}", file=sys.stderr)
                continue
            counts = run(framework, broker, plan)
            print(counts.row(), *counts.details, sep="\n", flush=True)


if __name__ == "__main__":
    main()
