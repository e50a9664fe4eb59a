"""`--console-port`: the web pages as a process of their own, which begins and ends with the broker.

    popmq serve ──starts──▶ popmq console --endpoint HERE --until-stdin-ends
         └──── a pipe, nothing is written: it closes when this process ends for any reason, and then the console ends

The pages speak to the ports like any client, so a page never costs the event loop more than its calls.
"""

import asyncio
import contextlib
import ipaddress
import logging
import pathlib
import sys

from popmq_server.options import Options, address

log = logging.getLogger("popmq")

PROGRAM = (sys.executable, "-c", "from popmq_cli.main import main; main()", "console", "--until-stdin-ends")
#: Seconds that a console gets to end by itself.
END_S = 5.0


def arguments(options: Options, port: int, certificate: pathlib.Path | None) -> list[str]:
    """The options of the console. `port`: where the broker serves; `certificate`: of its TLS port."""
    anywhere = options.host in ("0.0.0.0", "::", "")
    given = ["--endpoint", address("127.0.0.1" if anywhere else options.host, port)]
    if options.tls_only:
        given += ["--tls-ca", str(certificate)]
    given += ["--host", options.console_host, "--port", str(options.console_port)]
    if options.tls_cert and not _is_loopback(options.console_host):
        given += ["--tls-cert", str(options.tls_cert), "--tls-key", str(options.tls_key)]
    return given


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ConsoleProcess:
    """The process of one console. A console that fails is reported in the log, and harms no broker."""

    def __init__(self, *given: str) -> None:
        self._given = given
        self._process: asyncio.subprocess.Process | None = None
        self._watched: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns at once. What the console prints is dropped: `popmq serve` says where it serves."""
        # Not this process's standard output: its reader may close it after the first line.
        output = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            *PROGRAM, *self._given, stdin=asyncio.subprocess.PIPE, stdout=output
        )
        self._watched = asyncio.ensure_future(self._watch(self._process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        log.warning("the console has ended with code %s; the broker goes on without it", code)

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
