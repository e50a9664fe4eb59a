"""Starts one broker at a time, each with a new data folder on the disk that is measured.

    with brokers.redis(folder) as broker: …   its endpoint, processes and fsyncs so far; it is stopped at the end

All listen on the loopback, with ports that no default installation uses.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.measuring.measure import cpu_s, ended_s
from bench.peers import install
from bench.peers.install import Missing
from harness.broker_process import BrokerProcess, own_port

#: A JVM or an Erlang node starts in seconds; beside other programs it takes several times as long.
START_S, STOP_S = 120.0, 30.0


@dataclass
class Broker:
    """A running broker. `make`: creates topics where the load generator cannot.

    `ended_s`: CPU time of processes that have ended. `environment`: of the load program, which does all the work for a
    library without a server.
    """

    endpoint: str
    pids: Callable[[], Sequence[int]]
    counted: Path | None = None
    make: Callable[[str], None] = lambda topic: None
    ended_s: Callable[[], float] = lambda: 0.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """CPU time of all its processes."""
        return sum(cpu_s(pid) for pid in self.pids()) + self.ended_s()

    def fsyncs(self) -> int | None:
        """fsync, fdatasync and msync so far; None where they are not counted."""
        if self.counted is None:
            return None
        number: int = struct.unpack("@Q", self.counted.read_bytes()[:8])[0]
        return number


Start = Callable[[Path], AbstractContextManager[Broker]]


def counting(folder: Path) -> tuple[dict[str, str], Path | None]:
    """The environment of a process whose fsyncs are counted, and the file with the number."""
    library = install.counter()
    if library is None:
        return {}, None
    file = folder / "fsyncs"
    file.write_bytes(bytes(8))
    return {"LD_PRELOAD": str(library), "POPMQ_FSYNCS": str(file)}, file


def popmq(transport: str, python: str | Path = sys.executable, modules: Path | None = None) -> Start:
    """PopMQ from this tree, fsync on. `python`: its interpreter; `modules`: a folder that has PopMQ for that one."""

    @contextmanager
    def start(folder: Path) -> Iterator[Broker]:
        environment, counted = counting(folder)
        if modules is not None:
            environment["PYTHONPATH"] = str(modules)
        program, flags = (str(python), "-m", "popmq_server"), ("--transport", transport)
        with BrokerProcess(folder / "data", *flags, environment=environment, program=program) as process:
            yield Broker(process.endpoint, lambda: [process.pid], counted)

    return start


@contextmanager
def pgqueuer(folder: Path) -> Iterator[Broker]:
    """PostgreSQL as it comes, with fsync and synchronous_commit on; the load program makes PgQueuer's tables."""
    programs, port, data = install.postgresql(), own_port(), folder / "postgresql"
    environment, counted = counting(folder)
    data.mkdir(mode=0o700)
    user = _unprivileged(folder, data, environment)
    install.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "postgres"], data, user=user)
    words = [programs / "postgres", "-D", data, "-c", f"port={port}", "-c", "unix_socket_directories="]
    with process(folder, words, environment, port, user=user) as pid:
        endpoint = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        yield Broker(
            endpoint, lambda: [pid, *_children(pid)], counted, ended_s=lambda: ended_s(pid), environment=_libraries()
        )


def _unprivileged(folder: Path, data: Path, environment: dict[str, str]) -> str | None:
    """The user that gets the data and can count its fsyncs, where this one is root, whom PostgreSQL refuses."""
    if os.getuid():
        return None
    for way in (folder, folder.parent):
        way.chmod(0o711)
    shutil.chown(data, "nobody")
    if "LD_PRELOAD" in environment:
        environment["LD_PRELOAD"] = str(shutil.copy(Path(environment["LD_PRELOAD"]), folder))
        Path(environment["POPMQ_FSYNCS"]).chmod(0o666)
    return "nobody"


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _libraries() -> dict[str, str]:
    return {"PYTHONPATH": str(install.library_queues())}


def library(file: str, modules: Callable[[], Mapping[str, str]] = _libraries) -> Start:
    """A library without a server, with its data in a file or folder of this name; the load program syncs.

    `modules`: where that finds the library, as variables.
    """

    @contextmanager
    def start(folder: Path) -> Iterator[Broker]:
        environment, counted = counting(folder)
        yield Broker(str(folder / file), list, counted, environment={**environment, **modules()})

    return start


