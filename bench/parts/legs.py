"""Measurements of one broker: rates, latencies, a backlog, late leases, starts. Each has topics of its own."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from bench.measuring import floors
from bench.measuring.floors import Floor
from bench.measuring.load import Spec
from bench.measuring.measure import Leg, Resting, Subject, cpu_s, loads, percentile, run, subject
from harness.broker_process import BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb

BATCHES = {1: 64, 32: 16, 256: 8}  # messages a call: callers
PROCESSES = 2
DOORS = ("raw", "sdk")


@dataclass
class Effort:
    """How long to measure; `quick` keeps the whole bench under two minutes, and leaves Spark's JVM out."""

    seconds: float = 5.0
    backlog: int = 1_000_000
    rows: int = 1_000_000
    local_spark: int = 200_000
    starts: int = 7
    leases: int = 400
    delayed: int = 1_000_000
    checkpoints: int = 100_000
    idle_s: float = 20.0
    resting: tuple[int, ...] = (1_000, 100_000, 1_000_000)

    @classmethod
    def quick(cls) -> Effort:
        return cls(
            seconds=2.0,
            starts=3,
            leases=150,
            delayed=100_000,
            rows=100_000,
            local_spark=0,
            checkpoints=20_000,
            idle_s=5.0,
            resting=(1_000, 10_000, 100_000),
        )


@dataclass
class Results:
    legs: list[Leg] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)
    resting: list[Resting] = field(default_factory=list)


def starts(folder: Path, effort: Effort, results: Results) -> None:
    """Seconds from exec to the open port, each time on an empty folder."""
    took = []
    for number in range(effort.starts):
        with BrokerProcess(folder / f"start-{number}") as broker:
            took.append(broker.ready_s * 1e3)
    results.notes["ready, best"] = min(took)
    results.floors.append(Floor("broker ready on an empty folder", statistics.median(took), floors.READY_MS, "ms"))


def throughput(subject: Subject, effort: Effort, results: Results) -> None:
    """Send, then pop + ack of what was sent, through raw stubs and through the SDK, by batch."""
    topic = subject.topic("flow")
    for door in DOORS:
        for batch, callers in BATCHES.items():
            spec = Spec(f"{door}_send", subject.endpoint, topic, batch=batch, callers=callers, seconds=effort.seconds)
            results.legs.append(subject.leg(f"{door} send", spec, PROCESSES))
    if find_spec("uvloop"):  # what most programs of uvicorn run in
        spec = Spec("sdk_send", subject.endpoint, topic, callers=BATCHES[1], seconds=effort.seconds, loop="uvloop")
        results.legs.append(subject.leg("sdk send, uvloop", spec, PROCESSES))
    for door in DOORS:
        for batch, callers in BATCHES.items():
            group = subject.group(f"{door}-{batch}")  # each group reads the whole topic from its start
            spec = Spec(f"{door}_pop", subject.endpoint, topic, group, batch, callers, seconds=effort.seconds)
            results.legs.append(subject.leg(f"{door} pop + ack", spec, PROCESSES))
    spec = Spec("sdk_consume", subject.endpoint, topic, subject.group("consume"), seconds=effort.seconds)
    results.legs.append(subject.leg("sdk consume, guarded", spec, 1))
    for name in ("send", "pop + ack"):
        fastest = max(leg.messages_per_s for leg in results.legs if leg.name == f"raw {name}" and leg.batch == 256)
        results.floors.append(floors.rate(f"raw stubs, batches of 256: {name}", fastest))


def latency(subject: Subject, effort: Effort, results: Results) -> None:
    """Latency of one caller with one message in each call, with no other load."""
    topic, group = subject.topic("lone"), subject.group("lone")
    for work in ("raw_send", "raw_pop", "sdk_send", "sdk_pop"):
        door, verb = work.split("_")
        if verb == "pop":
            group = subject.group(f"lone-{door}")
        spec = Spec(work, subject.endpoint, topic, group, seconds=effort.seconds / 2)
        results.legs.append(subject.leg(f"{door} {verb}{' + ack' * (verb == 'pop')}, one caller", spec, 1))


# ── A pop does not feel the backlog ──────────────────────────────────────────────────────────────────────────────────

SMALL = 10_000
POPS, POP_BATCH, ROUNDS = 10, 32, 15


def backlog(subject: Subject, effort: Effort, results: Results) -> None:
    """Pops alternately from a small and a large backlog of one broker, so that other load affects both."""
    group = subject.group("backlog")
    sizes = {"small": SMALL, "large": effort.backlog}
    for name, size in sizes.items():
        subject.leg("fill", fill(subject, name, size), PROCESSES)
    cost: dict[str, list[tuple[float, float]]] = {name: [] for name in sizes}
    for _ in range(ROUNDS):
        for name in sizes:
            cost[name].append(_pops(subject, name, group))
    for number, what in enumerate(("time", "broker CPU")):
        small, large = (statistics.median(sample[number] for sample in cost[name]) for name in ("small", "large"))
        results.notes[f"pop of {POP_BATCH} at {SMALL:,}, {what}, ms"] = small * 1e3
        results.notes[f"pop of {POP_BATCH} at {effort.backlog:,}, {what}, ms"] = large * 1e3
        name = f"pop at {effort.backlog:,} of backlog to one at {SMALL:,}: {what}"
        results.floors.append(Floor(name, large / small, floors.BACKLOG_RATIO, "×"))


