"""Compares PopMQ with other brokers, one after the other on this machine, and writes a page of tables and plots.

    make bench-compare                                 three rounds, under 30 minutes
    python -m bench.compare --only popmq-python redis-always --rounds 1
    python -m bench.compare --python --rounds 1        PopMQ's SDK beside durable queues that are Python libraries

A round starts each broker with an empty data folder, and runs its legs (WORK) with the same load generator
(bench/loadgen; Python libraries have one in Python, bench/peers/drivers). The median of the rounds is reported. A
broker that is not installed is left out, with the reason. Close other programs first; the report has the share of the
cores that they used.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import reach
from bench.measuring.disk import DiskWatch
from bench.measuring.measure import busy_s, machine
from bench.peers import brokers, install
from bench.peers.brokers import Broker, Start
from bench.peers.install import Missing
from bench.tables import PYTHON_RESULTS, medians, put_floors, put_python, python_section, write
from harness.broker_process import ROOT

SECONDS, ROUNDS, RATE = 4.0, 3, 1_000
LEG_S = 60.0
#: Seconds of load before the first leg of a face: just-in-time compilers need some.
WARM_S = 2.0
RESULTS = ROOT / "docs" / "benchmarks" / "results.json"


@dataclass(frozen=True)
class Work:
    """One leg. Figures of legs with the same `name` are compared."""

    name: str
    leg: str
    topic: str
    batch: int = 1
    callers: int = 1


SEND_1 = Work("send 1, 64 callers", "send", "b1", 1, 64)
SEND_32 = Work("send 32, 16 callers", "send", "b32", 32, 16)
SEND_256 = Work("send 256, 8 callers", "send", "b256", 256, 8)
TAKE_1 = Work("receive + ack 1, 64 callers", "receive", "b1", 1, 64)
TAKE_32 = Work("receive + ack 32, 16 callers", "receive", "b32", 32, 16)
TAKE_256 = Work("receive + ack 256, 8 callers", "receive", "b256", 256, 8)
ALONE = Work("send 1, one caller", "send", "b1")
DELIVER = Work(f"send → received at {RATE:,}/s", "deliver", "live", 1, 64)
WORDS = (SEND_1, SEND_32, SEND_256, TAKE_1, TAKE_32, TAKE_256, ALONE, DELIVER)
WARM_UP = (Work("", "send", "warm", 32, 16), Work("", "receive", "warm", 32, 16))
WARM_UP_BY_ONE = (Work("", "send", "warm", 1, 16), Work("", "receive", "warm", 1, 16))
#: The legs of each protocol. The order matters: receiving legs read the messages of the sending legs.
NATIVE = (SEND_1, SEND_256, TAKE_256, TAKE_1, ALONE, DELIVER)
ROCKETMQ = (SEND_1, SEND_32, TAKE_32, ALONE, DELIVER)
PYTHON = (ALONE, SEND_1, SEND_256, TAKE_256, TAKE_1)
STREAMS = (SEND_1, SEND_32, SEND_256, TAKE_32, TAKE_256, ALONE, DELIVER)


@dataclass(frozen=True)
class Subject:
    """A broker and its protocols: `faces` are the targets of the load generator, with their legs.

    `program`: builds the load generator, and returns the words that start it.
    """

    start: Start
    faces: Mapping[str, Sequence[Work]]
    program: Callable[[], Sequence[str | Path]] = lambda: [install.loadgen()]
    warm_up: Sequence[Work] = WARM_UP


BOTH = {"popmq": NATIVE, "rocketmq": ROCKETMQ}
SUBJECTS = {
    "popmq-python": Subject(brokers.popmq("python"), BOTH),
    "popmq-grpcio": Subject(brokers.popmq("grpcio"), BOTH),
    "rocketmq-async": Subject(brokers.rocketmq("ASYNC_FLUSH"), {"rocketmq": ROCKETMQ}),
    "rocketmq-sync": Subject(brokers.rocketmq("SYNC_FLUSH"), {"rocketmq": ROCKETMQ}),
    "redis-always": Subject(brokers.redis, {"redis": STREAMS}),
    "nats": Subject(brokers.nats("2m"), {"nats": ROCKETMQ}),
    "nats-always": Subject(brokers.nats("always"), {"nats": ROCKETMQ}),
    "rabbitmq-quorum": Subject(brokers.rabbitmq, {"rabbitmq": ROCKETMQ}),
}


def from_python(start: Start, face: str, works: Sequence[Work]) -> Subject:
    """A subject whose load program is in Python. A library without a batch is warmed up without one."""
    return Subject(start, {face: works}, lambda: [sys.executable, "-m", "bench.peers.drivers"], WARM_UP_BY_ONE)


#: Durable queues that are Python libraries, and PopMQ with either load program. They are compared with each other only.
PYTHON_SUBJECTS = {
    "popmq-python": Subject(brokers.popmq("python"), {"popmq": PYTHON}),
    "popmq-sdk": from_python(brokers.popmq("python"), "popmq-sdk", PYTHON),
    "popmq-embedded": from_python(brokers.library("data", dict), "popmq-embedded", PYTHON),
    "pgqueuer": from_python(brokers.pgqueuer, "pgqueuer", PYTHON),
    "honker": from_python(brokers.library("queue.db"), "honker", PYTHON),
    "honker-full": from_python(brokers.library("queue.db"), "honker-full", PYTHON),
    "simplebroker": from_python(
        brokers.library("queue.db"), "simplebroker", [work for work in PYTHON if work is not SEND_256]
    ),
}


@dataclass
class Figure:
    """One leg of one round. `others`: what share of all cores other programs took.

    `disk_ms`: the longest that a sync of another file took meanwhile (disk.py).
    """

    broker: str
    face: str
    work: str
    round: int
    messages: int
    messages_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    server_us: float
    load_us: float
    fsyncs: float | None
    undelivered: int
    others: float
    disk_ms: float


def load(
    program: Sequence[str | Path],
    broker: Broker,
    face: str,
    work: Work,
    number: int,
    seconds: float,
    name: str,
    disk: DiskWatch,
) -> Figure:
    """Runs one leg. Raises Missing when it failed."""
    words: list[object] = [*program, "-target", face, "-endpoint", broker.endpoint]
    words += ["-leg", work.leg, "-topic", f"{face}-{work.topic}"]
    words += ["-batch", work.batch, "-callers", work.callers, "-seconds", seconds, "-rate", RATE]
    pipe = subprocess.PIPE
    environment = {**os.environ, **broker.environment}
    process = subprocess.Popen(list(map(str, words)), env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    disk.take_ms()
    cpu, busy, began, fsyncs = broker.cpu_s(), busy_s(), time.monotonic(), broker.fsyncs()
    try:
        output, errors = process.communicate("go\n", LEG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Missing(f"the leg took more than {LEG_S:g} s") from None
    cpu, busy, elapsed = broker.cpu_s() - cpu, busy_s() - busy, time.monotonic() - began
    if process.returncode:
        raise Missing(errors.strip()[-300:])
    told: dict[str, Any] = json.loads(output)
    messages = max(told["messages"], 1)
    now = broker.fsyncs()
    return Figure(
        name, face, work.name, number, told["messages"], told["messages"] / told["elapsed_s"],
        told["p50_ms"], told["p99_ms"], told["p999_ms"], cpu * 1e6 / messages, told["load_cpu_s"] * 1e6 / messages,
        None if now is None or fsyncs is None else (now - fsyncs) / messages, told["undelivered"],
        max(0.0, busy - cpu - told["load_cpu_s"]) / elapsed / len(os.sched_getaffinity(0)), disk.take_ms(),
    )  # fmt: skip


def one_round(
    name: str, subject: Subject, number: int, scratch: Path, seconds: float, tell: Callable[[str], None]
) -> list[Figure]:
    """All legs of one broker; a leg that fails is reported and left out."""
    figures: list[Figure] = []
    program = subject.program()
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch)))
        disk, broker = open_.enter_context(DiskWatch(folder)), open_.enter_context(subject.start(folder))
        for face, works in subject.faces.items():
            topics = sorted({f"{face}-{work.topic}" for work in (*subject.warm_up, *works)})
            # PopMQ's topics are created through popmq.v1, whichever protocol is measured.
            for target in ("popmq", face) if name.startswith("popmq") and face == "rocketmq" else (face,):
                prepare(program, broker, target, topics)
            for work in subject.warm_up:
                load(program, broker, face, work, number, WARM_S, name, disk)
            for work in works:
                try:
                    figures.append(load(program, broker, face, work, number, seconds, name, disk))
                except Missing as missing:
                    tell(f"{name}, {work.name}: {missing}")
    return figures


def prepare(program: Sequence[str | Path], broker: Broker, target: str, topics: Sequence[str]) -> None:
    """Creates the topics."""
    for topic in topics:
        broker.make(topic)
    words = ["-target", target, "-endpoint", broker.endpoint, "-leg", "prepare", "-topic", ",".join(topics)]
    install.run([*program, *words], environment=broker.environment)


def all_rounds(
    subjects: Mapping[str, Subject], rounds: int, scratch: Path, seconds: float, tell: Callable[[str], None]
) -> tuple[list[Figure], dict[str, str]]:
    """The figures of all rounds, and the reasons why brokers were left out. A round takes the brokers in turn."""
    figures, missing = list[Figure](), dict[str, str]()
    for number in range(1, rounds + 1):
        for name in [one for one in subjects if one not in missing]:
            tell(f"round {number} of {rounds}, {name}")
            try:
                figures += one_round(name, subjects[name], number, scratch, seconds, tell)
            except Missing as reason:
                missing[name] = str(reason)
                tell(f"{name} is left out: {reason}")
    return figures, missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices={**SUBJECTS, **PYTHON_SUBJECTS}, help="only these brokers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each leg")
    parser.add_argument("--scratch", type=Path, help="where the data folders go: the disk that is measured")
    parser.add_argument("--keep", action="store_true", help=f"write BENCHMARKS.md and {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--floors", action="store_true", help="only the table of floors, which goes into BENCHMARKS.md")
    parser.add_argument(
        "--python", action="store_true", help="durable queues in Python: their section of BENCHMARKS.md"
    )
    options = parser.parse_args()
    subjects = PYTHON_SUBJECTS if options.python else SUBJECTS
    only = options.only or (reach.BROKERS if options.floors else subjects)

    def tell(what: str) -> None:
        print(f"bench-compare: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="popmq-compare-", dir=options.scratch) as scratch:
        measured_on, chosen = machine(Path(scratch)), {name: one for name, one in subjects.items() if name in only}
        beside = options.floors or (options.keep and not options.python)
        alone = reach.measure(Path(scratch), options.seconds, tell) if beside else {}
        figures, missing = all_rounds(chosen, options.rounds, Path(scratch), options.seconds, tell)
    results = {"machine": measured_on, "seconds": options.seconds, "rounds": options.rounds, "missing": missing}
    results["alone"] = alone
    results["figures"] = [asdict(figure) for figure in figures]
    return told(results, options.keep, options.floors, options.python)


def told(results: dict[str, Any], keep: bool, floors: bool, python: bool) -> int:
    """Writes and prints what was measured; returns the exit code."""
    page, works = ROOT / "BENCHMARKS.md", [work.name for work in WORDS]
    if keep:
        kept = PYTHON_RESULTS if python else RESULTS
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")
    if python:
        print(put_python(results, works, page) if keep else python_section(results, works))
    elif floors:
        print(put_floors(results, page))
        return int(bool(reach.failed(medians(results["figures"]), results["alone"])))
    else:
        print(write(results, works, ROOT if keep else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
