"""A real broker in a process of its own: `popmq serve` on a folder of its own, on the loopback."""

import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_SECONDS = 20.0


class BrokerError(RuntimeError):
    """The broker did not start; the message ends with what it said."""


class BrokerProcess:
    """Starts on entering, on a free port; stops on leaving, whatever happened. A restart keeps folder and port: nobody
    else gets the port while the broker is dead, where the system lets two sockets be bound to it (Linux).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self._kept = socket.socket()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            self._keep_a_port()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        self._kept.close()

    def start(self) -> None:
        """Returns when the port is open. Raises BrokerError when the process ends before that."""
        popmq = Path(sys.executable).with_name("popmq")
        command = [str(popmq), "serve", "--data", str(self._folder), "--host", "127.0.0.1"]
        command += ["--port", str(self._port), "--tls-port", "0", "--metrics-port", "0"]
        with self._log.open("a") as log:
            # A session of its own: Ctrl-C in the terminal reaches the demo, which then stops the broker.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("popmq: ready on "):
                self._port = int(line.rsplit(":", 1)[1])
                return
        raise BrokerError(f"the broker did not start:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """kill -9: no goodbye, nothing flushed."""
        if self._process:
            self._process.kill()
            self._forget()

    def stop(self) -> None:
        """Drains and ends; kill -9 when that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._forget()

    def _keep_a_port(self) -> None:
        """Bound, and never listening: the broker gets this port, which it asks for by number, and nobody else does."""
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", 0))
        self._port = self._kept.getsockname()[1]

    def _forget(self) -> None:
        if self._process and self._process.stdout:
            self._process.wait()
            self._process.stdout.close()
        self._process = None
