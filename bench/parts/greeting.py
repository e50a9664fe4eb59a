"""Measures how long a new connection waits for its greeting while thirty others open calls and finish none.

    python -m bench.parts.greeting [SECONDS]

One process has 30 connections, all of one address, with 10,000 calls on each, and connects again when the broker ends
one. Ten times a second a new connection is made from the same address, and from another one: the table has how many
milliseconds they waited for the broker's SETTINGS, and the broker's memory.
"""

import contextlib
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.attacks import GREETING, head
from harness.broker_process import BrokerProcess
from popmq_http2.frames import END_HEADERS, HEADERS, frame

SECONDS, CONNECTIONS, CALLS = 10.0, 30, 10_000
#: New connections from each address in a second, and how long one may wait.
CONNECTS_PER_S, GREETED_S = 10, 60.0
SAME, OTHER = "127.0.0.1", "127.0.0.2"
UNARY, STREAM = "/popmq.v1.Admin/ListTopics", "/apache.rocketmq.v2.MessagingService/Telemetry"
PIECE_BYTES = 1 << 16
ROW = "| {:<24} | {:>9} | {:>8} | {:>9} | {:>8} | {:>4} |"
HEAD = ("30 connections", "same, p50", "longest", "other p50", "longest", "MiB")


class Attacker:
    """The connections of the attacking process."""

    def __init__(self, port: int, path: str, reads: bool) -> None:
        self._port, self._reads = port, reads
        opens = (frame(HEADERS, END_HEADERS, number, head(path.encode())) for number in range(1, 2 * CALLS, 2))
        self._sent = memoryview(GREETING + b"".join(opens))
        self._left: dict[socket.socket, memoryview] = {}
        self._ready = selectors.DefaultSelector()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for _ in range(CONNECTIONS):
            self._connect()
        while time.monotonic() < end:
            for key, events in self._ready.select(0.1):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                try:
                    self._step(client, events)
                except OSError:
                    self._ready.unregister(client)
                    client.close()
                    self._connect()

    def _connect(self) -> None:
        client = socket.create_connection(("127.0.0.1", self._port))
        client.setblocking(False)
        self._left[client] = self._sent
        self._ready.register(client, selectors.EVENT_WRITE | (selectors.EVENT_READ if self._reads else 0))

    def _step(self, client: socket.socket, events: int) -> None:
        """Sends and reads what the socket allows. Raises OSError when the broker has ended the connection."""
        if events & selectors.EVENT_READ and not client.recv(PIECE_BYTES):
            raise ConnectionResetError
        if events & selectors.EVENT_WRITE:
            left = self._left[client]
            self._left[client] = left = left[client.send(left[:PIECE_BYTES]) :]
            if not left and self._reads:
                self._ready.modify(client, selectors.EVENT_READ)
            elif not left:
                self._ready.unregister(client)  # it stays open, and is not read


def greeted_ms(port: int, address: str) -> float:
    """How long a new connection from this address waits for the first bytes of the broker."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), GREETED_S, (address, 0)) as client:
        client.sendall(GREETING)
        client.recv(1)
    return (time.monotonic() - began) * 1000


def greetings_ms(port: int, address: str, end: float) -> list[float]:
    """Those of one connection after the other, sorted. Each counts from when it was due."""
    found, due = list[float](), time.monotonic()
    while time.monotonic() < end:
        time.sleep(max(0.0, due - time.monotonic()))
        late_ms = (time.monotonic() - due) * 1000
        found.append(late_ms + greeted_ms(port, address))
        due = max(due + 1 / CONNECTS_PER_S, time.monotonic())
    return sorted(found)


def measure(what: str, data: Path, attacker: tuple[str, ...], seconds: float) -> None:
    """Starts a broker, and prints a row."""
    with BrokerProcess(data, "--sync", "none") as broker, contextlib.ExitStack() as stack:
        if attacker:
            words = [
                sys.executable,
                "-m",
                "bench.parts.greeting",
                "attack",
                str(broker.port),
                str(seconds + 1),
                *attacker,
            ]
            stack.enter_context(subprocess.Popen(words))
            time.sleep(1)
        end = time.monotonic() + seconds
        with ThreadPoolExecutor() as pool:
            both = [pool.submit(greetings_ms, broker.port, address, end) for address in (SAME, OTHER)]
            same, other = (each.result() for each in both)
        memory = broker.memory_bytes >> 20
    figures = [f"{each:.0f}" for found in (same, other) for each in (found[len(found) // 2], found[-1])]
    print(ROW.format(what, *figures, memory), flush=True)


def main(seconds: float) -> None:
    print(ROW.format(*HEAD))
    print(ROW.format("---", *["--:"] * 5))
    rows: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("none", ()),
        ("open calls", (UNARY, "reads")),
        ("open calls, read nothing", (UNARY, "")),
        ("open streams", (STREAM, "reads")),
    )
    for what, attacker in rows:
        with tempfile.TemporaryDirectory() as folder:
            measure(what, Path(folder) / "data", attacker, seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["attack"]:
        Attacker(int(sys.argv[2]), sys.argv[4], bool(sys.argv[5])).run(float(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
