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

SIGTERM or Ctrl-C ends a part: the groups receive what is left, the broker stops, and build/soak keeps its store and the
notes of the load. The same command goes on from there, until all minutes have run.
"""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import popmq
from bench.soak_chart import draw
from bench.soak_history import Group, History
from harness.broker_process import ROOT, BrokerProcess

TOPICS = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "deals": "TRANSACTION"}
GROUPS_PER_TOPIC = 50
#: Messages of one send, and seconds between two sends to a topic; of a group between two pops.
BATCH, SEND_EVERY_S, POP_EVERY_S = 5, 1.0, 2.0
DELAY_S, KEEP_S, LEASE_S = 3.0, 60.0, 60.0
CONNECTIONS, SAMPLE_S, RESTARTS = 5_000, 5.0, 6
#: The broker's floors: rates, memory and file of the last quarter against an earlier part.
RATE_MIN, GROWTH_MAX = 0.9, 1.25
#: The file grows for two hours, by 1.3 MiB in each: ended transactions are dropped an hour after the hour in which they
#: ended, 5 a second. A part that begins in the first hour may be followed by one that has so much more.
FILLING_S, FILLING_MIB = 3_600.0, 2.0
#: Seconds for the rest of the messages at the end of a part.
REST_S = 60.0

#: What a part keeps for the next one.
KEPT = ROOT / "build" / "soak"
NOTES = KEPT / "load.json"


def groups_of(topic: str) -> list[str]:
    return [f"{topic}-{number}" for number in range(GROUPS_PER_TOPIC)]


class Soak:
    """One part of the load: it adds to `history`, and ends after `seconds` of all parts together, or at stop()."""

    def __init__(self, client: popmq.AsyncClient, history: History, seconds: float) -> None:
        self.client, self.history, self.seconds = client, history, seconds
        self.began = time.monotonic() - history.seconds
        self.ended = asyncio.Event()
        self.acked = 0
        self.slow_ms: list[float] = []

    @property
    def now_s(self) -> float:
        """Seconds that the load has run, in all parts."""
        return time.monotonic() - self.began

    def stop(self) -> None:
        self.ended.set()

    async def wait_end(self) -> None:
        """Returns when all the time has run, or at stop()."""
        await self.pause(self.seconds)
        self.history.seconds = min(self.now_s, self.seconds) if self.ended.is_set() else self.seconds
        self.stop()

    async def pause(self, until_s: float) -> None:
        """Waits until `until_s` of now_s, at most until the part ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), max(0.0, until_s - self.now_s))

    async def produce(self, topic: str) -> None:
        due, sent = self.now_s, self.history.sent
        while not self.ended.is_set():
            messages = [self._message(topic, number) for number in range(sent[topic], sent[topic] + BATCH)]
            if topic == "deals":
                async with self.client.transaction(topic) as transaction:
                    await transaction.send(messages)
            else:
                await self.client.send(topic, messages)
            sent[topic] += BATCH
            due += SEND_EVERY_S
            await self.pause(due)

    def _message(self, topic: str, number: int) -> popmq.Message:
        body = f"{number} ".encode() + bytes(200)
        if topic == "fifo":
            return popmq.Message(body, message_id=f"{topic}-{number}", message_group=f"g{number % 3}")
        delay = DELAY_S if topic == "delay" else 0.0
        return popmq.Message(body, message_id=f"{topic}-{number}", delay=delay)

    async def consume(self, topic: str, name: str, offset_s: float) -> None:
        await asyncio.sleep(offset_s)
        group = self.history.groups[topic][name]
        due = time.monotonic()
        while not self.ended.is_set() or group.below < self.history.sent[topic]:
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
            self.history.findings["came again after an answered ack"] += 1
        if topic == "fifo":
            key = f"g{number % 3}"
            if delivery.attempt == 1 and number < group.last.get(key, -1):
                self.history.findings["out of order in its message group"] += 1
            group.last[key] = max(number, group.last.get(key, -1))


async def sample(soak: Soak, broker: BrokerProcess) -> None:
    """Adds a row every SAMPLE_S."""
    acked, sent, at = 0, soak.history.sent.total(), soak.now_s
    while not soak.ended.is_set():
        await soak.pause(at + SAMPLE_S)
        slow, soak.slow_ms = sorted(soak.slow_ms), []
        with contextlib.suppress(popmq.PopMQError, OSError):
            store = (await soak.client.broker.stats()).store
            total, now = soak.history.sent.total(), soak.now_s
            if now - at < SAMPLE_S / 2:  # the rest of a part, too short for a rate
                return
            row = {"s": now, "acked/s": (soak.acked - acked) / (now - at)}
            row |= {"sent/s": (total - sent) / (now - at), "pop p99 ms": slow[int(len(slow) * 0.99)] if slow else 0.0}
            row |= {"memory MiB": broker.memory_bytes / (1 << 20), "store MiB": store.used_bytes / (1 << 20)}
            soak.history.rows.append(row)
            print("  ".join(f"{name} {value:,.1f}" for name, value in row.items()), flush=True)
            acked, sent, at = soak.acked, total, now


