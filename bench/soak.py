"""Hours of all features at once: checks that rates, memory and the data file stay as in the first minutes.

    make soak                                   MINUTES=480
    python -m bench.soak MINUTES [CONNECTIONS]

    5,000 connections that only stay        an event loop of bench/soak_idle.py
    200 groups, 50 on each of four topics   NORMAL, FIFO, DELAY, TRANSACTION: every message goes to 50 groups
    retention of a minute                   so that the data file must stay flat
    restarts                                SIGTERM and kill -9 by turns, RESTARTS of them over the whole time

Every message has a number. Each group notes the numbers that it has acked, so that the end shows messages that are
missing, came again after an answered ack, or came out of order in their message group. The load is paced: a broker that
gets slower falls behind, which the rates show. Curves are drawn into build/soak.svg, the numbers are in
build/soak.json.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import popmq
from bench.soak_chart import draw
from harness.broker_process import ROOT, BrokerProcess

TOPICS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "deals": "TRANSACTION"}
GROUPS_PER_TOPIC = 50
#: Messages of one send, and seconds between two sends to a topic; of a group between two pops.
BATCH, SEND_EVERY_S, POP_EVERY_S = 5, 1.0, 2.0
DELAY_S, KEEP_S, LEASE_S = 3.0, 60.0, 60.0
CONNECTIONS, SAMPLE_S, RESTARTS = 5_000, 5.0, 6
#: The broker's floors: rates, memory and file of the last quarter against an earlier part.
RATE_MIN, GROWTH_MAX = 0.9, 1.25
#: The file grows for an hour, by at most so much: ended transactions are remembered that long, 5 a second.
FILLING_S, FILLING_MIB = 3_600.0, 2.0
#: Seconds for the rest of the messages at the end.
REST_S = 60.0


@dataclass
class Group:
    """The acked numbers of one group: all below `below`, and those in `above`."""

    below: int = 0
    above: set[int] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)  # of each message group

    def ack(self, number: int) -> None:
        self.above.add(number)
        while self.below in self.above:
            self.above.remove(self.below)
            self.below += 1

    def has(self, number: int) -> bool:
        return number < self.below or number in self.above


class Soak:
    """The load and its observations. Times are seconds since `began`."""

    def __init__(self, client: popmq.AsyncClient, seconds: float) -> None:
        self.client, self.began, self.until = client, time.monotonic(), time.monotonic() + seconds
        self.sent: Counter[str] = Counter()
        self.acked = 0
        self.slow_ms: list[float] = []
        self.groups: dict[tuple[str, str], Group] = defaultdict(Group)
        self.findings: Counter[str] = Counter()

    async def prepare(self) -> None:
        for topic, kind in TOPICS.items():
            await self.client.create_topic(topic, type=kind, queues=2, retention=popmq.Retention(keep=KEEP_S))  # type: ignore[arg-type]  # the keys of TOPICS are types
            for number in range(GROUPS_PER_TOPIC):
                await self.client.create_group(f"{topic}-{number}")
                await self.client.pop(topic, f"{topic}-{number}", max_messages=1)

    async def produce(self, topic: str) -> None:
        due = time.monotonic()
        while time.monotonic() < self.until:
            first = self.sent[topic]
            numbers = range(first, first + BATCH)
            messages = [self._message(topic, number) for number in numbers]
            if topic == "deals":
                async with self.client.transaction(topic) as transaction:
                    await transaction.send(messages)
            else:
                await self.client.send(topic, messages)
            self.sent[topic] += BATCH
            due += SEND_EVERY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _message(self, topic: str, number: int) -> popmq.Message:
        body = f"{number} ".encode() + bytes(200)
        if topic == "fifo":
            return popmq.Message(body, message_id=f"{topic}-{number}", message_group=f"g{number % 3}")
        delay = DELAY_S if topic == "delay" else 0.0
        return popmq.Message(body, message_id=f"{topic}-{number}", delay=delay)

    async def consume(self, topic: str, name: str, offset_s: float) -> None:
        await asyncio.sleep(offset_s)
        group = self.groups[topic, name]
        due = time.monotonic()
        while time.monotonic() < self.until or group.below < self.sent[topic]:
            began = time.monotonic()
            with contextlib.suppress(popmq.errors.TryLater):  # the broker restarts
                deliveries = await self.client.pop(topic, name, max_messages=64, invisible=LEASE_S)
                self.slow_ms.append((time.monotonic() - began) * 1000)
                for delivery in deliveries:
                    self._seen(topic, group, delivery)
                if deliveries:
                    await self.client.ack(deliveries)
                    for delivery in deliveries:
                        group.ack(int(delivery.body.split()[0]))
                    self.acked += len(deliveries)
            due += POP_EVERY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _seen(self, topic: str, group: Group, delivery: popmq.Delivery) -> None:
        number = int(delivery.body.split()[0])
        if group.has(number):
            self.findings["came again after an answered ack"] += 1
        if topic == "fifo":
            key = f"g{number % 3}"
            if delivery.attempt == 1 and number < group.last.get(key, -1):
                self.findings["out of order in its message group"] += 1
            group.last[key] = max(number, group.last.get(key, -1))

    def missing(self) -> int:
        return sum(
            self.sent[topic] - self.groups[topic, name].below - len(self.groups[topic, name].above)
            for topic in TOPICS
            for name in (f"{topic}-{number}" for number in range(GROUPS_PER_TOPIC))
        )


async def sample(soak: Soak, broker: BrokerProcess, rows: list[dict[str, float]]) -> None:
    """Adds a row every SAMPLE_S."""
    acked, sent, at = 0, 0, time.monotonic()
    while time.monotonic() < soak.until:
        await asyncio.sleep(SAMPLE_S)
        slow, soak.slow_ms = sorted(soak.slow_ms), []
        with contextlib.suppress(popmq.PopMQError, OSError):
            store = (await soak.client.stats()).store
            total = sum(soak.sent.values())
            now = time.monotonic()
            row = {"s": now - soak.began, "acked/s": (soak.acked - acked) / (now - at)}
            row |= {"sent/s": (total - sent) / (now - at), "pop p99 ms": slow[int(len(slow) * 0.99)] if slow else 0.0}
            row |= {"memory MiB": broker.memory_bytes / (1 << 20), "store MiB": store.used_bytes / (1 << 20)}
            rows.append(row)
            print("  ".join(f"{name} {value:,.1f}" for name, value in row.items()), flush=True)
            acked, sent, at = soak.acked, total, now


async def restart(soak: Soak, broker: BrokerProcess) -> None:
    """SIGTERM and SIGKILL by turns."""
    every = (soak.until - time.monotonic()) / (RESTARTS + 1)
    for number in range(RESTARTS):
        await asyncio.sleep(every)
        print("restart: kill -9" if number % 2 else "restart: SIGTERM", flush=True)
        await asyncio.to_thread(broker.kill if number % 2 else broker.stop)
        await asyncio.to_thread(broker.start)


def run(minutes: float, connections: int) -> dict[str, object]:
    """Runs the load; returns the numbers of messages, the findings and the samples."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        flags = ("--connections-per-address", str(connections + 1_000), "--max-size", "4GiB")
        with BrokerProcess(Path(folder) / "data", *flags) as broker:
            idle = subprocess.Popen([sys.executable, "-m", "bench.soak_idle", str(broker.port), str(connections)])
            try:
                soak = asyncio.run(_drive(broker, minutes * 60, rows))
                code = idle.poll()
            finally:
                idle.kill()
                idle.wait()
    findings = dict(soak.findings)
    if missing := soak.missing():
        findings["lost, or not delivered within a minute"] = missing
    if code is not None:
        findings["the idle connections failed, code"] = code
    return {"minutes": minutes, "connections": connections, "findings": findings, "sent": dict(soak.sent), "rows": rows}


