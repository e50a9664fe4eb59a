"""A broker as its users run it: a process of its own, started by its flags, killed without warning.

Used by the crash campaigns, by the clients in other languages, and by bench/: whatever has to prove something about the
broker's process, and not only about its code.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

READY = "popmq: ready on "
ROOT = Path(__file__).resolve().parents[2]


class BrokerProcess:
    """One data folder and the process that serves it; may be started again after it was killed or stopped.

    It keeps one port over all its starts, so that clients find it again: `port`, or one of its own.
    `environment` is added to our own (the power-cut model preloads its shim by it). `module` is what is started. The
    broker's words go to `log`.
    """

    def __init__(
        self,
        data: Path,
        *flags: str,
        port: int = 0,
        environment: dict[str, str] | None = None,
        module: str = "popmq_server",
    ) -> None:
        self.data, self.flags, self.port, self.module = data, flags, port or own_port(), module
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.log = data.parent / f"{data.name}.log"
        self.ready_s = 0.0
        self._process: subprocess.Popen[str] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was never started"
        return self._process.pid

    @property
    def memory_bytes(self) -> int:
        """Memory that is its own: the pages of the data file belong to the kernel's cache."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) << 10

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def spawn(self) -> None:
        """Starts the process and returns at once: a kill may hit a broker that is still starting."""
        command = [sys.executable, "-m", self.module, "--data", str(self.data), "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--tls-port", "0", "--metrics-port", "0", *self.flags]
        self._spawned_at, self.ready_s = time.perf_counter(), 0.0
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment, cwd=ROOT
            )

    def wait_ready(self, timeout_s: float = 30) -> None:
        """Returns when the port is open. Raises AssertionError with the broker's last words when it ended instead."""
        if self.ready_s:
            return
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if readable else ""
        assert line.startswith(READY), f"the broker did not start: {line!r}\n{self.last_words()}"
        self.ready_s = time.perf_counter() - self._spawned_at

    def start(self) -> BrokerProcess:
        self.spawn()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL: nothing of the process runs any more when this returns."""
        self._end(signal.SIGKILL)

    def wait_dead(self, timeout_s: float = 60) -> None:
        """Returns when the process has ended by itself."""
        assert self._process is not None
        self._process.wait(timeout_s)
        self.kill()

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM, which drains; returns the exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def last_words(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _end(self, how: signal.Signals, timeout_s: float = 30) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(timeout_s)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill() if kind else self.stop()


_OWN: list[socket.socket] = []


def own_port() -> int:
    """A port that the system gives to nobody else while this process lives, and that nobody serves yet.

    A socket that is bound and does not listen keeps it: on Linux a server that asks for the port by number gets it all
    the same, since both reuse addresses. Elsewhere the port is one that was free a moment ago.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    port: int = keeper.getsockname()[1]
    if sys.platform == "linux":
        _OWN.append(keeper)
    else:
        keeper.close()
    return port
