"""Measures the cost of delivery semantics: order, delays, many deadlines at once, and an idle broker."""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from bench.measuring import floors
from bench.measuring.floors import Floor
from bench.measuring.load import Spec
from bench.measuring.measure import Subject, cpu_s, percentile, subject
from bench.parts.legs import BATCHES, PROCESSES, Effort, Results
from harness.broker_process import ROOT
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc

# ── FIFO beside a normal topic ───────────────────────────────────────────────────────────────────────────────────────

MESSAGE_GROUPS = 10_000


def fifo(subject: Subject, effort: Effort, results: Results) -> None:
    """The same load, alternately on a normal topic and on a FIFO topic with 10,000 message groups."""
    rates: dict[str, list[float]] = {}
    for turn in range(2):
        for kind, message_groups in (("normal", 0), ("FIFO", MESSAGE_GROUPS)):
            topic, group = f"{kind}-{turn}", subject.group(f"{kind}-{turn}")
            made = pb.Topic(name=topic, type=pb.FIFO if message_groups else pb.NORMAL)
            subject.stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=made), timeout=30)
            for work, name in (("raw_send", "send"), ("raw_pop", "pop + ack")):
                spec = Spec(work, subject.endpoint, topic, group, 256, BATCHES[256], seconds=effort.seconds)
                spec.message_groups = message_groups
                leg = subject.leg(f"{kind} {name}", spec, PROCESSES)
                rates.setdefault(f"{kind} {name}", []).append(leg.messages_per_s)
                results.legs.append(leg)
    for name in ("send", "pop + ack"):
        ratio = max(rates[f"FIFO {name}"]) / max(rates[f"normal {name}"])
        label = f"FIFO with {MESSAGE_GROUPS:,} message groups to normal: {name}"
        results.floors.append(Floor(label, ratio, floors.FIFO_RATIO, "×", at_most=False))


# ── A million delayed messages ───────────────────────────────────────────────────────────────────────────────────────

RECALLS, FIRED = 1_000, 2_000
HOUR_MS = 3_600_000


def delayed(subject: Subject, effort: Effort, results: Results) -> None:
    """With `effort.delayed` messages pending: how late due ones are delivered, and how long a recall takes."""
    topic, group = "delayed", subject.group("delayed")
    made = pb.Topic(name=topic, type=pb.DELAY)
    subject.stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=made), timeout=30)
    handles = _schedule(subject, topic, effort.delayed)
    results.notes["delayed messages pending"] = float(effort.delayed)
    chance = random.Random(7)
    took = []
    for handle in chance.sample(handles, RECALLS):
        started = time.perf_counter()
        subject.stubs.broker.Recall(pb.RecallRequest(topic=topic, recall_handle=handle), timeout=30)
        took.append((time.perf_counter() - started) * 1e3)
    results.floors.append(Floor("recall of a delayed message, p99", percentile(took, 0.99), floors.RECALL_P99_MS, "ms"))
    late = _fired(subject, topic, group, chance)
    results.notes["delayed message, lateness p50, ms"] = percentile(late, 0.5)
    results.floors.append(Floor("delayed message, lateness p99", percentile(late, 0.99), floors.DELAY_P99_MS, "ms"))
    results.floors.append(Floor("delayed messages early", sum(ms < 0 for ms in late), 0, "messages"))


def _schedule(subject: Subject, topic: str, count: int) -> list[str]:
    """Sends messages that are due over the next day, in random order; returns their recall handles."""
    chance, handles = random.Random(5), list[str]()
    while len(handles) < count:
        batch = [pb.Message(body=b"x" * 100, delay_ms=HOUR_MS + chance.randrange(24 * HOUR_MS)) for _ in range(2_000)]
        answer = subject.stubs.broker.Send(pb.SendRequest(topic=topic, messages=batch), timeout=60)
        handles += [result.recall_handle for result in answer.results]
    return handles


def _fired(subject: Subject, topic: str, group: str, chance: random.Random) -> list[float]:
    """Milliseconds from the due time of each message to the broker's time of the pop that got it."""
    now_ms = int(time.time() * 1e3)
    due = [now_ms + 3_000 + chance.randrange(8_000) for _ in range(FIRED)]
    batch = [pb.Message(body=b"%d" % due_ms, deliver_at_ms=due_ms) for due_ms in due]
    subject.stubs.broker.Send(pb.SendRequest(topic=topic, messages=batch), timeout=60)
    late: list[float] = []
    until = time.monotonic() + 30
    while len(late) < FIRED and time.monotonic() < until:
        request = pb.PopRequest(topic=topic, group=group, max_messages=256, wait_ms=2_000)
        answer = subject.stubs.broker.Pop(request, timeout=30)
        late += [answer.popped_ms - one.message.deliver_at_ms for one in answer.deliveries]
        if answer.deliveries:
            done = [one.handle for one in answer.deliveries]
            subject.stubs.broker.Ack(pb.AckRequest(group=group, handles=done), timeout=30)
    assert len(late) == FIRED, f"{FIRED - len(late)} delayed messages did not come"
    return late


