"""Measures the cost of attacks on a face of a broker, and for a well-behaved client (the neighbour) beside them.

    python -m bench.attacks [python|grpcio|http] [SECONDS] [ATTACK …]

`python` and `grpcio` are the transports of gRPC over HTTP/2, `http` is the port of HTTP with JSON.

For each attack one process sends it as fast as it can, and connects again when the broker ends the connection. The
table has the latency of the neighbour's calls in milliseconds before and during it, the broker's memory before,
during and after it and its CPU, and how many pieces the attacker sent on how many connections. Without a name of an
attack more rows have CONNECTIONS that make no calls: they send nothing, or what a call begins with.
"""

import contextlib
import http.client
import itertools
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc

from harness import attacks, http_attacks
from harness.broker_process import BrokerProcess, own_port
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc

PATH = b"/popmq.v1.Admin/ListTopics"
SECONDS = 5.0
#: Calls of the neighbour in a second, and the time limit of one.
CALLS_PER_S, CALL_S = 50, 30.0
#: Pieces sent with one write.
PIECES = 50
CONNECTIONS = 5_000
#: Seconds after an attack until the memory that it left is measured.
AFTER_S = 2.0
ROW = "| {:<16} | {:>10} | {:>6} | {:>10} | {:>10} | {:>10} | {:>9} | {:>6} | {:>9} | {:>9} |"
HEAD = (
    "attack",
    "p99 before",
    "p50",
    "p99 during",
    "MiB before",
    "MiB during",
    "MiB after",
    "CPU",
    "pieces",
    "connected",
)


class Client(Protocol):
    """A client of a face: one call, then the end."""

    def call(self) -> None: ...

    def close(self) -> None: ...


class OverGrpc:
    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._admin: Any = rpc.AdminStub(self._channel)

    def call(self) -> None:
        self._admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)

    def close(self) -> None:
        self._channel.close()


class OverHttp:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_S)

    def call(self) -> None:
        self._connection.request("POST", PATH.decode(), b"{}", {"content-type": "application/json"})
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Face:
    """What is attacked: what an attacker sends first, then; what waiting connections have sent; the neighbour."""

    greeting: bytes
    attacks: dict[str, Callable[[bytes], attacks.Pieces]]
    waiting: dict[str, bytes]
    client: Callable[[int], Client]


GRPC = Face(attacks.GREETING, attacks.ATTACKS, {"half open": b"", "idle": attacks.GREETING}, OverGrpc)
FACES = {
    "python": GRPC,
    "grpcio": GRPC,
    "http": Face(
        b"",
        http_attacks.ATTACKS,
        {
            "half open": b"",
            "slow heads": http_attacks.slow_head(PATH),
            "slow bodies": http_attacks.slow_body(PATH),
            "idle": http_attacks.call(PATH, b"{}"),
        },
        OverHttp,
    ),
}


def attack(face: str, name: str, port: int, seconds: float) -> None:
    """The attacker's process. Prints pieces sent and connections used."""
    end, sent, connections = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        connections += 1
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(FACES[face].greeting)
            pieces = FACES[face].attacks[name](PATH)
            while time.monotonic() < end:
                batch = list(itertools.islice(pieces, PIECES))
                client.sendall(b"".join(batch))
                sent += len(batch)
                if not _read(client):
                    break
    print(sent, connections)


def _read(client: socket.socket) -> bool:
    """Reads what the server has sent; False when it has closed. Full socket buffers would stop the attack."""
    with contextlib.suppress(BlockingIOError):
        while True:
            if not client.recv(1 << 16, socket.MSG_DONTWAIT):
                return False
    return True


@contextlib.contextmanager
def idle(port: int, greeting: bytes) -> Iterator[list[socket.socket]]:
    """Opens connections that make no calls."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            clients[-1].sendall(greeting)
        yield clients


class Neighbour:
    """A client of the same broker on a connection of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.call()

    def calls_ms(self, seconds: float) -> list[float]:
        """Durations of its calls, sorted. Each call starts at its scheduled time, even if the one before was late."""
        found, end, due = [], time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < end:
            time.sleep(max(0.0, due - time.monotonic()))
            self._client.call()
            found.append((time.monotonic() - due) * 1000)
            due += 1 / CALLS_PER_S
        return sorted(found)

    def close(self) -> None:
        self._client.close()


def cpu_s(pid: int) -> float:
    """CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


Begin = Callable[[int], contextlib.AbstractContextManager[subprocess.Popen[str] | None]]


def measure(name: str, face: str, data: Path, seconds: float, begin: Begin) -> None:
    """Starts a broker, measures it before, during and after an attack, and prints a row."""
    http_port = own_port()
    flags = ["--sync", "none", "--connections-per-address", str(2 * CONNECTIONS), "--http-port", str(http_port)]
    flags += ["--transport", "python" if face == "http" else face]
    with BrokerProcess(data, *flags) as broker, contextlib.ExitStack() as stack:
        port = http_port if face == "http" else broker.port
        neighbour = stack.enter_context(contextlib.closing(Neighbour(FACES[face].client(port))))
        calm, memory = neighbour.calls_ms(seconds), broker.memory_bytes
        with begin(port) as attacker:
            cpu, began = cpu_s(broker.pid), time.monotonic()
            busy = neighbour.calls_ms(seconds)
            share = (cpu_s(broker.pid) - cpu) / (time.monotonic() - began)
            grown = broker.memory_bytes
            sent, connections = attacker.communicate()[0].split() if attacker else ("", "")
        neighbour.calls_ms(AFTER_S)
        kept = broker.memory_bytes
    figures = [f"{p99(calm):.1f}", f"{busy[len(busy) // 2]:.1f}", f"{p99(busy):.1f}"]
    figures += [f"{size / (1 << 20):.0f}" for size in (memory, grown, kept)] + [f"{share:.0%}"]
    print(ROW.format(name, *figures, sent, connections), flush=True)


def p99(found: list[float]) -> float:
    return found[int(len(found) * 0.99)]


@contextlib.contextmanager
def attacking(face: str, name: str, port: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """The attacker, in a process of its own."""
    words = [sys.executable, "-m", "bench.attacks", "attack", face, name, str(port), str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        yield process


@contextlib.contextmanager
def waiting(greeting: bytes, port: int) -> Iterator[None]:
    with idle(port, greeting):
        yield None


def main(face: str, seconds: float, names: Sequence[str]) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the broker inherits it
    print(ROW.format(*HEAD))
    print(ROW.format("---", *["--:"] * 9))
    with tempfile.TemporaryDirectory() as folder:
        for name in names or FACES[face].attacks:
            begin = partial(attacking, face, name, seconds=seconds)
            measure(name.replace("_", " "), face, Path(folder) / name, seconds, begin)
        for name, sent in () if names else FACES[face].waiting.items():
            measure(f"{CONNECTIONS:,} {name}", face, Path(folder) / name, seconds, partial(waiting, sent))


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["attack"]:
        attack(given[1], given[2], int(given[3]), float(given[4]))
    else:
        main(given[0] if given else "python", float(given[1]) if given[1:] else SECONDS, given[2:])