def fill(subject: Subject, topic: str, size: int) -> Spec:
    """A leg that sends about `size` messages: callers stop when the share of their process has been answered."""
    batch = 500
    share = size // PROCESSES - 2 * batch
    spec = Spec("raw_send", subject.endpoint, subject.topic(topic), batch=batch, callers=4, messages=share)
    spec.seconds = 600
    return spec


def _pops(subject: Subject, topic: str, group: str) -> tuple[float, float]:
    """Time and broker CPU of one pop, over a few; their acks are not counted."""
    request = pb.PopRequest(topic=topic, group=group, max_messages=POP_BATCH)
    handles: list[str] = []
    cpu, started = cpu_s(subject.process.pid), time.perf_counter()
    for _ in range(POPS):
        answer = subject.stubs.broker.Pop(request, timeout=30)
        assert len(answer.deliveries) == POP_BATCH
        handles += [delivery.handle for delivery in answer.deliveries]
    took = time.perf_counter() - started, cpu_s(subject.process.pid) - cpu
    subject.stubs.broker.Ack(pb.AckRequest(group=group, handles=handles), timeout=30)
    return took[0] / POPS, took[1] / POPS


# ── Leases come back on time ─────────────────────────────────────────────────────────────────────────────────────────


def lateness(subject: Subject, effort: Effort, results: Results) -> None:
    """How late unacked leases are delivered again to waiting pollers, without and with other load."""
    for load in (False, True):
        name = "under load" if load else "idle"
        with _background(subject, load):
            late = _leases(subject, f"late-{name.replace(' ', '-')}", effort.leases)
        results.notes[f"lease back, {name}, p50, ms"] = percentile(late, 0.5)
        results.notes[f"lease back, {name}, worst, ms"] = max(late)
        p99 = percentile(late, 0.99)
        results.floors.append(Floor(f"lease back after its time, p99, {name}", p99, floors.LATE_P99_MS, "ms"))
        results.floors.append(Floor(f"leases back early, {name}", sum(ms < 0 for ms in late), 0, "leases"))


#: (queue, offset) of a message → (deadline of its lease in ms, attempt).
Due = dict[tuple[int, int], tuple[int, int]]


def _leases(subject: Subject, name: str, count: int) -> list[float]:
    """Milliseconds from the deadline of each lease to the broker's time of the pop that got its message again."""
    topic, group, chance = subject.topic(name), subject.group(name), random.Random(7)
    spec = Spec("raw_send", subject.endpoint, topic, batch=50, callers=1, messages=count, seconds=600)
    subject.leg("fill", spec, 1)
    due: dict[tuple[int, int], int] = {}
    leased_ms = 0
    while len(due) < count:  # one that expires meanwhile is leased again
        lease = pb.PopRequest(topic=topic, group=group, max_messages=1, invisible_ms=3000 + chance.randrange(3000))
        answer = subject.stubs.broker.Pop(lease, timeout=30)
        due.update({(one.queue, one.offset): answer.invisible_until_ms for one in answer.deliveries})
        leased_ms = answer.popped_ms
    # On a busy machine some expire before the last is leased: no client pops them until then.
    due = {place: max(at_ms, leased_ms) for place, at_ms in due.items()}
    late: list[float] = []
    pollers = [threading.Thread(target=_poll, args=(subject.endpoint, topic, group, due, late)) for _ in range(2)]
    for poller in pollers:
        poller.start()
    for poller in pollers:
        poller.join()
    assert len(late) == len(due), "a lease did not come back"
    return late


def _poll(endpoint: str, topic: str, group: str, due: Due, late: list[float]) -> None:
    request = pb.PopRequest(topic=topic, group=group, max_messages=32, wait_ms=2000)
    until = time.monotonic() + 30
    with Stubs(endpoint) as stubs:
        while len(late) < len(due) and time.monotonic() < until:
            answer = stubs.broker.Pop(request, timeout=30)
            late += [answer.popped_ms - due[one.queue, one.offset] for one in answer.deliveries]
            if answer.deliveries:
                handles = [one.handle for one in answer.deliveries]
                stubs.broker.Ack(pb.AckRequest(group=group, handles=handles), timeout=30)


@contextmanager
def _background(subject: Subject, load: bool) -> Iterator[None]:
    """A sender that keeps the writer busy, without saturating the machine."""
    spec = Spec("raw_send", subject.endpoint, subject.topic("noise"), batch=32, callers=2, seconds=8)
    with loads([spec] if load else []) as waiting:
        runner = threading.Thread(target=lambda: list(run(waiting)))
        runner.start()
        yield
        runner.join()


def everything(folder: Path, effort: Effort, results: Results, tell: Callable[[str], None]) -> None:
    """All legs, on one broker; `tell` is called with the name of each."""
    tell("start on an empty folder")
    starts(folder, effort, results)
    with subject(folder / "data") as broker:
        for part, what in PARTS.items():
            tell(what)
            part(broker, effort, results)


def restart(subject: Subject, effort: Effort, results: Results) -> None:
    """Kills the broker with the data of all other legs, and times its start, which must not depend on them."""
    topics = subject.stubs.admin.GetStats(pb.GetStatsRequest(), timeout=60).topics
    results.notes["broker's own memory, MiB"] = subject.process.memory_bytes / (1 << 20)
    subject.process.kill()
    subject.process.start()
    stored = sum(topic.messages for topic in topics)
    results.notes[f"ready after kill -9 with {stored:,} messages, ms"] = subject.process.ready_s * 1e3


PARTS: dict[Callable[[Subject, Effort, Results], None], str] = {
    throughput: "messages a second",
    latency: "one caller alone",
    backlog: "pops from a small and a large backlog",
    lateness: "leases that come back",
    restart: "start after a kill",
}
