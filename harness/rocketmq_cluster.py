"""A real RocketMQ 5 on the loopback: a name server and masters, in Java, small enough for a machine with two cores.

    with RocketMQCluster(folder, jars, ("a",)) as cluster: …             cluster.name_server is host:port
    with RocketMQCluster(folder, jars, ("a", "b"), elected=("a",)) …     a exists twice, its master by election

Everything is under `folder`, which is new, and ends with the block; ports are its own. bench/peers/install.py has jars.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from harness.broker_process import own_port
from popmq_remoting import Cluster, ClusterSettings, RemotingError

#: A JVM starts in seconds; beside much other work it takes many times as long.
START_S, STOP_S = 180.0, 20.0

OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_NAME_SERVER_HEAP = ("-Xmx128m",)
#: Each of a broker's threads that store messages keeps 4 MiB of direct memory: those of sends, acks, changes of leases
#: and ends of transactions are more than 60.
_BROKER_HEAP = ("-Xmx384m", "-XX:MaxDirectMemorySize=512m")

#: Of each broker. Files are small, so that a broker starts in seconds.
SETTINGS: Mapping[str, str] = {
    "brokerClusterName": "c",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
    "enableRetryTopicV2": "true",
    "flushConsumerOffsetInterval": "500",
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "1000",
    "transactionOpBatchInterval": "200",
    "diskMaxUsedSpaceRatio": "98",
}
#: Of a name server with the controller inside: it sees within 3 s that a master is gone, and at once when it is killed.
_CONTROLLER: Mapping[str, str] = {
    "enableControllerInNamesrv": "true",
    "controllerDLegerGroup": "g",
    "controllerDLegerSelfId": "n0",
    "mappedFileSize": "10485760",
    "scanNotActiveBrokerInterval": "500",
}
#: Of a broker whose master is elected, beside SETTINGS: it has neither id nor role until then. An OK means that all
#: replicas in sync have the message.
_ELECTED: Mapping[str, str] = {
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
    "syncControllerMetadataPeriod": "1000",
    "brokerHeartbeatInterval": "500",
    "controllerHeartBeatTimeoutMills": "3000",
}
_BY_ELECTION = ("brokerId", "brokerRole")


class NotStarted(Exception):
    """A process that ended, or does not listen in time; the text ends with its last lines."""


class RocketMQCluster:
    """`brokers`: names of masters. `settings`: of each broker, beside SETTINGS. `java`: options of all processes.

    A broker has one process of its name. One that is named by `elected` has two, such as a and a-2, of which a
    controller inside the name server makes one the master. `stores`: folders of stores that are not under `folder`.
    """

    def __init__(
        self,
        folder: Path,
        jars: Path,
        brokers: Sequence[str] = ("a",),
        settings: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
        elected: Sequence[str] = (),
        stores: Mapping[str, Path] | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._jars = jars.resolve()
        self._layouts = self._folder / "namesrv" / "kvConfig.json"
        #: The processes of all brokers.
        self.brokers = (*brokers, *(f"{name}-2" for name in elected))
        self._names = brokers
        self._java, self._elected, self._stores = java, elected, stores or {}
        self._settings = {**SETTINGS, **(settings or {})}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._words: dict[str, list[str]] = {}
        self._ports: dict[str, int] = {}
        self._port, self._controller = own_port(), own_port()

    @property
    def name_server(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self._port}"

    def port(self, name: str) -> int:
        """Where a process listens: a broker, or `namesrv`."""
        return self._ports[name]

    def __enter__(self) -> RocketMQCluster:
        try:
            self._start("namesrv", "namesrv.NamesrvStartup", self._of_name_server(), _NAME_SERVER_HEAP)
            self._wait("namesrv")
            ports = broker_ports(self.brokers)
            for name in self._names:
                self._start_broker(name, name, ports[name])
            for name in self._names:
                self._wait(name)
            # The first one is the master, which the other joins.
            for name in self._elected:
                self._start_broker(f"{name}-2", name, ports[f"{name}-2"])
                self._wait(f"{name}-2")
            asyncio.run(self._registered())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes: what they stored is of no use to anybody."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait(STOP_S)
        self._processes.clear()

    def kill(self, name: str) -> None:
        """kill -9 of a broker, or of `namesrv`."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait(STOP_S)

    def restart(self, name: str) -> None:
        """Starts one again that was killed, with what it has on disk; returns when it listens."""
        self._spawn(name)
        self._wait(name)

    def forget_layouts(self) -> None:
        """Deletes what the name server keeps on disk, while it is dead: it starts as one on a new machine."""
        self._layouts.unlink(missing_ok=True)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def _of_name_server(self) -> dict[str, str]:
        found = {"listenPort": str(self._port), "kvConfigPath": str(self._layouts)}
        if self._elected:
            found |= {
                **_CONTROLLER,
                "controllerDLegerPeers": f"n0-127.0.0.1:{self._controller}",
                "controllerStorePath": str(self._folder / "namesrv" / "controller"),
            }
        return found

    def _start_broker(self, process: str, name: str, port: int) -> None:
        """Starts one process of a broker."""
        store = self._stores.get(process, self._folder / process / "store")
        own = {
            "brokerName": name,
            "namesrvAddr": self.name_server,
            "listenPort": str(port),
            "storePathRootDir": str(store),
        }
        settings = {**self._settings, **own}
        if name in self._elected:
            settings = {key: value for key, value in settings.items() if key not in _BY_ELECTION}
            settings |= {
                **_ELECTED,
                "controllerAddr": f"127.0.0.1:{self._controller}",
                "storePathEpochFile": str(store / "epochFileCheckpoint"),
                "storePathMetadata": str(store / "metadata"),
            }
        self._start(process, "broker.BrokerStartup", settings, _BROKER_HEAP)

    def _start(self, name: str, main: str, settings: Mapping[str, str], heap: Sequence[str]) -> None:
        home = self._folder / name
        home.mkdir(parents=True)
        configuration = home / "conf.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        words = ["java", *OPENS, *SMALL, *heap, *self._java, f"-Duser.home={home}", "-cp", f"{self._jars}/*"]
        self._words[name] = [*words, f"org.apache.rocketmq.{main}", "-c", str(configuration)]
        self._ports[name] = int(settings["listenPort"])
        self._spawn(name)

    def _spawn(self, name: str) -> None:
        home = self._folder / name
        with (home / "out.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                self._words[name],
                cwd=home,
                env={**os.environ, "ROCKETMQ_HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _wait(self, name: str) -> None:
        until_s, port = time.monotonic() + START_S, self._ports[name]
        while not listens(port):
            if self._processes[name].poll() is not None or time.monotonic() > until_s:
                last = (self._folder / name / "out.log").read_text(errors="replace").splitlines()[-5:]
                raise NotStarted(f"{name} does not listen on port {port}: {' '.join(last)}")
            time.sleep(0.1)

    async def _registered(self) -> None:
        """Waits until the name server knows each broker: one of 5.3.3 registers some seconds after it listens."""
        cluster = Cluster(ClusterSettings([self.name_server], "harness"))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + START_S
        try:
            known: Collection[str] = ()
            while not {*self._names} <= {*known}:
                if loop.time() > until_s:
                    raise NotStarted(f"the name server does not know all of {', '.join(self._names)}")
                await asyncio.sleep(0.2)
                with contextlib.suppress(RemotingError):  # a name server on a busy machine may take its time
                    known = (await cluster.brokers_anew(until_s)).brokers.keys()
        finally:
            await cluster.close()


def broker_ports(names: Sequence[str]) -> dict[str, int]:
    """A port for each, whose neighbours are kept too: a broker also takes its port - 2 and + 1."""
    ports: dict[str, int] = {}
    for name in names:
        port = own_port()
        while any(abs(port - other) < 5 for other in ports.values()) or not all(map(_keep, (port - 2, port + 1))):
            port = own_port()
        ports[name] = port
    return ports


#: Bound, so that no other program gets these ports while this process lives; a broker that asks by number does.
_KEPT: list[socket.socket] = []


def _keep(port: int) -> bool:
    """Keeps a port as `own_port` does. False if it is in use."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        kept.bind(("127.0.0.1", port))
    except OSError:
        kept.close()
        return False
    _KEPT.append(kept)
    return True


def listens(port: int) -> bool:
    """Whether something on this machine takes connections there."""
    with socket.socket() as tried:
        tried.settimeout(1.0)
        return tried.connect_ex(("127.0.0.1", port)) == 0
