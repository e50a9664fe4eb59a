"""Measures the connector in a real Spark on `local[2]`, JVM included, beside raw stubs and the SDK, in turns."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import popmq
from bench.measuring.floors import Floor
from bench.measuring.load import Spec
from bench.measuring.measure import loads, run
from bench.parts.legs import Effort, Results
from harness.broker_process import BrokerProcess

TOPIC, OUT, SENT, BODY = "local-spark", "out", "sent", b"x" * 1024
BATCH, CALLERS = 256, 8
#: Rows of Spark beside messages of raw stubs, and of sends of the SDK.
SOURCE_RATIO, SINK_RATIO = 0.8, 0.5
#: A driver that takes longer hangs.
DRIVER_S = 900.0
ROUNDS = 3
WORKS = ("lease", "offsets", "write")


@contextmanager
def driver(folder: Path, endpoint: str, topic: str, out: str, messages: int) -> Iterator[Callable[[str], float]]:
    """A Spark driver; calling it with `lease`, `offsets` or `write` gives the rows/s of that."""
    words = [folder, endpoint, topic, out, messages]
    command = [sys.executable, "-W", "ignore", "-m", "bench.parts.local_spark_driver", *map(str, words)]
    folder.mkdir()
    with (folder / "driver.log").open("w+") as log:
        running = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
        )
        assert running.stdin is not None
        assert running.stdout is not None
        timer = threading.Timer(DRIVER_S, running.kill)
        timer.start()

        def rate(work: str) -> float:
            print(work, file=running.stdin, flush=True)
            for line in running.stdout or ():
                if line.startswith("rate "):
                    return float(line.removeprefix("rate "))
            log.seek(0)
            raise RuntimeError(f"Spark ended while it measured {work}:\n{log.read()[-3000:]}")

        try:
            yield rate
        finally:
            running.stdin.close()
            running.wait(DRIVER_S)
            timer.cancel()


def everything(scratch: Path, effort: Effort, results: Results, say: Callable[[str], None]) -> None:
    """Fills a topic, and reads and writes it by each in turns: the best of three counts."""
    messages = effort.local_spark
    if not messages:
        return
    with BrokerProcess(scratch / "local-spark") as broker, popmq.Client(broker.endpoint) as client:
        for topic in (TOPIC, OUT, SENT):
            client.topics.create(topic, queues=8)
        say(f"Spark on local[2]: {messages:,} messages")
        send(client, TOPIC, messages)
        best: dict[str, float] = {}
        with driver(scratch / "driver", broker.endpoint, TOPIC, OUT, messages) as spark:
            for number in range(ROUNDS):
                say(f"Spark on local[2]: round {number + 1} of {ROUNDS}")
                client.groups.create(f"plain-{number}")
                found = {
                    "pops": pops(broker.endpoint, f"plain-{number}", messages),
                    "sends": send(client, SENT, messages),
                } | {work: spark(work) for work in WORKS}
                best = {name: max(rate, best.get(name, 0.0)) for name, rate in found.items()}
    results.notes |= {
        "local[2], pops and acks of raw stubs, messages/s": best["pops"],
        "local[2], Spark, mode=lease, rows/s": best["lease"],
        "local[2], Spark, mode=offsets, rows/s": best["offsets"],
        "local[2], sends of the SDK, messages/s": best["sends"],
        "local[2], Spark, exactly-once sink, rows/s": best["write"],
    }
    lease, offsets, sink = best["lease"] / best["pops"], best["offsets"] / best["pops"], best["write"] / best["sends"]
    results.floors += [
        Floor("Spark on local[2] (lease) beside pop and ack", lease, SOURCE_RATIO, "×", at_most=False),
        Floor("Spark on local[2] (offsets) beside pop and ack", offsets, SOURCE_RATIO, "×", at_most=False),
        Floor("Spark on local[2], exactly-once sink beside sends", sink, SINK_RATIO, "×", at_most=False),
    ]


def send(client: popmq.Client, topic: str, messages: int) -> float:
    """Messages/s of one caller of the SDK that sends by 256."""
    batch = [popmq.Message(BODY)] * BATCH
    began = time.perf_counter()
    for first in range(0, messages, BATCH):
        client.send(topic, batch[: messages - first])
    return messages / (time.perf_counter() - began)


def pops(endpoint: str, group: str, messages: int) -> float:
    """Messages/s of one process that pops and acks the whole topic by 256 through raw stubs."""
    spec = Spec("raw_pop", endpoint, TOPIC, group, batch=BATCH, callers=CALLERS, seconds=600)
    with loads([spec]) as waiting:
        (tally,) = run(waiting)
    assert tally.messages == messages, f"{tally.messages} of {messages}"
    return tally.messages / tally.elapsed_s