async def restart(soak: Soak, broker: BrokerProcess) -> None:
    """SIGTERM and SIGKILL by turns."""
    every = soak.seconds / (RESTARTS + 1)
    for number in range(int(soak.history.seconds / every), RESTARTS):
        await soak.pause((number + 1) * every)
        if soak.ended.is_set():
            return
        print("restart: kill -9" if number % 2 else "restart: SIGTERM", flush=True)
        await asyncio.to_thread(broker.kill if number % 2 else broker.stop)
        await asyncio.to_thread(broker.start)


def run(seconds: float, connections: int) -> History:
    """Runs the load until `seconds` have run in all parts together, or until SIGTERM or SIGINT."""
    history, flags = _kept(), ("--connections-per-address", str(connections + 1_000), "--max-size", "4GiB")
    with BrokerProcess(KEPT / "data", *flags, own_session=True) as broker:
        command = [sys.executable, "-m", "bench.soak_idle", str(broker.port), str(connections)]
        idle = subprocess.Popen(command, start_new_session=True)
        try:
            asyncio.run(_drive(broker, history, seconds))
            code = idle.poll()
        finally:
            idle.kill()
            idle.wait()
    if code is not None:
        history.findings[f"the idle connections failed, code {code}"] += 1
    return history


def _kept() -> History:
    """The history of the parts before this one; an empty one, and no store, when the last part did not end."""
    if NOTES.exists():
        history = History.load(NOTES)
        print(f"soak: goes on after {history.seconds / 60:.1f} minutes", flush=True)
        return history
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    return History()


async def _drive(broker: BrokerProcess, history: History, seconds: float) -> None:
    retry, timeouts = popmq.Retry(tries=1_000, reach=120.0), popmq.Timeouts.all(120)
    async with popmq.AsyncClient(broker.endpoint, retry=retry, timeouts=timeouts) as client:
        if not history.seconds:
            await prepare(client)
        soak = Soak(client, history, seconds)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, soak.stop)
        NOTES.unlink(missing_ok=True)  # from here on they are older than the store
        await _load(soak, broker)
        history.save(NOTES)


async def prepare(client: popmq.AsyncClient) -> None:
    """Creates the topics and the groups; the first pop of a group sets where it begins."""
    for topic, kind in TOPICS.items():
        await client.topics.create(topic, type=kind, queues=2, retention=popmq.Retention(keep=KEEP_S))  # type: ignore[arg-type]  # the keys of TOPICS are types
        for group in groups_of(topic):
            await client.groups.create(group)
            await client.pop(topic, group, max_messages=1)


async def _load(soak: Soak, broker: BrokerProcess) -> None:
    names = [(topic, group) for topic in TOPICS for group in groups_of(topic)]
    consumers = [
        asyncio.ensure_future(soak.consume(topic, group, POP_EVERY_S * place / len(names)))
        for place, (topic, group) in enumerate(names)
    ]
    others = [sample(soak, broker), restart(soak, broker), *(soak.produce(topic) for topic in TOPICS)]
    await asyncio.gather(soak.wait_end(), *others)
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
    """Runs, draws, prints; 1 when a floor does not hold, or when the part was stopped."""
    history = run(minutes * 60, connections)
    if history.seconds < minutes * 60:
        history.save(NOTES)
        print(f"soak: {history.seconds / 60:.1f} of {minutes:g} minutes have run; the same command goes on from here")
        return 1
    NOTES.unlink()
    result: dict[str, Any] = {"minutes": minutes, "connections": connections, "parts": history.parts}
    result |= {"findings": history.findings, "sent": history.sent, "rows": history.rows}
    if missing := history.missing():
        history.findings["lost, or not delivered within a minute"] = missing
    said = verdict(result)
    (ROOT / "build" / "soak.json").write_text(json.dumps(result))
    draw(ROOT / "build" / "soak.svg", history.rows, ("acked/s", "sent/s", "pop p99 ms", "memory MiB", "store MiB"))
    for floor, holds, figures in said:
        print(f"{'PASS' if holds else 'FAIL'}  {floor}: {figures}")
    return not all(holds for _, holds, _ in said)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else CONNECTIONS))
