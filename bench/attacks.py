"""What attacks on HTTP/2 cost a broker, beside a neighbour that only wants its calls answered.

    python -m bench.attacks [python|grpcio] [SECONDS]

For each attack one process sends it as fast as it can, and connects again when the broker ends the connection. The
table has the neighbour's p50 and p99 meanwhile, the broker's CPU and memory, and how often the attacker was sent away.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from harness.attacks import ATTACKS, GREETING
from harness.broker_process import BrokerProcess
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc

PATH = b"/popmq.v1.Admin/ListTopics"
SECONDS = 5.0
#: Calls of the neighbour in a second, and the time that one may take.
CALLS_PER_S, CALL_S = 50, 30.0
#: Pieces that leave with one write.
PIECES = 50
CONNECTIONS = 5_000
ROW = "| {:<16} | {:>9} | {:>9} | {:>9} | {:>7} | {:>8} | {:>9} |"


def attack(name: str, port: int, seconds: float) -> None:
    """The attacker's process. Prints pieces sent and connections used."""
    end, sent, connections = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        connections += 1
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(GREETING)
            pieces = ATTACKS[name](PATH)
            while time.monotonic() < end:
                batch = list(itertools.islice(pieces, PIECES))
                client.sendall(b"".join(batch))
                sent += len(batch)
                if not _read(client):
                    break
    print(sent, connections)


def _read(client: socket.socket) -> bool:
    """Takes what the server said; whether it has not closed. Who never reads would measure the sockets' buffers."""
    with contextlib.suppress(BlockingIOError):
        while True:
            if not client.recv(1 << 16, socket.MSG_DONTWAIT):
                return False
    return True


@contextlib.contextmanager
def idle(port: int, greeting: bytes) -> Iterator[list[socket.socket]]:
    """Connections that ask for nothing."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            clients[-1].sendall(greeting)
        yield clients


def neighbour(port: int, seconds: float) -> list[float]:
    """Milliseconds of its calls, sorted; each starts at its own time, whether or not the one before was late."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        admin: Any = rpc.AdminStub(channel)
        admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
        found, end, due = [], time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < end:
            time.sleep(max(0.0, due - time.monotonic()))
            admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
            found.append((time.monotonic() - due) * 1000)
            due += 1 / CALLS_PER_S
        return sorted(found)


def cpu_s(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def row(
    name: str, broker: BrokerProcess, memory: int, seconds: float, attacker: subprocess.Popen[str] | None = None
) -> None:
    """Measures while the attacker runs, and prints. `memory`: what the broker used before, in bytes."""
    before, began = cpu_s(broker.pid), time.monotonic()
    found = neighbour(broker.port, seconds)
    busy = (cpu_s(broker.pid) - before) / (time.monotonic() - began)
    grown = (broker.memory_bytes - memory) / (1 << 20)
    sent, connections = attacker.communicate()[0].split() if attacker else ("", "")
    p50, p99 = found[len(found) // 2], found[int(len(found) * 0.99)]
    print(ROW.format(name, f"{p50:.1f}", f"{p99:.1f}", f"{grown:.1f}", f"{busy:.0%}", sent, connections), flush=True)


def main(transport: str, seconds: float) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the broker inherits it
    print(ROW.format("attack", "p50 ms", "p99 ms", "MiB more", "CPU", "pieces", "connected"))
    print(ROW.format(*["---"] * 7))
    with tempfile.TemporaryDirectory() as folder:
        with BrokerProcess(Path(folder) / "data", "--transport", transport, "--sync", "none") as broker:
            row("none", broker, broker.memory_bytes, seconds)
        for name in ATTACKS:
            with BrokerProcess(Path(folder) / name, "--transport", transport, "--sync", "none") as broker:
                words = [sys.executable, "-m", "bench.attacks", "attack", name, str(broker.port), str(seconds)]
                row(
                    name,
                    broker,
                    broker.memory_bytes,
                    seconds,
                    subprocess.Popen(words, stdout=subprocess.PIPE, text=True),
                )
        for name, greeting in (("half open", b""), ("idle", GREETING)):
            with BrokerProcess(Path(folder) / name, "--transport", transport, "--sync", "none") as broker:
                memory = broker.memory_bytes
                with idle(broker.port, greeting):
                    row(f"{CONNECTIONS} {name}", broker, memory, seconds)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["attack"]:
        attack(given[1], int(given[2]), float(given[3]))
    else:
        main(given[0] if given else "python", float(given[1]) if given[1:] else SECONDS)
