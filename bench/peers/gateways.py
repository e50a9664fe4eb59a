"""A gateway beside the embedded engine, four workers beside one, and a gateway whose clients all wait.

    python -m bench.peers.gateways          five minutes; needs Java 17, Maven and Go as `make bench-doors` does

All on one RocketMQ broker, in turns. CPU is that of the gateway alone, with all of its workers.
"""

import argparse
import asyncio
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import popmq
from bench.compare import SEND_32, SEND_256, TAKE_32, TAKE_256, Work, load
from bench.measuring.disk import DiskWatch
from bench.measuring.measure import cpu_s
from bench.peers import brokers, install
from bench.peers.brokers import Broker, process
from bench.peers.install import Missing
from harness.broker_process import own_port

V1_FLOORS = {"pop + ack by 256": 0.35, "pull in columns": 0.4}
WORKERS, WORKERS_CPU_MAX = 4, 1.15
WAITING, TOPICS, IDLE_S = 1_000, 10, 20.0
IDLE_CORE_MAX, IDLE_MIB_MAX = 0.03, 150
PULL_BYTES, PULL_MESSAGES = 4 << 20, 4_096
EMBEDDED, ONE, SEVERAL = "embedded", "gateway", f"gateway, {WORKERS} workers"


@dataclass
class Door:
    """One endpoint and its processes; `rates`: messages/s, `door_us`: CPU a message, by leg, of each round."""

    endpoint: str
    pid: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    door_us: dict[str, list[float]] = field(default_factory=dict)

    def pids(self) -> list[int]:
        """The process and its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def cpu_s(self) -> float:
        """CPU time of them all."""
        return sum(map(cpu_s, self.pids()))


@contextmanager
def doors(folder: Path) -> Iterator[dict[str, Door]]:
    """Raises Missing."""
    with ExitStack() as open_:
        local = open_.enter_context(brokers.rocketmq("ASYNC_FLUSH")(folder))
        _, broker = local.pids()
        words = Path(f"/proc/{broker}/cmdline").read_text().split("\0")
        names = next(word for word in words if word.startswith("127.0.0.1:"))
        own = ["--engine", "rocketmq", "--namesrv", names]
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        programs = {
            EMBEDDED: ["--data", str(folder / "data")],
            ONE: own,
            SEVERAL: [*own, "--workers", str(WORKERS), "--handle-secret", str(secret)],
        }
        found = {}
        for name, special in programs.items():
            port = own_port()
            words = [sys.executable, "-m", "popmq_server", *special, "--port", str(port)]
            words += ["--tls-port", "0", "--metrics-port", "0", "--transport", "python"]
            log = name.replace(", ", "-").replace(" ", "-")
            pid = open_.enter_context(process(folder, words, {}, port, log))
            found[name] = Door(f"127.0.0.1:{port}", pid)
        yield found


def measure(found: dict[str, Door], rounds: int, seconds: float, disk: DiskWatch) -> None:
    """Fills in the figures of each door; the first round does not count. Raises Missing."""
    program = install.loadgen()
    for name in (EMBEDDED, ONE):
        prepare(program, found[name], "popmq-b256", f"rocketmq-{SEND_32.topic}")
    for number in range(rounds + 1):
        for name in (EMBEDDED, ONE):
            one_leg(program, found[name], "popmq", SEND_256, number, seconds, disk)
            one_leg(program, found[name], "popmq", TAKE_256, number, seconds, disk)
            rate = pulled_per_s(found[name].endpoint, f"popmq-{SEND_256.topic}", seconds)
            if number:
                found[name].rates.setdefault("pull in columns", []).append(rate)
        for name in (ONE, SEVERAL):
            one_leg(program, found[name], "rocketmq", SEND_32, number, seconds, disk)
            one_leg(program, found[name], "rocketmq", TAKE_32, number, seconds, disk)


def prepare(program: Path, door: Door, *topics: str) -> None:
    """Creates topics and their groups."""
    words: list[str | Path] = [
        program,
        "-target",
        "popmq",
        "-endpoint",
        door.endpoint,
        "-leg",
        "prepare",
        "-topic",
        ",".join(topics),
    ]
    install.run(words)


def one_leg(program: Path, door: Door, face: str, work: Work, number: int, seconds: float, disk: DiskWatch) -> None:
    """One leg of one door. Raises Missing."""
    began_s = door.cpu_s()
    figure = load([program], Broker(door.endpoint, door.pids), face, work, number, seconds, door.endpoint, disk)
    if number:
        door.rates.setdefault(work.name, []).append(figure.messages_per_s)
        door.door_us.setdefault(work.name, []).append((door.cpu_s() - began_s) * 1e6 / max(1, figure.messages))


def pulled_per_s(endpoint: str, topic: str, seconds: float) -> float:
    """What another process reads in columns, 4 MiB in a call, from one queue after the other."""
    words = [sys.executable, "-m", "bench.peers.gateways", "--pull", endpoint, topic, str(seconds)]
    return float(install.run(words))


def pull(endpoint: str, topic: str, seconds: float) -> float:
    """Messages/s of one reader."""
    with popmq.Client(endpoint) as client:
        queues = client.topics.get(topic).queues
        offsets, messages, turn, began = [0] * queues, 0, 0, time.monotonic()
        while time.monotonic() - began < seconds:
            queue = turn % queues
            turn += 1
            answer = client.pull_columns(topic, queue, offsets[queue], max_messages=PULL_MESSAGES, max_bytes=PULL_BYTES)
            messages += len(answer.columns.body)
            offsets[queue] = answer.next_offset if answer.columns.body else 0
        return messages / (time.monotonic() - began)


async def wait(endpoint: str) -> None:
    """WAITING clients, each with a connection of its own, that wait for messages of TOPICS topics for ever."""
    async with popmq.AsyncClient(endpoint) as operator:
        for number in range(TOPICS):
            await operator.topics.create(f"idle-{number}")
        await operator.groups.create("idle")

    async def one(number: int) -> None:
        async with popmq.AsyncClient(endpoint) as client:
            while True:
                await client.pop(f"idle-{number % TOPICS}", "idle", wait=20)

    tasks = [asyncio.create_task(one(number)) for number in range(WAITING)]
    await asyncio.sleep(5)  # until all wait
    print("waiting", flush=True)
    await asyncio.gather(*tasks)


def idle(door: Door) -> tuple[float, float]:
    """(share of a core, MiB) of a gateway whose clients all wait."""
    words = [sys.executable, "-m", "bench.peers.gateways", "--wait", door.endpoint]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as clients:
        try:
            assert clients.stdout is not None
            clients.stdout.readline()
            began_s, began = door.cpu_s(), time.monotonic()
            time.sleep(IDLE_S)
            share = (door.cpu_s() - began_s) / (time.monotonic() - began)
            return share, resident_mib(door.pid)
        finally:
            clients.kill()


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def report(found: dict[str, Door], share: float, mib: float) -> tuple[str, bool]:
    """A table, and whether all floors hold."""
    lines = ["| what | gateway | beside it | ratio | floor |", "|---|--:|--:|--:|--:|"]
    embedded, one, several = found[EMBEDDED], found[ONE], found[SEVERAL]
    whole = True
    for name, leg in (("pop + ack by 256", TAKE_256.name), ("pull in columns", "pull in columns")):
        mine, other = median(one.rates[leg]), median(embedded.rates[leg])
        whole &= mine >= V1_FLOORS[name] * other
        lines.append(
            f"| popmq.v1, {name}: messages/s, beside the embedded engine "
            f"| {mine:,.0f} | {other:,.0f} | {mine / other:.2f} | {V1_FLOORS[name]} |"
        )
    for work in (SEND_32, TAKE_32):
        mine, other = median(several.door_us[work.name]), median(one.door_us[work.name])
        whole &= mine <= WORKERS_CPU_MAX * other
        lines.append(
            f"| {work.name}: CPU a message of {WORKERS} workers, µs, beside one "
            f"| {mine:.1f} | {other:.1f} | {mine / other:.2f} | ≤ {WORKERS_CPU_MAX} |"
        )
    whole &= share <= IDLE_CORE_MAX and mib <= IDLE_MIB_MAX
    lines.append(
        f"| {WAITING:,} clients wait on {TOPICS} topics: share of a core, MiB "
        f"| {share:.1%} · {mib:.0f} | | | ≤ {IDLE_CORE_MAX:.0%} · {IDLE_MIB_MAX} |"
    )
    return "\n".join(lines), whole


def run(rounds: int, seconds: float) -> int:
    """Measures, prints the table, and says whether the floors hold."""
    with tempfile.TemporaryDirectory(prefix="popmq-gateways-") as scratch:
        folder = Path(scratch)
        try:
            with DiskWatch(folder) as disk, doors(folder) as found:
                measure(found, rounds, seconds, disk)
                share, mib = idle(found[ONE])
        except Missing as missing:
            print(f"bench-gateways: {missing}", file=sys.stderr)
            return 1
    table, whole = report(found, share, mib)
    print(table)
    print(f"floors: {'PASS' if whole else 'FAIL'}")
    return 0 if whole else 1


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers.gateways", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each leg")
    parser.add_argument("--pull", nargs=3, metavar=("ENDPOINT", "TOPIC", "SECONDS"), help=argparse.SUPPRESS)
    parser.add_argument("--wait", metavar="ENDPOINT", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.pull:
        endpoint, topic, seconds = options.pull
        print(f"{pull(endpoint, topic, float(seconds)):.0f}")
        return 0
    if options.wait:
        asyncio.run(wait(options.wait))
        return 0
    return run(options.rounds, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
