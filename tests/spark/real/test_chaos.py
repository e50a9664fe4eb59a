"""Both modes of the source into a table and into a topic, while driver, Python workers, broker and tasks are killed.

    make chaos-spark       100,000 messages through each of six queries, 300 micro-batches, twenty kills, and a table

BATCHES=200 makes it longer: so many micro-batches of each query, from the same messages, and four times as many kills.

The whole form runs on executors of their own (local-cluster), and also into Delta, on a Spark for
which there is a Delta: `make chaos-spark` installs it into build/delta. A killed driver takes longer to come back than
its leases of two seconds last. The short form has a few messages and one kill of each kind; the tests' own Spark
finishes what the killed driver left. Tasks fail, and each kind of sink before and after its commit; in the whole form
leases run out too, and all of this is counted. At the end every place holds each message exactly once, and every group
has acked everything.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.table import Table

import popmq
from harness.broker_process import BrokerProcess
from tests.conftest import WHOLE
from tests.known import known
from tests.spark.real import faults
from tests.spark.real.chaos_driver import move
from tests.spark.real.conftest import in_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # py4j leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

#: Micro-batches of each query.
BATCHES = int(os.environ.get("POPMQ_CHAOS_BATCHES") or 50) if WHOLE else 3
MESSAGES = 100_000 if WHOLE else 600
ROWS_PER_TRIGGER = MESSAGES // BATCHES
MASTER = "local-cluster[2,1,1024]" if WHOLE else "local[2,4]"
#: A Python with a Spark that has a Delta.
DELTA_PYTHON = Path("build/delta/bin/python")
#: What messages pass through: a mode of the source, and a sink.
SHORT = ("lease-table", "offsets-topic")
WITH_DELTA = WHOLE and DELTA_PYTHON.exists()
PATHS = (*SHORT, *(("lease-topic", "offsets-table") if WHOLE else ()), *(("lease-delta", "offsets-delta") * WITH_DELTA))
#: What is killed, in this order in the short form; each once in every round of the whole one.
VICTIMS = ("worker", "broker", "driver", *(("executor",) * WHOLE))
KILLS = max(1, BATCHES // 10) * len(VICTIMS)
#: What a victim's command line has. Of Python workers the newest is killed: the oldest one forks the others.
PROCESSES = {"worker": b"pyspark.daemon", "executor": b"CoarseGrainedExecutorBackend"}
#: What has to have failed before a commit and after it.
SINKS = {path.partition("-")[2] for path in PATHS}
#: Longer than any driver takes; a run that hangs ends here.
DRIVER_S = 1800.0 if WHOLE else 100.0


class Kills:
    """What is killed next, and after how many micro-batches; and what was killed."""

    def __init__(self) -> None:
        self.done = Counter[str]()
        self._dice = random.Random()
        self._round: list[str] = []
        self._choose()

    @property
    def over(self) -> bool:
        return self.done.total() == KILLS

    def hit(self) -> None:
        self.done[self.victim] += 1
        self._choose()

    def _choose(self) -> None:
        if not self._round:
            self._round = self._dice.sample(VICTIMS, len(VICTIMS)) if WHOLE else [*VICTIMS]
        self.victim, *self._round = self._round
        self.batches = self._dice.randint(1, 8) if WHOLE else 1
        #: Looks at the driver after those: any moment of a micro-batch.
        self.looks = self._dice.randrange(40) if WHOLE else 0


class Driver:
    """The processes of one driver: Java, Python runners, Python workers. All are in one session of their own."""

    def __init__(self, endpoint: str, folder: Path) -> None:
        self._folder = folder
        python = str(DELTA_PYTHON) if WITH_DELTA else sys.executable
        command = [python, "-W", "ignore", "-m", "tests.spark.real.chaos_driver", endpoint, str(folder)]
        with (folder / "driver.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(ROWS_PER_TRIGGER), MASTER, *PATHS], stdout=log, stderr=log, start_new_session=True
            )

    def ended(self) -> int | None:
        return self._process.poll()

    def batches(self) -> int:
        """Micro-batches that are planned, of all queries: files of Spark's log. 0 while a query has begun without one.

        Spark refuses a checkpoint whose driver died while it wrote the very first of these files.
        """
        begun = [self._folder / f"checkpoint-{path}" for path in PATHS]
        planned = [sum(1 for _ in (place / "offsets").glob("[0-9]*")) for place in begun if place.exists()]
        return sum(planned) if all(planned) else 0

    def kill(self) -> None:
        """Kills everything that it started, Java first."""
        os.killpg(self._process.pid, signal.SIGKILL)
        for pid in self._pids(b""):
            _kill(pid)
        self._process.wait()

    def kill_one(self, text: bytes) -> bool:
        """Kills the newest of its processes whose command line has the text; False when there is none now."""
        found = self._pids(text)
        if found:
            _kill(max(found))
        return bool(found)

    def _pids(self, text: bytes) -> list[int]:
        """Processes of the session whose command line has the text."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self._process.pid:
                    found += [int(entry.name)] if text in (entry / "cmdline").read_bytes() else []
            except OSError:
                continue
        return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended since it was found
        os.kill(pid, signal.SIGKILL)