async def _drive(broker: BrokerProcess, seconds: float, rows: list[dict[str, float]]) -> Soak:
    retry, timeouts = popmq.Retry(tries=1_000, reach=120.0), popmq.Timeouts.all(120)
    async with popmq.AsyncClient(broker.endpoint, retry=retry, timeouts=timeouts) as client:
        soak = Soak(client, seconds)
        await soak.prepare()
        soak.began, soak.until = time.monotonic(), time.monotonic() + seconds
        await _load(soak, broker, rows)
        return soak


async def _load(soak: Soak, broker: BrokerProcess, rows: list[dict[str, float]]) -> None:
    names = [(topic, f"{topic}-{number}") for topic in TOPICS for number in range(GROUPS_PER_TOPIC)]
    consumers = [
        asyncio.ensure_future(soak.consume(topic, name, POP_EVERY_S * place / len(names)))
        for place, (topic, name) in enumerate(names)
    ]
    await asyncio.gather(sample(soak, broker, rows), restart(soak, broker), *(soak.produce(topic) for topic in TOPICS))
    await asyncio.wait(consumers, timeout=REST_S)
    for consumer in consumers:
        consumer.cancel()


def verdict(result: dict[str, object]) -> list[tuple[str, bool, str]]:
    """(floor, whether it holds, figures). A part is its median, so that a restart within it does not count."""
    rows: list[dict[str, float]] = result["rows"]  # type: ignore[assignment]  # as run() makes them
    quarter = max(1, len(rows) // 4)

    def median(name: str, part: list[dict[str, float]]) -> float:
        return sorted(row[name] for row in part)[len(part) // 2]

    first = [row for row in rows if row["s"] <= 65] or rows[:1]
    second, last = rows[quarter : 2 * quarter] or rows, rows[-quarter:]
    said = []
    for name in ("acked/s", "sent/s"):
        before, after = median(name, first), median(name, last)
        said.append(
            (f"{name} ≥ {RATE_MIN} × the first minute", after >= RATE_MIN * before, f"{before:.1f} → {after:.1f}")
        )
    for name in ("memory MiB", "store MiB"):
        before, after = median(name, second), median(name, last)
        filling = FILLING_MIB if name == "store MiB" and second[0]["s"] < FILLING_S else 0.0
        said.append((f"{name} flat", after <= GROWTH_MAX * before + filling, f"{before:.1f} → {after:.1f}"))
    return [*said, ("histories clean", not result["findings"], str(result["findings"] or "nothing lost or repeated"))]


def main(minutes: float, connections: int) -> int:
    """Runs, draws, prints; 1 when a floor does not hold."""
    (ROOT / "build").mkdir(exist_ok=True)
    result = run(minutes, connections)
    said = verdict(result)
    (ROOT / "build" / "soak.json").write_text(json.dumps(result))
    draw(ROOT / "build" / "soak.svg", result["rows"], ("acked/s", "sent/s", "pop p99 ms", "memory MiB", "store MiB"))  # type: ignore[arg-type]  # as run() makes them
    for floor, holds, figures in said:
        print(f"{'PASS' if holds else 'FAIL'}  {floor}: {figures}")
    return not all(holds for _, holds, _ in said)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else CONNECTIONS))
