"""The supervisor of `--workers N`: opens the ports, starts N processes that accept from them, and keeps them running.

    this process ──── sockets, an Assignment ────▶ worker 1 … N     process/workers/worker.py
        │  ▲                                        │
        │  └── /metrics, /healthz, /readyz of each ─┘              over a port of the loopback that only this one knows
        └── its own metrics port: the scrapes added up (monitoring/merging.py), the probes put together

A worker's death harms no neighbour: the sockets stay open here, so other workers take the connections that come.
"""

import asyncio
import contextlib
import http.client
import logging
import pathlib
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple

from popmq_server import ports
from popmq_server.clock import pause, stopwatch
from popmq_server.contract.life import Words
from popmq_server.errors import StartError
from popmq_server.monitoring.merging import Merged, WorkerState
from popmq_server.monitoring.port import ANSWER_S, MonitoringPort, ProbeAnswer, monitoring_sockets
from popmq_server.options import DRAIN_S, HOSTS
from popmq_server.process.workers.assignment import READY, Assignment, written
from popmq_server.process.workers.restarts import Restarts
from popmq_server.settings import Settings

log = logging.getLogger("popmq.workers")

PROGRAM: tuple[str, ...] = (
    sys.executable,
    "-c",
    "import sys; from popmq_server.process.workers.worker import main; sys.exit(main())",
)
#: The code of a worker whose process could not be made, as of <sysexits.h>.
EXIT_OS = 71
#: Seconds that the workers get to end: a moment more than their calls.
END_S = DRAIN_S + 5.0
#: A worker answers within ANSWER_S, also that it cannot.
_ASK_S = ANSWER_S + 1.0


class _Answer(NamedTuple):
    good: bool
    text: str


class _Worker:
    """One of the numbers 1 … N, and the process that has it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.restarts = Restarts()
        self.process: asyncio.subprocess.Process | None = None
        #: Its metrics port.
        self.port = 0
        self.is_ready = False
        self.said = "starts"

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to its process, if there is one."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def ask(self, path: str) -> _Answer:
        """What its HTTP port answers. Blocks for at most _ASK_S."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ASK_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return _Answer(answer.status == http.client.OK, answer.read().decode().strip())
        except (OSError, http.client.HTTPException):
            return _Answer(False, f"has not answered for {_ASK_S:g} s")
        finally:
            connection.close()


