"""The HTTP port of `popmq work --health-port`, and what the processes of a worker report to it.

    /healthz   200: do not restart me    every process reports, or is being started
    /readyz    200: I do my work         every process is connected, and none of its handlers has stopped

    process 1 … N ── each second a line on its pipe: why it is not ready, or nothing ─▶ supervisor ─▶ port

The supervisor runs no handler, so it always answers. A process whose event loop is blocked reports nothing, renews no
lease, and is not healthy.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

import popmq

#: Environment variable with the end of the pipe that takes the reports of a process.
REPORTS = "POPMQ_WORK_REPORTS"
#: Seconds between two reports.
REPORT_S = 1.0
#: Seconds without a report after which a process is not healthy.
SILENT_S = 5.0
#: Bytes of a report at most, so that a pipe takes it whole.
REPORT_BYTES = 500
#: Connections at a time; a further one ends the oldest. Answered ones are closed.
CONNECTIONS_MAX = 64
#: Seconds for a request.
REQUEST_S = 10.0


class Reports(popmq.Middleware):
    """Reports of this process, from its event loop. Its pipe blocks nothing: a full one takes no report."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe

    async def started(self, worker: popmq.Worker) -> None:
        self._reporting = asyncio.create_task(self._report(worker))

    async def stopped(self, worker: popmq.Worker) -> None:
        self._reporting.cancel()

    async def _report(self, worker: popmq.Worker) -> None:
        while True:
            line = " ".join(worker.unready().split()).encode()[:REPORT_BYTES] + b"\n"
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._pipe, line)
            await asyncio.sleep(REPORT_S)


class Answer(NamedTuple):
    """Of a probe. `said`: one line for the people who read it."""

    good: bool
    said: str


class Reported:
    """What one process has reported. `clock`: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin("starting")

    def begin(self, why: str) -> None:
        """A process begins, or the next one waits to be started: `why` it is not ready."""
        self._unready, self._rest = why, b""
        self._at: float | None = None

    def take(self, piece: bytes) -> None:
        """Bytes of its pipe."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines:
            self._unready, self._at = lines[-1].decode(errors="replace"), self._clock()

    def silence(self) -> str:
        """Says that no report came for too long; else "", also before the first one, as a start may take long."""
        silent = self._at is not None and self._clock() - self._at > SILENT_S
        return f"its event loop has not answered for {SILENT_S:g} s" if silent else ""

    def unready(self) -> str:
        """Why it does not do all its work; "" if it does."""
        return self.silence() or self._unready


def healthy(processes: list[Reported]) -> Answer:
    """Whether a restart would not help."""
    return _answer([each.silence() for each in processes])


def ready(processes: list[Reported]) -> Answer:
    """Whether all handlers of all processes are at work."""
    return _answer([each.unready() for each in processes])


def _answer(whys: list[str]) -> Answer:
    of = f" of {len(whys)}" if len(whys) > 1 else ""
    bad = [f"process {number}{of}: {why}" for number, why in enumerate(whys, 1) if why]
    return Answer(not bad, "; ".join(bad) or "ok")


def listening(host: str, port: int) -> socket.socket:
    """The port, open, with `::` for both families. Raises OSError."""
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, dualstack_ipv6=host == "::", backlog=128)


class HealthPort:
    """Answers probes in the running event loop, by HTTP/1.1, one on each connection."""

    def __init__(self, probes: dict[str, Callable[[], Answer]]) -> None:
        self._probes = probes
        #: The oldest first.
        self._open: dict[asyncio.StreamWriter, None] = {}

    async def serve(self, opened: socket.socket) -> asyncio.Server:
        """Serves from here on until the server is closed."""
        return await asyncio.start_server(self._serve, sock=opened, limit=8192)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = None
        if len(self._open) > CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answered(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # no request: a client that has gone, or sends something else
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _answered(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode(errors="replace")
        probe = self._probes.get(path)
        if method not in (b"GET", b"HEAD"):
            status, said = "405 Method Not Allowed", "GET or HEAD"
        elif probe is None:
            status, said = "404 Not Found", f"there are {', '.join(self._probes)}"
        else:
            good, said = probe()
            status = "200 OK" if good else "503 Service Unavailable"
        body = f"{said}\n".encode()
        headers = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return headers.encode() + (b"" if method == b"HEAD" else body)
