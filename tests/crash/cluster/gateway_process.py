"""A gateway in a process of its own, which can be killed and started again on the same port."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from harness.broker_process import own_port
from harness.rocketmq_cluster import listens

START_S, STOP_S = 60.0, 20.0


class GatewayProcess:
    """`with GatewayProcess(folder, name_server, secret) as gateway:` – its port is `gateway.port`."""

    def __init__(self, folder: Path, name_server: str, secret: Path) -> None:
        self.port = own_port()
        self._log = folder / f"gateway-{self.port}.log"
        self._words = [sys.executable, "-m", "popmq_server", "--engine", "rocketmq", "--namesrv", name_server]
        self._words += ["--port", str(self.port), "--tls-port", "0", "--metrics-port", "0"]
        self._words += ["--handle-secret", str(secret)]

    def spawn(self) -> None:
        """Starts it; returns when it listens."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._words, stdout=output, stderr=output)
        until_s = time.monotonic() + START_S
        while not listens(self.port):
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < until_s, "the gateway does not listen"
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_S)

    def stop(self) -> None:
        """SIGTERM: it drains."""
        self._process.terminate()
        self._process.wait(STOP_S)

    def __enter__(self) -> GatewayProcess:
        self.spawn()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
