"""Three doors to one RocketMQ broker, in turns: a PopMQ gateway, RocketMQ's proxy, and that proxy inside the broker.

    make bench-doors                        three rounds after a warm-up of three, some 12 minutes
    python -m bench.peers.doors --rounds 1 --python /usr/bin/python3

All speak apache.rocketmq.v2 to the same load generator (bench/loadgen), with 1 KiB a message. CPU a message is that of
door and broker together; the proxy in the broker (LOCAL) is one process with it. Everything is warm before it counts: a
cold proxy costs three times as much.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.compare import ROCKETMQ, SEND_1, SEND_32, TAKE_32, Figure, Work, load
from bench.measuring.disk import DiskWatch
from bench.peers import brokers, install
from bench.peers.brokers import PROXY_JSON, ROCKETMQ_OPENS, Broker, process
from bench.peers.install import Missing
from harness.broker_process import own_port

TAKE_1 = Work("receive + ack 1, 64 callers", "receive", "b1", 1, 64)
WORKS = (SEND_1, SEND_32, TAKE_1, TAKE_32)
GATEWAY, PROXY, LOCAL = "gateway", "proxy (CLUSTER)", "proxy (LOCAL)"
WARM_ROUNDS = 3
#: The floors: messages/s of the gateway beside the proxy (CLUSTER), by leg; and CPU a message of the last leg.
FLOORS = {SEND_1.name: 1.3, SEND_32.name: 0.8, TAKE_1.name: 1.0, TAKE_32.name: 1.4}
CPU_FLOOR = 0.6


@contextmanager
def doors(folder: Path, flush: str, python: str) -> Iterator[dict[str, Broker]]:
    """All of them, on one broker; `python` runs the gateway. Raises Missing."""
    jars = install.rocketmq()
    with ExitStack() as open_:
        local = open_.enter_context(brokers.rocketmq(flush)(folder))
        _, broker = local.pids()
        names = next(word for word in _words(broker) if word.startswith("127.0.0.1:"))
        proxy, gateway = own_port(), own_port()
        home = folder / "proxy"
        home.joinpath("conf").mkdir(parents=True)
        told = {"names": names.partition(":")[2], "grpc": proxy, "remoting": own_port()}
        home.joinpath("conf", "rmq-proxy.json").write_text(PROXY_JSON.format(**told))
        java = ["java", *ROCKETMQ_OPENS, f"-Duser.home={home}", "-Xmx2g", "-cp", f"{home}/conf:{jars}/*"]
        java += ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "CLUSTER", "-n", names]
        java += ["-pc", str(home / "conf" / "rmq-proxy.json")]
        own = [python, "-m", "popmq_server", "--engine", "rocketmq", "--namesrv", names]
        own += ["--port", str(gateway), "--tls-port", "0", "--metrics-port", "0", "--transport", "python"]
        door = open_.enter_context(process(folder, java, {"ROCKETMQ_HOME": str(home)}, proxy, "proxy"))
        mine = open_.enter_context(process(folder, own, {}, gateway, "gateway"))
        yield {
            GATEWAY: Broker(f"127.0.0.1:{gateway}", lambda: [mine, broker]),
            PROXY: Broker(f"127.0.0.1:{proxy}", lambda: [door, broker]),
            LOCAL: Broker(local.endpoint, lambda: [broker]),
        }


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def measured(rounds: int, seconds: float, flush: str, python: str, scratch: Path) -> list[Figure]:
    """The figures of each round and door. Raises Missing."""
    program, found = install.loadgen(), list[Figure]()
    with DiskWatch(scratch) as disk, doors(scratch, flush, python) as open_:
        topics = sorted({_of(work, door).topic for work in ROCKETMQ + WORKS for door in open_})
        words = ["-target", "popmq", "-endpoint", open_[GATEWAY].endpoint, "-leg", "prepare", "-topic"]
        install.run([program, *words, ",".join(f"rocketmq-{topic}" for topic in topics)])
        for number in range(1 - WARM_ROUNDS, rounds + 1):
            for name, door in open_.items():
                print(f"bench-doors: {'round' if number > 0 else 'warm-up,'} {number}, {name}", file=sys.stderr)
                for work in WORKS:
                    figure = load([program], door, "rocketmq", _of(work, name), number, seconds, name, disk)
                    found += [figure] if number > 0 else []
    return found


def _of(work: Work, door: str) -> Work:
    return replace(work, topic=f"{door.partition(' ')[0]}{door[-3:-1]}-{work.topic}")


def report(figures: Sequence[Figure]) -> tuple[str, bool]:
    """A table, and whether all floors hold."""
    lines = ["| leg | door | messages/s | CPU of door + broker a message, µs | p50 ms | p99 ms | beside the proxy |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    whole = True
    for work in WORKS:
        rows = {
            door: [figure for figure in figures if (figure.broker, figure.work) == (door, work.name)]
            for door in (GATEWAY, PROXY, LOCAL)
        }
        rate = {door: median(figure.messages_per_s for figure in each) for door, each in rows.items()}
        cpu = {door: median(figure.server_us for figure in each) for door, each in rows.items()}
        for door, each in rows.items():
            lines.append(
                f"| {work.name} | {door} | {rate[door]:,.0f} | {cpu[door]:.1f} "
                f"| {median(figure.p50_ms for figure in each):.2f} | {median(figure.p99_ms for figure in each):.1f} "
                f"| {rate[door] / rate[PROXY]:.2f} · CPU {cpu[door] / cpu[PROXY]:.2f} |"
            )
        whole &= rate[GATEWAY] >= FLOORS[work.name] * rate[PROXY]
        if work is TAKE_32:
            whole &= cpu[GATEWAY] <= CPU_FLOOR * cpu[PROXY]
    return "\n".join(lines), whole


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.doors", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each leg")
    parser.add_argument("--flush", default="ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the gateway")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="popmq-doors-") as scratch:
        try:
            figures = measured(options.rounds, options.seconds, options.flush, options.python, Path(scratch))
        except Missing as missing:
            print(f"bench-doors: {missing}", file=sys.stderr)
            return 1
    table, whole = report(figures)
    print(table)
    print(f"floors: {'PASS' if whole else 'FAIL'}")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
