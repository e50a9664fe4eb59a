"""The processes of `popmq work --processes N`, `--reload` and `--health-port`: started, and again when they die.

terminal ─ SIGTERM, SIGINT ─▶ supervisor ─ SIGTERM ─▶ process 1 … N, each in a process group of its own: Ctrl-C in a
                                  │                   terminal would reach them twice, which means "at once"
                                  └── pipe ─────────▶ closed with the supervisor: they drain when it is killed
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from popmq_cli.shared import exits, health

log = logging.getLogger("popmq.worker")

#: Environment variable with the end of the pipe that closes when the supervisor ends.
PARENT = "POPMQ_WORK_PARENT"
#: Seconds before a process that died is started again.
AGAIN_S = 1.0
#: Seconds between two checks of the files.
LOOK_S = 0.5
#: Added to the exit code of a process that could not begin its work: another one would end in the same way. One that
#: has begun and ends by an error, with Python's code 1, is started again.
HOPELESS = 64


class Supervisor:
    """Runs `popmq ARGUMENTS` in `count` processes. `watched`: a change of a Python file in it restarts them.

    `probed`: a port that listens, for probes.
    """

    def __init__(
        self, arguments: Sequence[str], count: int, watched: Path | None, probed: Sequence[socket.socket] = ()
    ) -> None:
        self._command = [sys.executable, "-c", "from popmq_cli.main import main; main()", *arguments]
        self._reported = [health.Reported() for _ in range(count)]
        self._watched = watched
        self._probed = probed
        self._running: set[asyncio.subprocess.Process] = set()
        self._stops = 0

    def run(self) -> int:
        """Runs until all have ended after a signal, or one cannot be started. Returns the exit code."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        self._pipe, self._kept = os.pipe()
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGQUIT, self._tell)
        looking = asyncio.create_task(self._look()) if self._watched else None
        ports = await self._serve_probes()
        codes = await asyncio.gather(*map(self._keep, self._reported))
        for port in ports:
            port.close()
        if looking:
            looking.cancel()
        return max(codes, key=abs)

    async def _serve_probes(self) -> list[asyncio.Server]:
        probes = {"/healthz": lambda: health.healthy(self._reported), "/readyz": lambda: health.ready(self._reported)}
        port = health.HealthPort(probes)
        for probed in self._probed:
            host, number = probed.getsockname()[:2]
            log.info("probes are answered on port %d of %s: %s", number, host, ", ".join(probes))
        return [await port.serve(probed) for probed in self._probed]

    async def _keep(self, reported: health.Reported) -> int:
        """One process, started again and again."""
        while True:
            changed = self._changed
            reported.begin("starting")
            code = await self._once(reported)
            reported.begin("ended")
            hopeless = code in (HOPELESS + exits.REFUSED, HOPELESS + exits.USAGE)
            if hopeless:
                code -= HOPELESS
            if self._stops:
                return (
                    0 if code in (-signal.SIGTERM, exits.TERMINATED) else code
                )  # the signal came before it could listen
            if changed.is_set():
                continue
            if hopeless and self._watched is None:
                self._stop()
                return code
            log.warning("a process ended with %s and is started again", _ending(code))
            reported.begin(f"it ended with {_ending(code)} and is started again")
            await self._pause(changed)
            if self._stops:  # what this process had in work is with others by now
                return code if self._watched else 0

    async def _once(self, reported: health.Reported) -> int:
        with self._reports(reported) as pipes:
            ends = zip((PARENT, health.REPORTS), map(str, (self._pipe, *pipes)), strict=False)
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, **dict(ends)},
                pass_fds=[self._pipe, *pipes],
                process_group=0,
            )
            self._running.add(process)
            if self._stops:  # the signal came while it was started
                process.terminate()
            try:
                return await process.wait()
            finally:
                self._running.discard(process)

    @contextlib.contextmanager
    def _reports(self, reported: health.Reported) -> Iterator[list[int]]:
        """The end of a pipe for the reports of a process; none without a port of probes."""
        if self._probed is None:
            yield []
            return
        loop, (end, given) = asyncio.get_running_loop(), os.pipe()
        loop.add_reader(end, lambda: reported.take(os.read(end, 4096)))
        try:
            yield [given]  # open here, too, so that the pipe does not end before this does
        finally:
            loop.remove_reader(end)
            os.close(end)
            os.close(given)

    async def _pause(self, changed: asyncio.Event) -> None:
        """Waits before the next start: if files are watched, until one of them has changed."""
        waits = [asyncio.create_task(self._stopping.wait())]
        if self._watched is not None:
            log.info("waiting for a file to change")
            waits.append(asyncio.create_task(changed.wait()))
        limit = None if self._watched else AGAIN_S
        await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    def _stop(self) -> None:
        """The first signal drains the processes, the second one ends them at once."""
        self._stops += 1
        self._stopping.set()
        self._signal()

    def _signal(self) -> None:
        for process in list(self._running):
            process.terminate()

    def _tell(self) -> None:
        """Lets each process print where its handlers stand."""
        for process in list(self._running):
            process.send_signal(signal.SIGQUIT)

    async def _look(self) -> None:
        """Looks for changed files. It polls, because each system has its own notification interface."""
        assert self._watched is not None
        known = await asyncio.to_thread(dict, stamps(self._watched))
        while True:
            await asyncio.sleep(LOOK_S)
            now = await asyncio.to_thread(dict, stamps(self._watched))
            if now != known:
                log.info("%s changed: starting again", min(path for path, _ in known.items() ^ now.items()))
                known = now
                self._changed.set()
                self._changed = asyncio.Event()  # of the processes from now on
                self._signal()


def stamps(folder: Path) -> Iterator[tuple[str, int]]:
    """The Python files below a folder with the time of their last change; hidden folders and caches are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and name != "node_modules"]
        for name in files:
            if name.endswith(".py"):
                try:
                    yield f"{place}/{name}", os.stat(f"{place}/{name}").st_mtime_ns
                except OSError:  # removed meanwhile
                    continue


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
