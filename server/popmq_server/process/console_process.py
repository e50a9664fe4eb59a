"""`--console-port`: the web pages as a process of their own, which begins and ends with the broker.

    popmq serve ──starts──▶ popmq console --endpoint HERE --until-stdin-ends
         └──── a pipe, nothing is written: it closes when this process ends for any reason, and then the console ends

The pages speak to the ports like any client, so a page never costs the event loop more than its calls.
"""

import asyncio
import contextlib
import logging
import pathlib
import sys
from collections.abc import Callable

from popmq_server import ports
from popmq_server.errors import StartError
from popmq_server.options import (
    Options,
    address,
    is_any,
    is_loopback,
)

log = logging.getLogger("popmq")

#: Its log goes to the same standard error: with the level and the format of this process, its first two arguments.
_CODE = """
import sys
from popmq_server import logs
logs.start(sys.argv.pop(1), sys.argv.pop(1))
from popmq_cli.main import main
main()
"""
PROGRAM = (sys.executable, "-c", _CODE)
#: Seconds after which the log says that a console is not ready yet.
READY_S = 30.0
#: Seconds that a console gets to end by itself.
END_S = 5.0


def arguments(options: Options, port: int, certificate: pathlib.Path | None) -> list[str]:
    """The arguments of PROGRAM. `port`: where the broker serves; `certificate`: of its TLS port."""
    given = [options.log_level, options.log_format, "console", "--until-stdin-ends"]
    first = options.host[0]
    given += ["--endpoint", address("127.0.0.1" if is_any(first) else first, port)]
    if options.tls_only:
        given += ["--tls-ca", str(certificate)]
    given += [word for host in options.console_host for word in ("--host", host)]
    given += ["--port", str(options.console_port)]
    if options.tls_cert and not is_loopback(options.console_host):
        given += ["--tls-cert", str(options.tls_cert), "--tls-key", str(options.tls_key)]
    return given


def refuse_taken(hosts: tuple[str, ...], port: int) -> None:
    """Raises StartError if the port cannot be opened. The console itself opens it seconds later."""
    try:
        ports.close(ports.opened(hosts, port))
    except ports.NotOpened as error:
        raise StartError(
            f"console port {port} on {error.host} cannot be opened: {error}; name another with "
            "--console-port or --console-host, or --console-port 0 for none"
        ) from error.why


class ConsoleProcess:
    """The process of one console. A console that fails is reported in the log, and harms no broker."""

    def __init__(self, *given: str) -> None:
        self._given = given
        self._process: asyncio.subprocess.Process | None = None
        self._watched: asyncio.Task[None] | None = None

    async def start(self, ready: Callable[[str], None]) -> None:
        """Returns at once. Calls `ready` with the line that the console prints when it serves."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(*PROGRAM, *self._given, stdin=pipe, stdout=pipe)
        except OSError as error:  # no process, or no file, is left
            log.error("the console cannot be started: %s; the broker goes on without it", error)
            return
        self._watched = asyncio.ensure_future(self._watch(self._process, ready))

    async def _watch(self, process: asyncio.subprocess.Process, ready: Callable[[str], None]) -> None:
        assert process.stdout is not None
        line = asyncio.ensure_future(process.stdout.readline())  # empty once the console has ended
        if not (await asyncio.wait((line,), timeout=READY_S))[0]:
            log.warning("the console is not ready after %g s; the broker serves", READY_S)
        if said := (await line).decode().strip():
            ready(said)
        code = await process.wait()
        if said:
            log.warning("the console has ended with code %s; the broker goes on without it", code)
        else:
            log.error(
                "the console of --console-port did not start: it ended with code %s, and its line above says why; "
                "the broker goes on without it",
                code,
            )

    async def stop(self) -> None:
        """Ends the console, by force when it takes too long."""
        if self._process is None or self._watched is None:
            return
        self._watched.cancel()
        if self._process.stdin:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