# ── All deadlines at once ────────────────────────────────────────────────────────────────────────────────────────────


def storm(folder: Path, effort: Effort, results: Results) -> None:
    """`effort.checkpoints` CheckPoints end in one millisecond: the latency of other requests meanwhile."""
    with _host(folder, effort.checkpoints) as (process, endpoint):
        stop, took = threading.Event(), list[float]()
        callers = [threading.Thread(target=_call, args=(endpoint, f"{number}", stop, took)) for number in range(4)]
        for caller in callers:
            caller.start()
        time.sleep(1.0)
        calm = len(took)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        seconds = float(process.stdout.readline())
        stop.set()
        for caller in callers:
            caller.join()
    results.notes["request before the storm, p99, ms"] = percentile(took[:calm], 0.99)
    results.notes[f"{effort.checkpoints:,} CheckPoints due at once, revived in s"] = seconds
    results.notes["request meanwhile, worst, ms"] = max(took[calm:])
    p99 = percentile(took[calm:], 0.99)
    name = f"requests while {effort.checkpoints:,} CheckPoints are due, p99"
    results.floors.append(Floor(name, p99, floors.STORM_P99_MS, "ms"))


def _call(endpoint: str, name: str, stop: threading.Event, took: list[float]) -> None:
    """Sends, pops and acks one message repeatedly; milliseconds of each request."""
    with Stubs(endpoint) as stubs:
        topic, group = f"calm-{name}", f"calm-{name}"
        stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=topic)), timeout=30)
        stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name=group)), timeout=30)
        handles: list[str] = []
        while not stop.is_set():
            for call, request in (
                (stubs.broker.Send, pb.SendRequest(topic=topic, messages=[pb.Message(body=b"x" * 1024)])),
                (stubs.broker.Pop, pb.PopRequest(topic=topic, group=group)),
                (stubs.broker.Ack, pb.AckRequest(group=group, handles=handles)),
            ):
                if isinstance(request, pb.AckRequest):
                    request.handles.extend(handles)
                started = time.perf_counter()
                answer = call(request, timeout=30)
                took.append((time.perf_counter() - started) * 1e3)
                if isinstance(answer, pb.PopResponse):
                    handles = [one.handle for one in answer.deliveries]


@contextmanager
def _host(folder: Path, checkpoints: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker on a fake clock, in a process of its own (bench/parts/storm.py); its endpoint."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "bench.parts.storm", json.dumps([str(folder), checkpoints])]
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


# ── Nothing to do ────────────────────────────────────────────────────────────────────────────────────────────────────

TOPICS, QUEUES, WAITERS, CHANNELS = 100, 100, 1_000, 10


def idle(folder: Path, effort: Effort, results: Results) -> None:
    """CPU of a broker with 10,000 queues and 1,000 parked Pops while nothing happens."""
    with subject(folder) as quiet, _parked(quiet):
        time.sleep(3.0)
        cpu, began = cpu_s(quiet.process.pid), time.perf_counter()
        time.sleep(effort.idle_s)
        share = (cpu_s(quiet.process.pid) - cpu) / (time.perf_counter() - began)
        parked = sum(row.waiters for row in quiet.stubs.admin.GetStats(pb.GetStatsRequest(), timeout=60).groups)
    assert parked == WAITERS, f"{parked} Pops were parked"
    name = f"idle with {TOPICS * QUEUES:,} queues and {WAITERS:,} waiters, share of a core"
    results.floors.append(Floor(name, share * 100, floors.IDLE_PERCENT, "%"))


@contextmanager
def _parked(quiet: Subject) -> Iterator[None]:
    """Parks Pops, over several connections."""
    group = quiet.group("idle")
    for number in range(TOPICS):
        made = pb.Topic(name=f"idle-{number}", queues=QUEUES)
        quiet.stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=made), timeout=30)
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(quiet.endpoint, options=options) for _ in range(CHANNELS)]
    calls = []
    for number in range(WAITERS):
        stub = rpc.BrokerStub(channels[number % CHANNELS])
        request = pb.PopRequest(topic=f"idle-{number % TOPICS}", group=group, wait_ms=60_000)
        calls.append(stub.Pop.future(request, timeout=120))
    try:
        yield
    finally:
        for call in calls:
            call.cancel()
        for channel in channels:
            channel.close()


def everything(folder: Path, effort: Effort, results: Results, tell: Callable[[str], None]) -> None:
    """All of these; `tell` is called with the name of each."""
    with subject(folder / "order") as broker:
        tell(f"a FIFO topic with {MESSAGE_GROUPS:,} message groups beside a normal one")
        fifo(broker, effort, results)
    with subject(folder / "delayed") as broker:
        tell(f"{effort.delayed:,} delayed messages")
        delayed(broker, effort, results)
    tell(f"{effort.checkpoints:,} CheckPoints that are due in one millisecond")
    storm(folder / "storm", effort, results)
    tell(f"an idle broker with {WAITERS:,} waiters")
    idle(folder / "idle", effort, results)
