"""Measures a broker from outside: its CPU from /proc, its fsyncs from GetStats, the load from the load processes."""

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc

from bench.measuring.load import Spec, Tally
from harness.broker_process import ROOT, BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb


@dataclass
class Leg:
    """One row of the report. Latencies in milliseconds, of whole calls; CPU of the broker and of the load apart."""

    name: str
    batch: int
    callers: int
    messages: int
    elapsed_s: float
    p50_ms: float
    p99_ms: float
    broker_us_per_message: float
    load_us_per_message: float
    messages_per_fsync: float
    others_share: float  # share of all cores that other programs used meanwhile

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.elapsed_s if self.elapsed_s else 0.0


@dataclass
class Resting:
    """A number of resting objects: µs of CPU by operation, the longest; of leases also a start, and their memory."""

    count: int
    what: str = "leases"
    costs_us: dict[str, float] = field(default_factory=dict)
    longest_ms: float = 0.0
    start_s: float = 0.0
    lease_bytes: float = 0.0


def percentile(values: list[float], share: float) -> float:
    """Nearest rank; 0 for no values."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, by the scheduler's nanoseconds: /proc/PID/stat counts in ticks of 10 ms."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:  # the thread ended meanwhile
            continue
    return total / 1e9


def ended_s(pid: int) -> float:
    """CPU time of those children of a process that have ended, in ticks of 10 ms."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def busy_s() -> float:
    """CPU time of everything on this machine, including what its host took from it."""
    user, nice, system, _, _, irq, softirq, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


class Subject:
    """The broker that is measured."""

    def __init__(self, process: BrokerProcess, stubs: Stubs) -> None:
        self.process, self.stubs = process, stubs
        self.endpoint = process.endpoint

    def fsyncs(self) -> int:
        stats: pb.GetStatsResponse = self.stubs.admin.GetStats(pb.GetStatsRequest(topic="bench"), timeout=30)
        return stats.store.fsyncs

    def topic(self, name: str) -> str:
        self.stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=name)), timeout=30)
        return name

    def group(self, name: str) -> str:
        self.stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name=name)), timeout=30)
        return name

    def leg(self, name: str, spec: Spec, processes: int) -> Leg:
        """Runs `processes` load processes at once, which share the callers of `spec`."""
        specs = [Spec(**{**asdict(spec), "number": i, "callers": spec.callers // processes}) for i in range(processes)]
        with loads(specs) as waiting:
            fsyncs, cpu, busy = self.fsyncs(), cpu_s(self.process.pid), busy_s()
            tallies = list(run(waiting))
            cpu, fsyncs, busy = cpu_s(self.process.pid) - cpu, self.fsyncs() - fsyncs, busy_s() - busy
        elapsed_s, load_s = max(tally.elapsed_s for tally in tallies), sum(tally.cpu_s for tally in tallies)
        messages = sum(tally.messages for tally in tallies)
        latencies = [latency * 1e3 for tally in tallies for latency in tally.latencies]
        return Leg(
            name,
            spec.batch,
            spec.callers,
            messages,
            elapsed_s,
            percentile(latencies, 0.5),
            percentile(latencies, 0.99),
            cpu * 1e6 / max(messages, 1),
            load_s * 1e6 / max(messages, 1),
            messages / max(fsyncs, 1),
            max(0.0, busy - cpu - load_s) / (elapsed_s * len(os.sched_getaffinity(0))),
        )


@contextmanager
def subject(folder: Path, *flags: str) -> Iterator[Subject]:
    """A broker on a fresh data folder, fsync on."""
    with BrokerProcess(folder, *flags) as process, Stubs(process.endpoint) as stubs:
        subject = Subject(process, stubs)
        subject.topic("bench")
        yield subject


@contextmanager
def loads(specs: list[Spec]) -> Iterator[list[subprocess.Popen[str]]]:
    """Load processes that are connected and wait for the start."""
    processes = []
    try:
        for spec in specs:
            command = [sys.executable, "-m", "bench.measuring.load", json.dumps(asdict(spec))]
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "a load process did not start"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run(waiting: list[subprocess.Popen[str]]) -> Iterator[Tally]:
    """Starts them together and returns their results."""
    for process in waiting:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in waiting:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "a load process failed; its error is printed above"
        yield Tally(**json.loads(line))


def fsync_ms(folder: Path) -> float:
    """Median milliseconds of an fsync of 4 KiB on this disk, on which all other figures depend."""
    took = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(50):
            os.pwrite(file.fileno(), b"." * 4096, 0)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - started) * 1e3)
    return statistics.median(took)


#: Variables in which a build of Python keeps its compiler's flags.
_FLAGS = ("PY_CORE_CFLAGS", "CFLAGS_NODIST", "PY_CORE_LDFLAGS", "LDFLAGS_NODIST")


def build(configured: str, flags: str, maps: str) -> str:
    """How an interpreter was built, from the arguments of its configure, its compiler's flags, and its memory map.

    PGO and LTO make it a quarter faster. A build may have them without a trace here, as Debian's: so "not named" is not
    "without". Whether the interpreter is a library of its own shows in the map, whatever the arguments say.
    """
    pgo = "--enable-optimizations" in configured or "-fprofile-use" in flags
    lto = "--with-lto" in configured or "-flto" in flags
    named = [f"{name} {'named' if has else 'not named'}" for name, has in (("PGO", pgo), ("LTO", lto))]
    return ", ".join(["shared library" if "/libpython" in maps else "one program", *named])


def machine(folder: Path) -> dict[str, Any]:
    """The machine and the versions that the figures were measured with."""
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "build": build(
            str(sysconfig.get_config_var("CONFIG_ARGS")),
            " ".join(str(sysconfig.get_config_var(name)) for name in _FLAGS),
            Path("/proc/self/maps").read_text(),
        ),
        "grpcio": grpc.__version__,
        "fsync_ms": round(fsync_ms(folder), 3),
    }
