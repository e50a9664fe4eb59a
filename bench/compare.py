"""Compares PopMQ with other brokers, one after the other on this machine, and writes a page of tables and plots.

    make bench-compare                                 three rounds, under 20 minutes
    python -m bench.compare --only popmq-python redis --rounds 1

A round starts each broker with an empty data folder, and runs its legs (WORK) with the same load generator
(bench/loadgen). The median of the rounds is reported. A broker that is not installed is left out, with the
reason. Close other programs first; the report has the share of the cores that they used.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import reach
from bench.measuring.disk import DiskWatch
from bench.measuring.measure import busy_s, machine
from bench.peers import brokers, install
from bench.peers.brokers import Broker, Start
from bench.peers.install import Missing
from bench.tables import medians, put_floors, write
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
#: The legs of each protocol. The order matters: receiving legs read the messages of the sending legs.
NATIVE = (SEND_1, SEND_256, TAKE_256, TAKE_1, ALONE, DELIVER)
ROCKETMQ = (SEND_1, SEND_32, TAKE_32, ALONE, DELIVER)
STREAMS = (SEND_1, SEND_32, SEND_256, TAKE_32, TAKE_256, ALONE, DELIVER)


@dataclass(frozen=True)
class Subject:
    """A broker and its protocols: `faces` are the targets of the load generator, with their legs."""

    start: Start
    faces: Mapping[str, Sequence[Work]]


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
    program: Path, broker: Broker, face: str, work: Work, number: int, seconds: float, name: str, disk: DiskWatch
) -> Figure:
    """Runs one leg. Raises Missing when it failed."""
    words = [program, "-target", face, "-endpoint", broker.endpoint, "-leg", work.leg, "-topic", f"{face}-{work.topic}"]
    words += ["-batch", work.batch, "-callers", work.callers, "-seconds", seconds, "-rate", RATE]
    pipe = subprocess.PIPE
    process = subprocess.Popen(list(map(str, words)), stdin=pipe, stdout=pipe, stderr=pipe, text=True)
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
    program: Path, name: str, number: int, scratch: Path, seconds: float, tell: Callable[[str], None]
) -> list[Figure]:
    """All legs of one broker; a leg that fails is reported and left out."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch) as folder:
        subject = SUBJECTS[name]
        with DiskWatch(Path(folder)) as disk, subject.start(Path(folder)) as broker:
            for face, works in subject.faces.items():
                topics = sorted({f"{face}-{work.topic}" for work in (*WARM_UP, *works)})
                for topic in topics:
                    broker.make(topic)
                # PopMQ's topics are created through popmq.v1, whichever protocol is measured.
                for target in ("popmq", face) if name.startswith("popmq") and face != "popmq" else (face,):
                    words = ["-target", target, "-endpoint", broker.endpoint, "-leg", "prepare", "-topic"]
                    install.run([program, *words, ",".join(topics)])
                for work in WARM_UP:
                    load(program, broker, face, work, number, WARM_S, name, disk)
                for work in works:
                    try:
                        figures.append(load(program, broker, face, work, number, seconds, name, disk))
                    except Missing as missing:
                        tell(f"{name}, {work.name}: {missing}")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), help="only these brokers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each leg")
    parser.add_argument("--scratch", type=Path, help="where the data folders go: the disk that is measured")
    parser.add_argument("--keep", action="store_true", help=f"write BENCHMARKS.md and {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--floors", action="store_true", help="only the table of floors, which goes into BENCHMARKS.md")
    options = parser.parse_args()
    if options.floors:
        options.only = [name for name in options.only if name in reach.BROKERS]
    figures, missing = list[Figure](), dict[str, str]()

    def tell(what: str) -> None:
        print(f"bench-compare: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="popmq-compare-", dir=options.scratch) as scratch:
        measured_on = machine(Path(scratch))
        program = install.loadgen()
        for number in range(1, options.rounds + 1):
            for name in [one for one in options.only if one not in missing]:
                tell(f"round {number} of {options.rounds}, {name}")
                try:
                    figures += one_round(program, name, number, Path(scratch), options.seconds, tell)
                except Missing as reason:
                    missing[name] = str(reason)
                    tell(f"{name} is left out: {reason}")
        alone = reach.measure(Path(scratch), options.seconds, tell) if options.floors or options.keep else {}
    results = {"machine": measured_on, "seconds": options.seconds, "rounds": options.rounds, "missing": missing}
    results["alone"] = alone
    results["figures"] = [asdict(figure) for figure in figures]
    if options.keep:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if options.floors:
        rows = medians(results["figures"])
        print(put_floors(results, ROOT / "BENCHMARKS.md"))
        return int(bool(reach.failed(rows, alone)))
    print(write(results, [work.name for work in WORDS], ROOT if options.keep else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
