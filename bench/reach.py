"""The table of floors: the least figures of PopMQ on two cores, alone and as ratios to the brokers beside it.

    make bench-floors              one round of the brokers that are named here, and the table; exit code 1 for a FAIL
    python -m bench.compare --keep three rounds of all brokers; the table is part of BENCHMARKS.md
    make bench-long                the rows that take an hour (lasting.py)

A row compares two medians of one run, or judges a figure of PopMQ alone (`alone`). A row whose broker was left out has
no verdict.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import bulk
from bench.measuring.load import Spec
from bench.measuring.measure import cpu_s, subject
from bench.parts import legs
from harness.broker_process import BrokerProcess

Row = dict[str, Any]
Face = tuple[str, str]

V2, OWN = ("popmq-python", "rocketmq"), ("popmq-python", "popmq")
ASYNC, SYNC = ("rocketmq-async", "rocketmq"), ("rocketmq-sync", "rocketmq")
REDIS, RABBITMQ = ("redis-always", "redis"), ("rabbitmq-quorum", "rabbitmq")
SEND_1, SEND_32, SEND_256 = "send 1, 64 callers", "send 32, 16 callers", "send 256, 8 callers"
TAKE_1, TAKE_32, TAKE_256 = (
    "receive + ack 1, 64 callers",
    "receive + ack 32, 16 callers",
    "receive + ack 256, 8 callers",
)
SEND_ONE, PACED = "send 1, one caller", "send → received at 1,000/s"


@dataclass(frozen=True)
class Reach:
    """One row. `beside`: (broker, protocol) and leg that the figure is divided by; None: the figure itself.

    `column`: of the medians, or the name of a figure in `alone`. `most`: the bounds are upper ones.
    """

    name: str
    floor: float
    aim: float | None = None
    work: str = ""
    of: Face = V2
    beside: tuple[Face, str] | None = None
    column: str = "messages_per_s"
    unit: str = "×"
    most: bool = False

    def holds(self, measured: float) -> bool:
        return measured <= self.floor if self.most else measured >= self.floor


ROWS = (
    Reach("one caller, p50 of a send, beside RabbitMQ", 1.1, 0.8, SEND_ONE, OWN, (RABBITMQ, SEND_ONE), "p50_ms",
          most=True),
    Reach("one caller, CPU of the broker", 220, 140, SEND_ONE, OWN, column="server_us", unit="µs", most=True),
    Reach("1,000/s sent, received, acked one by one, CPU of the broker", 450, 300, PACED, OWN, column="server_us",
          unit="µs", most=True),
    Reach("the same, p50 of send → received", 1.1, 0.8, PACED, OWN, column="p50_ms", unit="ms", most=True),
    Reach("send 1, 64 callers, beside RabbitMQ", 1, 1.3, SEND_1, OWN, (RABBITMQ, SEND_1)),
    Reach("v2 send 1, 64 callers, beside RocketMQ ASYNC", 2, 3, SEND_1, V2, (ASYNC, SEND_1)),
    Reach("v2 send 1, 64 callers, beside RocketMQ SYNC", 3, 5, SEND_1, V2, (SYNC, SEND_1)),
    Reach("v2 send 32, beside RocketMQ ASYNC", 1.3, 2, SEND_32, V2, (ASYNC, SEND_32)),
    Reach("v2 receive + ack 32, beside RocketMQ ASYNC", 1.9, 2.5, TAKE_32, V2, (ASYNC, TAKE_32)),
    Reach("v2 receive + ack 32, beside RocketMQ SYNC", 12, 20, TAKE_32, V2, (SYNC, TAKE_32)),
    Reach("v2 receive + ack 32, beside RabbitMQ", 1.1, 1.5, TAKE_32, V2, (RABBITMQ, TAKE_32)),
    Reach("send 256, beside Redis", 0.8, 1.2, SEND_256, OWN, (REDIS, SEND_256)),
    Reach("send 256, beside RabbitMQ by 32", 2, 3, SEND_256, OWN, (RABBITMQ, SEND_32)),
    Reach("pop + ack 256, beside Redis", 0.75, 1, TAKE_256, OWN, (REDIS, TAKE_256)),
    Reach("pop + ack 256, beside RabbitMQ by 32", 1, 1.5, TAKE_256, OWN, (RABBITMQ, TAKE_32)),
    # 1.5 times what was measured on 2026-11-26: 9,612.
    Reach("pop + ack 1, 64 callers", 14_418, 19_224, TAKE_1, OWN, unit="messages/s"),
    Reach("send → received p99, beside RocketMQ ASYNC", 1.0, 0.5, PACED, OWN, (ASYNC, PACED), "p99_ms", most=True),
    # 1.15 times what was measured on 2026-11-26: 28,902.
    Reach("SDK, 64 single senders", 33_237, 43_353, column="sdk_send", unit="messages/s"),
    Reach("SDK, one caller, p50", 1.45, 0.73, column="sdk_one", unit="ms", most=True),
    Reach("lease comes back late, p99, idle", 30, 15, column="late", unit="ms", most=True),
    Reach("lease comes back late, p99, under load", 30, 15, column="late_loaded", unit="ms", most=True),
    Reach("another client's send p99 beside two bulk readers, beside none", 2, 1.3, column="bulk_p99", most=True),
    Reach("ready on an empty folder", 400, 250, column="ready", unit="ms", most=True),
    Reach("idle broker, share of a core", 1, column="idle_cpu", unit="%", most=True),
    Reach("idle broker, own memory", 60, column="idle_memory", unit="MiB", most=True),
)  # fmt: skip

#: Rows that take an hour: bench/lasting.py measures them.
LONG_ROWS = (
    Reach("ready with 10,000,000 messages and 100,000 leases, after SIGKILL", 3, 1, column="ready_large", unit="s",
          most=True),
    Reach("30 minutes of send, pop, ack and retention: rate beside the first minute", 0.9, column="rate_kept"),
    Reach("30 minutes: size of the data file beside the bytes of stored messages", 1.5, column="file_share",
          most=True),
)  # fmt: skip


#: The brokers that the rows name.
BROKERS = frozenset({row.of[0] for row in ROWS} | {row.beside[0][0] for row in ROWS if row.beside})


def table(rows: list[Row], alone: dict[str, float], of: Sequence[Reach] = ROWS) -> Iterator[str]:
    """The lines of the table."""
    yield "| | floor | aim | measured | |"
    yield "|---|--:|--:|--:|---|"
    for reach, measured in figures(rows, alone, of):
        bound = "≤ " if reach.most else ""
        aim = "–" if reach.aim is None else f"{bound}{_told(reach.aim)}"
        verdict = "–" if measured is None else "PASS" if reach.holds(measured) else "FAIL"
        told = "–" if measured is None else f"{_told(measured)} {reach.unit}"
        yield f"| {reach.name} | {bound}{_told(reach.floor)} | {aim} | {told} | {verdict} |"


def failed(rows: list[Row], alone: dict[str, float], of: Sequence[Reach] = ROWS) -> list[str]:
    """The names of the rows whose floor does not hold."""
    return [row.name for row, measured in figures(rows, alone, of) if measured is not None and not row.holds(measured)]


def figures(
    rows: list[Row], alone: dict[str, float], of: Sequence[Reach] = ROWS
) -> Iterator[tuple[Reach, float | None]]:
    """Each row with its figure; None where a broker was left out."""
    by = {(row["broker"], row["face"], row["work"]): row for row in rows}
    for reach in of:
        if not reach.work:
            yield reach, alone.get(reach.column)
            continue
        one = by.get((*reach.of, reach.work))
        other = by.get((*reach.beside[0], reach.beside[1])) if reach.beside else {reach.column: 1.0}
        yield reach, one[reach.column] / (other[reach.column] or 1e-9) if one and other else None


def _told(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.4g}"


def measure(folder: Path, seconds: float, tell: Callable[[str], None]) -> dict[str, float]:
    """The figures of PopMQ alone, by their columns; each on a new broker."""
    tell("PopMQ alone: starts, an idle broker, leases, the SDK")
    took = []
    for number in range(5):
        # Compiled, as pip installs it, also where the environment forbids that for the programs of a developer.
        with BrokerProcess(folder / f"ready-{number}", environment={"PYTHONDONTWRITEBYTECODE": ""}) as process:
            took.append(process.ready_s * 1e3)
    with BrokerProcess(folder / "idle") as process:
        time.sleep(1)
        cpu, began = cpu_s(process.pid), time.monotonic()
        time.sleep(2 * seconds)
        busy = (cpu_s(process.pid) - cpu) / (time.monotonic() - began) * 100
        memory = process.memory_bytes / (1 << 20)
    with subject(folder / "alone") as broker:
        effort = legs.Effort(seconds=seconds, leases=500)
        topic = broker.topic("sdk")
        many = Spec("sdk_send", broker.endpoint, topic, callers=64, seconds=seconds)
        found = {
            "ready": statistics.median(took),
            "idle_cpu": busy,
            "idle_memory": memory,
            "sdk_send": broker.leg("", many, legs.PROCESSES).messages_per_s,
            "sdk_one": broker.leg("", Spec("sdk_send", broker.endpoint, topic, seconds=seconds), 1).p50_ms,
        }
        results = legs.Results()
        legs.lateness(broker, effort, results)
        beside = bulk.figures(folder / "bulk", seconds)
        found["bulk_p99"] = beside["p99_beside"] / beside["p99_alone"]
        p99 = [floor.measured for floor in results.floors if "p99" in floor.name]
        return found | {"late": p99[0], "late_loaded": p99[1]}