class Leases:
    """The messages that queries hold, and how many leases ran out: these messages wait in the retry topic.

    Nothing else sends messages there: no query releases any.
    """

    def __init__(self, client: popmq.Client) -> None:
        self._client = client
        self._next = 0.0
        self._retry: dict[str, int] = {}
        self.in_flight = self.ran_out = 0

    def look(self) -> None:
        """Each half a second at most. Between two looks messages may come back and be popped: they are not counted."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.5
        groups = [row for row in self._client.broker.stats("in").groups if row.group.startswith("lease-")]
        self.in_flight = sum(known(row.in_flight) for row in groups)
        self.ran_out += sum(max(0, row.retry - self._retry.get(row.group, 0)) for row in groups)
        self._retry = {row.group: row.retry for row in groups}


@pytest.mark.timeout(0 if WHOLE else 300)
def test_each_message_is_in_each_place_once_whatever_is_killed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    kills = Kills()
    with BrokerProcess(tmp_path / "broker", own_session=True) as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create("in", queues=4)
        sent = Counter(str(number) for number in range(MESSAGES))
        for path in PATHS:
            client.topics.create(path, queues=2)
        bodies = [*sent]
        for first in range(0, MESSAGES, 250):
            client.send("in", bodies[first : first + 250])
        began, drivers, leases = time.monotonic(), 0, Leases(client)
        while not (tmp_path / "tables.json").exists() and (WHOLE or not kills.over):
            drivers += 1
            run(Driver(broker.endpoint, tmp_path), broker, kills, leases)
            assert drivers <= KILLS + 3, (tmp_path / "driver.log").read_text()[-3000:]
        if not WHOLE:
            spark: SparkSession = request.getfixturevalue("spark")
            move(spark, broker.endpoint, tmp_path, ROWS_PER_TRIGGER, PATHS)
        found = tables(tmp_path)
        found |= {path: in_topic(client, path) for path in PATHS if path.endswith("-topic")}
        groups = {f"{row.group}": row for row in client.broker.stats("in").groups}
    batches = {path: sum(1 for _ in (tmp_path / f"checkpoint-{path}" / "commits").glob("[0-9]*")) for path in PATHS}
    failed = faults.counted(tmp_path)
    show(found, sent, batches, f"{drivers} drivers, kills: {dict(kills.done)}, {time.monotonic() - began:.0f} s")
    show_failures(failed, leases.ran_out)
    assert found == dict.fromkeys(PATHS, sent)
    assert {(row.ready, row.retry, row.in_flight) for row in groups.values()} == {(0, 0, 0)}
    assert kills.done == dict.fromkeys(VICTIMS, KILLS // len(VICTIMS))
    assert {(when, sink) for when in ("before", "after") for sink in SINKS} <= failed.keys()
    if WHOLE:
        assert leases.ran_out > 0
        assert any(what == "task" for what, _ in failed)


def run(driver: Driver, broker: BrokerProcess, kills: Kills, leases: Leases) -> None:
    """One driver, until it ends or is killed. Each kill waits for new micro-batches, to have something to hit."""
    deadline, seen = time.monotonic() + DRIVER_S, driver.batches()
    try:
        while driver.ended() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            leases.look()
            if kills.over:
                if not WHOLE:
                    return
            elif driver.batches() >= seen + kills.batches:
                kills.looks -= 1
                # A driver is killed while it holds messages, so that its leases run out.
                ready = kills.victim != "driver" or leases.in_flight or not WHOLE
                if kills.looks < 0 and ready and hit(kills.victim, driver, broker):
                    kills.hit()
                    seen = driver.batches()
    finally:
        driver.kill()


def hit(victim: str, driver: Driver, broker: BrokerProcess) -> bool:
    if victim in PROCESSES:
        return driver.kill_one(PROCESSES[victim])
    if victim == "broker":
        broker.kill()
        broker.start()
    else:
        driver.kill()
    return True


def tables(folder: Path) -> dict[str, Counter[str]]:
    return {path: Counter(bodies) for path, bodies in json.loads((folder / "tables.json").read_text()).items()}


def show(found: dict[str, Counter[str]], sent: Counter[str], batches: dict[str, int], what: str) -> None:
    title = f"{MESSAGES:,} messages, {sum(batches.values())} micro-batches, {what}"
    table = Table("place", "micro-batches", "messages", "missing", "more than once", title=title)
    for place, counted in found.items():
        numbers: Iterable[int] = (counted.total(), (sent - counted).total(), (counted - sent).total())
        table.add_row(place, str(batches[place]), *(f"{number:,}" for number in numbers))
    Console(width=100).print(table)


def show_failures(failed: Counter[tuple[str, str]], ran_out: int) -> None:
    table = Table("failed", *sorted(SINKS), title=f"{ran_out:,} messages whose lease ran out")
    kinds = {
        "task": "a task, once",
        "before": "the sink before its commit",
        "after": "the sink after its commit",
    }
    for kind, words in kinds.items():
        table.add_row(words, *(str(failed[kind, sink]) for sink in sorted(SINKS)))
    Console(width=100).print(table)
