"""Measures what bulk readers cost their neighbour: the durations of its sends, alone and beside them.

    python -m bench.bulk [SECONDS]

Two processes pull columns of 1 KiB messages without a pause, 4 MiB in each call, as Spark's executors do. The neighbour
is another process with a connection of its own. It sends one message 100 times a second. Every OK is on disk.

On a machine with few cores the readers' processes alone make the neighbour wait for a core. So the same is measured
beside as many programs that only count: what readers cost beyond that is the broker's.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import popmq
from bench.attacks import p99
from harness.broker_process import BrokerProcess

SECONDS, READERS, SENDS_PER_S = 5.0, 2, 100
COUNTS = "while True: sum(range(1000))"
TOPIC, MESSAGES, BODY, PULL_BYTES = "bulk", 32_768, 1024, 4 << 20


def read(endpoint: str, seconds: float) -> None:
    """A reader: prints the messages that it read in a second."""
    end, begun, messages = time.monotonic() + seconds, time.monotonic(), 0
    with popmq.Client(endpoint) as client:
        offset = 0
        while time.monotonic() < end:
            pulled = client.pull_columns(TOPIC, 0, offset, max_messages=4096, max_bytes=PULL_BYTES)
            messages += len(pulled.columns.body)
            offset = pulled.next_offset % MESSAGES
    print(f"{messages / (time.monotonic() - begun):.0f}")


def sends_ms(endpoint: str, seconds: float) -> list[float]:
    """Durations of the neighbour's sends, sorted."""
    found = list[float]()
    with popmq.Client(endpoint) as client:
        client.send("neighbour", bytes(BODY))
        due = time.monotonic()
        end = due + seconds
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            client.send("neighbour", bytes(BODY))
            found.append((time.monotonic() - began) * 1000)
            due = max(due + 1 / SENDS_PER_S, time.monotonic())
    return sorted(found)


def figures(folder: Path, seconds: float) -> dict[str, float]:
    """p50 and p99 of the neighbour's sends in ms: alone, beside programs that only count, and beside readers."""
    folder.mkdir(exist_ok=True)
    with BrokerProcess(folder / "data") as broker:
        with popmq.Client(broker.endpoint) as client:
            client.topics.create(TOPIC, queues=1)
            client.topics.create("neighbour")
            for _ in range(MESSAGES // 1024):
                client.send(TOPIC, [bytes(BODY)] * 1024)
        alone = sends_ms(broker.endpoint, seconds)
        counting = [subprocess.Popen([sys.executable, "-c", COUNTS]) for _ in range(READERS)]
        counted = sends_ms(broker.endpoint, seconds)
        for program in counting:
            program.kill()
            program.wait()
        words = [sys.executable, "-m", "bench.bulk", "read", broker.endpoint, str(seconds + 2)]
        readers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(READERS)]
        time.sleep(1)
        beside = sends_ms(broker.endpoint, seconds)
        rate = sum(float(reader.communicate()[0]) for reader in readers)
    return {
        "p50_alone": alone[len(alone) // 2],
        "p99_alone": p99(alone),
        "p50_counted": counted[len(counted) // 2],
        "p99_counted": p99(counted),
        "p50_beside": beside[len(beside) // 2],
        "p99_beside": p99(beside),
        "messages_per_s": rate,
    }


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = figures(Path(folder), seconds)
    print(f"sends alone: p50 {found['p50_alone']:.1f} ms, p99 {found['p99_alone']:.1f} ms")
    print(f"beside {READERS} that count: p50 {found['p50_counted']:.1f} ms, p99 {found['p99_counted']:.1f} ms")
    print(f"beside {READERS} readers: p50 {found['p50_beside']:.1f} ms, p99 {found['p99_beside']:.1f} ms")
    print(f"the readers: {found['messages_per_s']:,.0f} messages/s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2], float(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
