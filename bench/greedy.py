"""Measures what a client that calls without a pause costs its neighbour, with and without a limit of its access key.

    python -m bench.greedy [SECONDS]

The greedy client is a process with 64 calls under way, each a Send of 1 KiB, repeated after any answer; in one row it
also waits as long as a refusal asks for, as the SDK does. The neighbour has a key and a connection of its own, and
sends 50 times a second.
"""

import asyncio
import hmac
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from google.rpc import status_pb2

from bench.attacks import cpu_s, p99
from harness.broker_process import BrokerProcess
from popmq_proto.v1 import popmq_pb2 as pb

SECONDS, CALLS, NEIGHBOUR_CALLS_PER_S, LIMIT_PER_S = 5.0, 64, 50, 200
SEND = "/popmq.v1.Broker/Send"
ROW = "| {:<38} | {:>13} | {:>13} | {:>10} | {:>10} | {:>6} |"
HEAD = ("beside the neighbour", "p50 ms", "p99 ms", "answered/s", "refused/s", "CPU")


def secret_of(name: str) -> str:
    return f"the secret of {name}"


def headers(name: str) -> tuple[tuple[str, str], ...]:
    moment = "20260101T000000Z"
    mac = hmac.new(secret_of(name).encode(), moment.encode(), "sha1").hexdigest()
    signature = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={mac}"
    return (("x-mq-date-time", moment), ("authorization", signature))


def request(size: int) -> bytes:
    return pb.SendRequest(topic="orders", messages=[pb.Message(body=bytes(size))]).SerializeToString()


def retry_after_s(error: Any) -> float:
    """The pause that the refusal asks for."""
    status, info = status_pb2.Status(), pb.ErrorInfo()
    status.ParseFromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    status.details[0].Unpack(info)
    return info.retry_after_ms / 1000


async def greedy(endpoint: str, seconds: float, polite: bool) -> None:
    """The greedy process. Prints how many calls were answered and how many refused."""
    end, counts = time.monotonic() + seconds, [0, 0]
    async with grpc.aio.insecure_channel(endpoint) as channel:
        send: Any = channel.unary_unary(SEND)

        async def run() -> None:
            while time.monotonic() < end:
                try:
                    await send(request(1024), metadata=headers("greedy"), timeout=30)
                    counts[0] += 1
                except grpc.RpcError as error:
                    counts[1] += 1
                    if polite:
                        await asyncio.sleep(min(retry_after_s(error), max(0.0, end - time.monotonic())))

        await asyncio.gather(*(run() for _ in range(CALLS)))
    print(*counts)


def neighbour_ms(endpoint: str, seconds: float) -> list[float]:
    """Durations of its calls, sorted. Each starts at its scheduled time, even if the one before was late."""
    found = list[float]()
    with grpc.insecure_channel(endpoint) as channel:
        send: Any = channel.unary_unary(SEND)
        send(request(100), metadata=headers("neighbour"), timeout=30)
        end = time.monotonic() + seconds
        due = time.monotonic()
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            send(request(100), metadata=headers("neighbour"), timeout=30)
            found.append((time.monotonic() - due) * 1000)
            due += 1 / NEIGHBOUR_CALLS_PER_S
    return sorted(found)


def measure(what: str, folder: Path, limit: str, attacker: tuple[str, ...], seconds: float) -> None:
    """Starts a broker, and prints a row."""
    keys = folder / "keys.toml"
    keys.touch(0o600)
    names = {"root": "", "neighbour": "", "greedy": limit}
    keys.write_text("".join(f"[{n}]\nsecret = '{secret_of(n)}'\nallow = ['*']\n{more}\n" for n, more in names.items()))
    with BrokerProcess(folder / "data", "--access-keys", str(keys), "--sync", "none") as broker:
        with grpc.insecure_channel(broker.endpoint) as channel:
            topic = pb.CreateTopicRequest(topic=pb.Topic(name="orders")).SerializeToString()
            create: Any = channel.unary_unary("/popmq.v1.Admin/CreateTopic")
            create(topic, metadata=headers("root"), timeout=30)
        process = None
        if attacker:
            words = [sys.executable, "-m", "bench.greedy", "greedy", broker.endpoint, str(seconds + 1), *attacker]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            time.sleep(1)
        cpu, began = cpu_s(broker.pid), time.monotonic()
        found = neighbour_ms(broker.endpoint, seconds)
        share = (cpu_s(broker.pid) - cpu) / (time.monotonic() - began)
        counts = process.communicate()[0].split() if process else ["0", "0"]
    rates = [f"{int(count) / (seconds + 1):,.0f}" for count in counts]
    print(ROW.format(what, f"{found[len(found) // 2]:.1f}", f"{p99(found):.1f}", *rates, f"{share:.0%}"), flush=True)


def main(seconds: float) -> None:
    limit = f"calls_per_s = {LIMIT_PER_S}"
    print(ROW.format(*HEAD))
    print(ROW.format("---", *["--:"] * 5))
    rows: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("nobody", "", ()),
        ("greedy, no limit", "", ("rude",)),
        (f"greedy, {LIMIT_PER_S} calls/s", limit, ("rude",)),
        (f"greedy, {LIMIT_PER_S} calls/s, waits as asked", limit, ("polite",)),
    )
    for what, line, attacker in rows:
        with tempfile.TemporaryDirectory() as folder:
            measure(what, Path(folder), line, attacker, seconds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["greedy"]:
        asyncio.run(greedy(sys.argv[2], float(sys.argv[3]), sys.argv[4] == "polite"))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
