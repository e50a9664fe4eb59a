"""Runs `popmq serve` as a process of its own: starts it, waits until it is ready, kills it, restarts it, reads its log.

For the stages of `popmq verify`, and for tests, bench/ and demo/ that need a broker which can be killed. Tests that
only need a broker use `popmq.testing`, which runs one inside the test's process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

#: In a line that it prints, of text or JSON; of a broker it is the first one.
READY = "ready on "
#: The program to start: the same main function as `popmq serve`.
SERVE = (sys.executable, "-m", "popmq_server")
#: Seconds that a start may take; recovery reads the whole store.
READY_S = 120.0
#: Seconds that a stop may take; the drain answers the calls that run.
STOP_S = 120.0
#: Seconds within which a broker that is to end by itself must have ended.
DEAD_S = 180.0


class BrokerError(RuntimeError):
    """The broker did not start or did not stop; the message ends with the last lines of its log."""


class BrokerProcess:
    """One data folder and the process that serves it. It may be started again after `kill` or `stop`.

    It listens on `port`, or on a port of its own, and keeps that over all its starts, so that clients find it again.
    TLS, HTTP and metrics are off unless `flags` turn them on. `environment` is added to this process's own. `program`
    is the command to run, without flags. Standard error is appended to the file `log`, beside the data folder.
    """

    def __init__(
        self,
        data: Path,
        *flags: str,
        port: int = 0,
        environment: dict[str, str] | None = None,
        program: Sequence[str] = SERVE,
        own_session: bool = False,
    ) -> None:
        """`own_session`: Ctrl-C in the terminal does not reach the broker, only the process that started it."""
        self.data, self.flags, self.port, self.program = data, flags, port or own_port(), program
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self.log = data.parent / f"{data.name}.log"
        self.ready_s = 0.0  # what the last start took, from exec to the open port
        self._own_session = own_session
        self._process: subprocess.Popen[str] | None = None

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        return self._started.pid

    @property
    def memory_bytes(self) -> int:
        """Anonymous memory only: the pages of the data file belong to the kernel's page cache.

        Raises ProcessLookupError when the process has ended: until its parent waits for it, its status has no memory.
        """
        found = Path(f"/proc/{self.pid}/status").read_text().partition("RssAnon:")[2].split()
        if not found:
            raise ProcessLookupError(f"process {self.pid} has ended")
        return int(found[0]) << 10

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def spawn(self) -> None:
        """Starts the process and returns at once: a kill may hit a broker that is still starting."""
        command = [*self.program, *self._engine(), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--tls-port", "0", "--http-port", "0", "--metrics-port", "0", *self.flags]
        self._spawned_at, self.ready_s = time.perf_counter(), 0.0
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
                start_new_session=self._own_session,
            )

    def _engine(self) -> list[str]:
        """The flags that say where messages are kept."""
        return ["--data", str(self.data)]

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Returns when the port is open. Raises BrokerError when the process ended, or was not ready in time."""
        if self.ready_s:
            return
        process = self._started
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], timeout_s)
        line = process.stdout.readline() if readable else ""
        if READY not in line:
            raise BrokerError(f"the broker did not start: {line!r}\n{self.log_end()}")
        self.ready_s = time.perf_counter() - self._spawned_at

    def start(self) -> Self:
        """Starts the process and returns when the port is open. Raises BrokerError."""
        self.spawn()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def read_line(self) -> str:
        """The next line that it prints after the ready line; "" when it has ended."""
        assert self._started.stdout is not None
        return self._started.stdout.readline().rstrip("\n")

    def kill(self) -> None:
        """Sends SIGKILL and waits until the process has ended."""
        self._end(signal.SIGKILL)

    def wait_dead(self, timeout_s: float = DEAD_S) -> int:
        """Waits until the process has ended by itself; returns its exit code."""
        self._started.wait(timeout_s)
        return self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = STOP_S) -> int:
        """Sends SIGTERM, which drains; returns the exit code. Raises BrokerError, and kills, when that takes longer."""
        try:
            return self._end(signal.SIGTERM, timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop within {timeout_s:g} s\n{self.log_end()}") from None

    def log_end(self, lines: int = 30) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def wait_log(self, text: str, timeout_s: float = READY_S) -> str:
        """The first line of its log that contains `text`; waits until it is written. Raises BrokerError."""
        deadline = time.perf_counter() + timeout_s
        while time.perf_counter() < deadline:
            for line in self.log.read_text(errors="replace").splitlines():
                if text in line:
                    return line
            time.sleep(0.01)
        raise BrokerError(f"the broker did not log {text!r}\n{self.log_end()}")

    @property
    def _started(self) -> subprocess.Popen[str]:
        """The process. AssertionError before the first `spawn`."""
        assert self._process is not None, "the broker was never started"
        return self._process

    def _end(self, how: signal.Signals, timeout_s: float = STOP_S) -> int:
        """Sends a signal, waits for the end and returns the exit code; 0 if the broker was never started."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(how)
        code = self._process.wait(timeout_s)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill() if kind else self.stop()


def own_port(*hosts: str) -> int:
    """A port on each host (the loopback) that the system assigns to no other program while this process lives.

    On Linux a bound socket that does not listen keeps the port, and a server that asks for this port by number still
    gets it, since both set SO_REUSEADDR. On other systems another program may take it.
    """
    while True:
        with contextlib.ExitStack() as kept:
            port = 0
            try:
                for host in hosts or ("127.0.0.1",):
                    one = kept.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind((host, port))
                    port = one.getsockname()[1]
            except OSError:
                if not port:
                    raise
                continue  # another program has the number on a host behind the first one
            if sys.platform == "linux":
                atexit.register(kept.pop_all().close)
            return port