class Workers:
    """`async with`: opens the ports and starts the workers; ends them on exit. As Serving for one process."""

    words = Words("the workers", "the workers failed", "the process ends", "the workers are gone")
    certificate: pathlib.Path | None

    def __init__(self, argv: list[str] | None, settings: Settings) -> None:
        self._argv, self._settings = argv, settings
        options = self._options = settings.options
        self.port = options.tls_port
        self.certificate = options.tls_cert
        #: As of Serving.
        self.left_out: list[tuple[str, str, int]] = []
        #: Never done: workers that fail are started again.
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._sockets: dict[int, list[socket.socket]] = {}
        self._workers: list[_Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._first: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._phase = "starting"
        self._reloaded = False
        self._closing = contextlib.ExitStack()
        self._merged = Merged(self._scraped, self._states)
        self._threads = ThreadPoolExecutor(2 * options.workers, "popmq-asking")

    async def __aenter__(self) -> "Workers":
        """Returns when the first worker serves. Raises StartError, SystemExit if that one did not start."""
        try:
            self._open()
            self._workers = [_Worker(number) for number in range(1, self._options.workers + 1)]
            self._tasks.append(asyncio.ensure_future(self._keep(self._workers[0])))
            if (code := await self._first) is not None:
                raise SystemExit(code if code >= 0 else 128 - code)  # its line in the log says why
            self._tasks += [asyncio.ensure_future(self._keep(worker)) for worker in self._workers[1:]]
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._phase = "serving"
        return self

    def _open(self) -> None:
        """Opens all ports. Raises StartError."""
        options, opening = self._options, ports.Ports()
        if options.metrics_port:
            opened = monitoring_sockets(options, opening)
            if not opened:
                self.left_out.append(("metrics", "--metrics-port", options.metrics_port))
            probes = {"/healthz": self._healthy, "/readyz": self._ready}
            for one in opened:
                self._closing.callback(MonitoringPort(one, self._merged.app(), probes).close)
        if options.tls_cert:
            self._listen(options.tls_port, "TLS port", ports.TLS_PORT_CURE)
        if options.http_port:
            self._listen_http(options.http_port)
        if not options.tls_only:
            self.port = self._listen(options.port, "port", ports.PORT_CURE)

    def _listen_http(self, port: int) -> None:
        """Opens the HTTP port; the default one only if it is free."""
        try:
            self._listen(port, "HTTP port", ports.HTTP_PORT_CURE)
        except StartError as error:
            if not ports.is_left_out(port, error):
                raise
            self._options = self._options._replace(http_port=0)
            self.left_out.append(("HTTP", "--http-port", port))

    def _listen(self, port: int, what: str, cure: str) -> int:
        opened = ports.bound(ports.opened, self._options.host, port, what, cure)
        found: int = opened[0].getsockname()[1]
        self._sockets[found] = opened
        return found

    # ── One worker ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self, worker: _Worker) -> None:
        """Runs a process for a worker, again and again."""
        while True:
            began = stopwatch()
            try:
                code = await self._run(worker)
            except OSError as error:  # no process, or no file, is left
                log.error("worker %d cannot be started: %s", worker.number, error)
                code = EXIT_OS
            worker.process, worker.is_ready = None, False
            self._merged.ended(worker.number)
            if not self._first.done():
                self._first.set_result(code)
                return
            if self._phase == "stopping":
                return
            pause_s = worker.restarts.pause_s(stopwatch() - began)
            worker.said = f"has ended with code {code}, and starts again after {pause_s:g} s"
            log.error("worker %d %s", worker.number, worker.said)
            await pause(pause_s)

    async def _run(self, worker: _Worker) -> int:
        """Starts a process, and returns its exit code when it has ended."""
        worker.said = "starts"
        # One for each process: it shuts the socket down at its end.
        with socket.create_server(("127.0.0.1", 0)) as monitoring:
            worker.port = monitoring.getsockname()[1]
            sockets = {**self._sockets, worker.port: [monitoring]}
            files = {port: [one.fileno() for one in opened] for port, opened in sockets.items()}
            pipe = asyncio.subprocess.PIPE
            worker.process = process = await asyncio.create_subprocess_exec(
                *PROGRAM, stdin=pipe, stdout=pipe, pass_fds=[number for some in files.values() for number in some]
            )
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(ConnectionError):  # it has ended at once: its code says so
            process.stdin.write(written(self._assignment(worker, files)))
            await process.stdin.drain()
        if self._phase == "stopping":
            worker.signal(signal.SIGTERM)
        if await process.stdout.readline() == READY:
            worker.is_ready = True
            log.info("worker %d serves: process %d", worker.number, process.pid)
            if self._reloaded:  # perhaps while it was reading
                worker.signal(signal.SIGHUP)
            if not self._first.done():
                self._first.set_result(None)
        return await process.wait()

    def _assignment(self, worker: _Worker, files: dict[int, list[int]]) -> Assignment:
        own = self._options._replace(port=self.port, metrics_host=HOSTS, metrics_port=worker.port, console_port=0)
        return Assignment(worker.number, own, files, self._argv, self._settings)

    # ── All of them ──────────────────────────────────────────────────────────────────────────────────────────────────

    def reload(self) -> list[str]:
        """Lets each worker read its files again; their lines in the log say what changed."""
        self._reloaded = True
        for worker in self._workers:
            if worker.is_ready:
                worker.signal(signal.SIGHUP)
        return [f"the {len(self._workers)} workers read their files again"]

    async def alive(self) -> bool:
        """Whether no worker hangs."""
        return (await asyncio.to_thread(self._healthy)).good

    async def waits_for(self) -> str:
        """As `Serving.waits_for`, of all workers."""
        found = await asyncio.to_thread(self._ready)
        return "" if found.good else found.said

    def _asked(self, path: str) -> dict[int, _Answer]:
        """The answer of each worker that serves, by its number. For threads of the HTTP port."""
        serving = [worker for worker in self._workers if worker.is_ready]
        answers = self._threads.map(lambda worker: worker.ask(path), serving)
        return {worker.number: answer for worker, answer in zip(serving, answers, strict=True) if worker.is_ready}

    def _scraped(self) -> dict[int, str]:
        return {number: answer.text for number, answer in self._asked("/metrics").items() if answer.good}

    def _states(self) -> list[WorkerState]:
        return [WorkerState(worker.number, worker.is_ready, worker.restarts.count) for worker in self._workers]

    def _healthy(self) -> ProbeAnswer:
        """Whether a restart of all would not help: it would not where some run, and others are being started again."""
        if self._phase == "starting":
            return ProbeAnswer(True, self._phase)
        answers = self._asked("/healthz")
        good = bool(answers) and all(answer.good for answer in answers.values())
        return ProbeAnswer(good, self._told(answers) or "ok")

    def _ready(self) -> ProbeAnswer:
        """Whether clients are served: one worker is enough."""
        if self._phase != "serving":
            return ProbeAnswer(False, self._phase)
        answers = self._asked("/readyz")
        if any(answer.good for answer in answers.values()):
            return ProbeAnswer(True, "ok")
        return ProbeAnswer(False, self._told(answers))

    def _told(self, answers: dict[int, _Answer]) -> str:
        """What is not as it should be, for people."""
        told = []
        for worker in self._workers:
            answer = answers.get(worker.number)
            if answer is None:
                told.append(f"worker {worker.number} {worker.said}")
            elif not answer.good:
                told.append(f"worker {worker.number}: {answer.text}")
        return "; ".join(told)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the ports, then drains the workers, and ends by force those that take too long."""
        self._phase = "stopping"
        for opened in self._sockets.values():
            ports.close(opened)
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        ending = [task for task, worker in zip(self._tasks, self._workers, strict=False) if worker.process is not None]
        for task in self._tasks:
            if task not in ending:
                task.cancel()  # it waits for the next start
        if ending:
            await asyncio.wait(ending, timeout=END_S)
        for worker in self._workers:
            worker.signal(signal.SIGKILL)
        if ending:
            await asyncio.wait(ending, timeout=END_S)
        self._closing.close()
        self._threads.shutdown(wait=False)
