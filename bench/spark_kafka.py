"""Measures source and sink beside Spark's own for Kafka: same machine, Spark and messages, in turns.

    make spark-kafka

Kafka and its source come from Maven, for a Spark that both connectors run on (build/delta). Three measurements:

    rows/s                a backlog of 1 KiB messages into Parquet, availableNow: rows by the time of its micro-batches
    rows/s written        1 KiB rows into a topic, one batch of two tasks, commit included
    from send to table    1,000 messages a second: the age of a micro-batch's messages when its Parquet is written
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import popmq
from bench.peers.kafka_broker import Kafka, kafka
from harness.broker_process import ROOT, BrokerProcess

PYTHON = ROOT / "build" / "delta" / "bin" / "python"
SIZE, PER_SECOND = 1024, 1_000
#: Each byte becomes one of 26 capitals, as in the bodies of Kafka's own sender.
CAPITALS = bytes(ord("A") + byte % 26 for byte in range(256))
#: A driver that takes longer hangs.
DRIVER_S = 900.0


def main(messages: int, seconds: int) -> None:
    """Fills both with `messages`, then sends to both for `seconds`; prints a table."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        kafka(Path(scratch) / "kafka") as other,
        BrokerProcess(Path(scratch) / "popmq") as broker,
        popmq.Client(broker.endpoint) as client,
    ):
        other.make("deep")
        other.make("live")
        other.make("written")
        client.topics.create("deep", queues=8)
        client.topics.create("live", queues=8)
        client.topics.create("written", queues=8)
        print(f"spark-kafka: {messages:,} messages of {SIZE} bytes into each", flush=True)
        other.fill("deep", messages, SIZE)
        for _ in range(0, messages, 500):
            client.send("deep", messages_like_kafka_s(500))
        found = _driver(scratch, broker.endpoint, other, client, messages, seconds)
    table = Table("", "Kafka's source", "mode=offsets", "mode=lease", title="Spark, beside its Kafka source")
    for what in ("rows/s", "s from send to table, median"):
        table.add_row(what, *(f"{found[source][what]:,.2f}" for source in ("kafka", "offsets", "lease")))
    sinks = Table("", "Kafka's sink", "at-least-once", "exactly-once", title="Spark, beside its Kafka sink")
    sinks.add_row("rows/s", *(f"{rate:,.0f}" for rate in found["written"].values()))
    for each in (table, sinks):
        Console(width=100).print(each)


def _driver(
    scratch: str, endpoint: str, other: Kafka, client: popmq.Client, messages: int, seconds: int
) -> dict[str, dict[str, float]]:
    """Runs the driver; sends to both brokers while it asks for that."""
    words = [PYTHON, "-m", "bench.spark_kafka_driver", scratch, endpoint, other.endpoint, str(messages), str(seconds)]
    running = subprocess.Popen([str(word) for word in words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(DRIVER_S, running.kill)
    timer.start()
    found: Any = None
    try:
        for line in running.stdout or ():
            if line.startswith("send kafka"):
                other.fill("live", PER_SECOND * seconds, SIZE, PER_SECOND)
            elif line.startswith("send popmq"):
                _send(client, seconds)
            elif line.startswith("found "):
                found = json.loads(line.removeprefix("found "))
            else:
                print(line, end="", flush=True)
    finally:
        timer.cancel()
        running.kill()
        running.wait()
    if found is None:
        raise SystemExit("spark-kafka: the driver ended early; its errors are above")
    return dict(found)


def _send(client: popmq.Client, seconds: int) -> None:
    """PER_SECOND messages a second, in twenty sends each."""
    began, each = time.monotonic(), PER_SECOND // 20
    for number in range(20 * seconds):
        time.sleep(max(0.0, began + number / 20 - time.monotonic()))
        client.send("live", messages_like_kafka_s(each))


def messages_like_kafka_s(count: int) -> list[popmq.Message]:
    """Random characters, another body each: with equal ones Parquet would have less work for PopMQ than for Kafka."""
    return [popmq.Message(random.randbytes(SIZE).translate(CAPITALS)) for _ in range(count)]


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
