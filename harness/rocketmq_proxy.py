"""RocketMQ's own proxy in front of a cluster (`-pm CLUSTER`): what gateways are compared with.

    with ProxyProcess(folder, jars, cluster.name_server) as proxy: …     proxy.endpoint speaks apache.rocketmq.v2

bench/peers/install.py has the jars.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.broker_process import own_port
from harness.rocketmq_cluster import OPENS, SETTINGS, SMALL, START_S, STOP_S, NotStarted, listens

_HEAP = ("-Xmx512m",)
#: Of a proxy that is asked to end.
ENDS_S = 90.0


class ProxyProcess:
    """One JVM. It may be started again after `kill` and `stop`, on the same port. `folder` is new."""

    def __init__(self, folder: Path, jars: Path, name_server: str) -> None:
        self._folder, self.port = folder.resolve(), own_port()
        conf = self._folder / "conf"
        conf.mkdir(parents=True)
        told = {
            "rocketMQClusterName": SETTINGS["brokerClusterName"],
            "namesrvAddr": name_server,
            "grpcServerPort": self.port,
            "remotingListenPort": own_port(),
            "localServeAddr": "127.0.0.1",
        }
        settings = conf / "rmq-proxy.json"
        settings.write_text(json.dumps(told))
        java = ["java", *OPENS, *SMALL, *_HEAP, f"-Duser.home={self._folder}", "-cp", f"{conf}:{jars.resolve()}/*"]
        main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "CLUSTER", "-n", name_server]
        self._words = [*java, *main, "-pc", str(settings)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Returns when it listens. Raises NotStarted."""
        environment = {**os.environ, "ROCKETMQ_HOME": str(self._folder)}
        log = self._folder / "out.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._words, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder
            )
        until_s = time.monotonic() + START_S
        while not listens(self.port):
            if self._process.poll() is not None or time.monotonic() > until_s:
                self.kill()
                last = log.read_text(errors="replace").splitlines()[-5:]
                raise NotStarted(f"the proxy does not listen on port {self.port}: {' '.join(last)}")
            time.sleep(0.1)
        return self

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def stop(self) -> None:
        """SIGTERM; returns when it has ended, which takes it half a minute with open connections."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(ENDS_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
