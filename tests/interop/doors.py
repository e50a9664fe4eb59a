"""Two doors to one RocketMQ with two masters: gateways of PopMQ, and RocketMQ's own proxies (CLUSTER mode).

Behind both are the same brokers, and an operator makes topics and groups for both at a gateway of its own, so that
nothing but the door differs. What `restart` kills is the door; the brokers go on.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from pathlib import Path

import popmq
from bench.peers import install
from harness.broker_process import own_port
from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from harness.rocketmq_proxy import ProxyProcess
from popmq_server.clock import SystemClock
from popmq_server.protocols.access.certificate import DEVELOPMENT_CERT, DEVELOPMENT_KEY, development
from tests.interop.builds import NoTools
from tests.interop.targets import Key, Operator, PopMQ

BROKERS = ("a", "b")
#: First checks of transactions come after 6 s, as by default; later ones sooner than each 30 s.
SETTINGS = {"transactionTimeOut": "6000", "transactionCheckInterval": "10000"}
#: A broker registers at its name server 10 s after it listens.
REGISTERED_S = 60.0


class Gateway(PopMQ):
    """A gateway. `another` is a second one, with the same secret."""

    has = frozenset({"popmq", "restart", "access_keys", "tls", "gateways"})

    def __init__(self, rig: Rig, log: Path, *flags: str, operator: Key | None = None) -> None:
        port = own_port()
        tls = ("--tls-port", str(port), "--tls-cert", str(rig.certificate), "--tls-key", str(rig.certificate_key))
        shared = ("--handle-secret", str(rig.secret))
        super().__init__(GatewayProcess(log, rig.name_server, *tls, *shared, *flags), (port, rig.certificate), operator)
        self._rig = rig

    @property
    def another(self) -> str:
        return self._rig.operator.endpoint


class Proxy(Operator):
    """RocketMQ's proxy, whose least lease is 10 s."""

    least_invisible_ms = 10_000
    has = frozenset({"restart"})

    def __init__(self, rig: Rig, folder: Path) -> None:
        super().__init__(rig.operator.endpoint)
        self._process = ProxyProcess(folder, rig.jars, rig.name_server)

    def start(self) -> Proxy:
        self._process.start()
        return self

    @property
    def endpoint(self) -> str:
        return self._process.endpoint

    @property
    def another(self) -> str:
        raise NotImplementedError("a proxy has no calls of operators")

    @property
    def tls(self) -> tuple[str, Path]:
        raise NotImplementedError("its certificate is its own affair")

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()


class Rig:
    """A name server, two masters, and the operator's gateway. Starting takes half a minute."""

    def __init__(self, folder: Path) -> None:
        """Raises NoTools where RocketMQ cannot be installed."""
        try:
            self.jars = install.rocketmq()
        except install.Missing as missing:
            raise NoTools(str(missing)) from None
        self._folder = folder
        folder.mkdir(parents=True)
        development(folder, ("127.0.0.1",), SystemClock())
        self.certificate, self.certificate_key = folder / DEVELOPMENT_CERT, folder / DEVELOPMENT_KEY
        self.secret = folder / "handle-secret"
        self.secret.touch(mode=0o600)
        self.secret.write_text("a secret that all gateways of the run share\n")
        self._open = ExitStack()
        try:
            cluster = RocketMQCluster(folder / "rocketmq", self.jars, BROKERS, SETTINGS)
            self.name_server = self._open.enter_context(cluster).name_server
            self.operator = Gateway(self, folder / "operator.log").start()
            self._open.callback(self.operator.close)
            self._wait_until_registered()
        except BaseException:
            self.close()
            raise

    def _wait_until_registered(self) -> None:
        """A new topic has at least a queue at each broker that the name server knows."""
        until_s = time.monotonic() + REGISTERED_S
        with popmq.Client(self.operator.endpoint) as client:
            for number in itertools.count():
                try:
                    if client.topics.create(f"ready-{number}", queues=1).queues == len(BROKERS):
                        return
                except popmq.PopMQError:  # no broker yet
                    pass
                assert time.monotonic() < until_s, "the name server does not know both brokers"
                time.sleep(1)

    def gateway(self, name: str, *flags: str, operator: Key | None = None) -> Gateway:
        return Gateway(self, self._folder / f"{name}.log", *flags, operator=operator)

    def proxy(self, name: str) -> Proxy:
        return Proxy(self, self._folder / name)

    def close(self) -> None:
        self._open.close()