@contextmanager
def redis(folder: Path) -> Iterator[Broker]:
    """Streams; appendfsync always: an answer is on disk."""
    program, port = install.redis(), own_port()
    environment, counted = counting(folder)
    environment["LD_LIBRARY_PATH"] = str(install.LIBRARIES)
    words = [program, "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
    with process(folder, [*words, "--appendonly", "yes", "--appendfsync", "always"], environment, port) as pid:
        yield Broker(f"127.0.0.1:{port}", lambda: [pid], counted)


def nats(sync: str) -> Start:
    """JetStream with files. `sync`: "2m" is its default, "always" is fsync before each confirmation."""

    @contextmanager
    def start(folder: Path) -> Iterator[Broker]:
        program, port = install.nats(), own_port()
        settings = f'store_dir: "{folder / "jetstream"}", sync_interval: {sync}'
        folder.joinpath("nats.conf").write_text(f"listen: 127.0.0.1:{port}\njetstream {{ {settings} }}\n")
        with process(folder, [program, "-c", folder / "nats.conf"], {}, port) as pid:
            yield Broker(f"127.0.0.1:{port}", lambda: [pid])  # a Go program calls no C library that could count

    return start


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Broker]:
    """One node; the load generator makes quorum queues."""
    scripts, port = install.rabbitmq(), own_port()
    environment, counted = counting(folder)
    names = own_port()
    path = [install.ERLANG / "bin", *install.ERLANG.glob("erts-*/bin"), os.environ["PATH"]]
    environment |= {
        "PATH": os.pathsep.join(map(str, path)),
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"popmq{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(own_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
    }
    epmd = next(install.ERLANG.glob("erts-*/bin")) / "epmd"
    with (
        process(folder, [epmd, "-port", names], {}, names, "epmd"),
        process(folder, [scripts / "rabbitmq-server"], environment, port),
    ):
        node = int(folder.joinpath("pid").read_text())
        yield Broker(f"127.0.0.1:{port}", lambda: [node], counted)


ROCKETMQ_OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)  # fmt: skip
BROKER_CONF = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
namesrvAddr=127.0.0.1:{names}
listenPort={port}
brokerRole=ASYNC_MASTER
flushDiskType={flush}
storePathRootDir={store}
diskMaxUsedSpaceRatio=98
"""
PROXY_JSON = """\
{{"rocketMQClusterName": "DefaultCluster", "namesrvAddr": "127.0.0.1:{names}", "grpcServerPort": {grpc},
 "remotingListenPort": {remoting}, "localServeAddr": "127.0.0.1"}}
"""


def rocketmq(flush: str) -> Start:
    """Name server, and broker with its gRPC proxy in one process. `flush`: ASYNC_FLUSH or SYNC_FLUSH."""

    @contextmanager
    def start(folder: Path) -> Iterator[Broker]:
        jars, names = install.rocketmq(install.ROCKETMQ_NEWEST), own_port()
        grpc, port = own_port(), own_port()
        environment, counted = counting(folder)
        environment["ROCKETMQ_HOME"] = str(folder)
        conf = folder / "conf"
        conf.mkdir()
        told = {"names": names, "port": port, "flush": flush, "grpc": grpc, "remoting": own_port()}
        conf.joinpath("broker.conf").write_text(BROKER_CONF.format(store=folder / "store", **told))
        conf.joinpath("rmq-proxy.json").write_text(PROXY_JSON.format(**told))
        conf.joinpath("namesrv.conf").write_text(f"listenPort={names}\n")
        java: list[str | Path] = ["java", *ROCKETMQ_OPENS, f"-Duser.home={folder}", "-cp", f"{conf}:{jars}/*"]
        at, main = f"127.0.0.1:{names}", "org.apache.rocketmq"
        first = [*java, "-Xmx512m", f"{main}.namesrv.NamesrvStartup", "-c", conf / "namesrv.conf"]
        second = [*java, "-Xms4g", "-Xmx4g", "-XX:MaxDirectMemorySize=4g", f"{main}.proxy.ProxyStartup", "-pm", "LOCAL"]
        second += ["-bc", conf / "broker.conf", "-pc", conf / "rmq-proxy.json", "-n", at]
        admin = [*java, "-XX:TieredStopAtLevel=1", f"{main}.tools.command.MQAdminStartup"]

        def make(topic: str) -> None:
            install.run([*admin, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "8", "-w", "8", "-n", at])

        with (
            process(folder, first, {"ROCKETMQ_HOME": str(folder)}, names, "namesrv") as namesrv,
            process(folder, second, environment, grpc) as proxy,
        ):
            until = time.monotonic() + START_S
            while "broker-a" not in install.run([*admin, "clusterList", "-n", at]):
                if time.monotonic() > until:
                    raise Missing("the broker did not register")
            # 5.5 refuses a client of a group that was not created. The name is that of the load generator.
            install.run([*admin, "updateSubGroup", "-c", "DefaultCluster", "-g", "bench", "-n", at])
            yield Broker(f"127.0.0.1:{grpc}", lambda: [namesrv, proxy], counted, make)

    return start


@contextmanager
def process(
    folder: Path,
    words: Sequence[object],
    environment: Mapping[str, str],
    port: int,
    name: str = "server",
    user: str | None = None,
) -> Iterator[int]:
    """A program that opens a port; its process id. Ends it, with its children, and waits. Raises Missing."""
    log = folder / f"{name}.log"
    with log.open("w") as output:
        try:
            started = subprocess.Popen(
                [str(word) for word in words], cwd=folder, env={**os.environ, **environment},
                stdout=output, stderr=output, start_new_session=True, user=user,
            )  # fmt: skip
        except OSError as error:
            raise Missing(str(error)) from None
    try:
        _wait_open(started, port, log)
        yield started.pid
    finally:
        _end(started)


def _wait_open(started: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and started.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise Missing(f"it did not start: {' '.join(log.read_text(errors='replace').splitlines()[-3:])}")


def _end(started: subprocess.Popen[bytes]) -> None:
    """SIGTERM to its session; SIGKILL to what is left of it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, how)
            started.wait(STOP_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
