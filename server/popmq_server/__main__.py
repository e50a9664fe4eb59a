"""`python -m popmq_server`, `popmq serve`: flags, variables, file → Options → serve → drain. SIGHUP reloads.

Exit codes: 0 stopped by SIGTERM or SIGINT · 2 wrong settings · 74 the engine failed · 78 no start.
"""

import asyncio
import functools
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from popmq_server import logs
from popmq_server.clock import SystemClock, pause
from popmq_server.line_writer import LineWriter
from popmq_server.options import Options, addresses
from popmq_server.process.console_process import ConsoleProcess, arguments, refuse_taken
from popmq_server.process.interpreter import SLOW, optimized
from popmq_server.process.running import EXIT_IO, run, settle
from popmq_server.process.supervision import Supervisor
from popmq_server.settings import Settings, misspelt, parse

if TYPE_CHECKING:
    from popmq_server.process.serving import Serving
    from popmq_server.process.workers.workers import Workers

#: Seconds between two looks at what a start waits for.
WAITED_S = 0.2

log = logging.getLogger("popmq")


def main(argv: list[str] | None = None) -> int:
    """Serves until a signal; returns the exit code."""
    _reserve_standard_files()
    settings = parse(argv)
    logs.start(settings.options.log_level, settings.options.log_format)
    log.info("settings: %s", settings)
    for doubt in misspelt(os.environ):
        log.warning("%s", doubt)
    try:
        return run(_serve_once(argv, settings), settings.options.log_format)
    finally:
        if (output := _output()) is not None:
            output.flush()


def _reserve_standard_files() -> None:
    """Opens standard files that are closed on no file: the next one that is opened would take their number, and
    libraries write their last words to number 2.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the least number that is free


async def _serve_once(argv: list[str] | None, settings: Settings) -> int:
    """Ignores signals once the folder is free: a second Ctrl-C would else end what has stopped with another code."""
    try:
        return await _serve(argv, settings)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


async def _serve(argv: list[str] | None, settings: Settings) -> int:
    """Serves until SIGTERM, SIGINT or the failure of the engine; returns the exit code.

    On a signal it closes the port, lets running calls end (options.DRAIN_S) and closes the engine.
    """
    from popmq_server.process.reloading import Reload

    options, stop = settings.options, asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = _serving(argv, settings)
    # Before the start, which may take long: without a handler a SIGHUP would end the process.
    loop.add_signal_handler(signal.SIGHUP, Reload(argv, settings, serving.reload))
    async with serving:
        if options.console_port:
            refuse_taken(options.console_host, options.console_port)
        settle()
        waiting = await serving.waits_for()
        _tell(_said(options, serving, waiting))
        if optimized() is False:
            log.warning(SLOW)
        came = asyncio.ensure_future(_came(options, serving, waiting))
        supervisor = Supervisor(os.environ)
        supervisor.say("READY=1")
        watched = asyncio.ensure_future(supervisor.watch(serving.alive))
        console = await _console(options, serving)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((stopped, serving.failed), return_when=asyncio.FIRST_COMPLETED)
        watched.cancel()
        came.cancel()
        await console.stop()
        supervisor.say("STOPPING=1")
        if serving.failed.done():
            log.critical("%s; %s", serving.failed.result(), serving.words.recovery)
            return EXIT_IO
        # To the log, not to stdout: the reader of the lines above may have closed the pipe.
        log.info("stopping: running calls end, then %s", serving.words.closed)
    return 0


def _serving(argv: list[str] | None, settings: Settings) -> "Serving | Workers":
    """What serves the ports: this process, or the workers that it supervises."""
    if settings.options.workers > 1:
        from popmq_server.process.workers.workers import Workers

        return Workers(argv, settings)
    from popmq_server.process.serving import Serving  # nine tenths of the start, and wrong settings end before it

    return Serving(settings.options, SystemClock(), note_faults=True)


async def _console(options: Options, serving: "Serving | Workers") -> ConsoleProcess:
    """The console, started if a port was named for it."""
    console = ConsoleProcess(*arguments(options, serving.port, serving.certificate))
    if options.console_port:
        await console.start(lambda line: _tell(logs.lines([line.removeprefix("popmq: ")], options.log_format)))
    return console


def _tell(text: str) -> None:
    """Prints lines. A broker serves although nothing takes them: a closed or full standard output, a reader that hangs
    or has gone.
    """
    if (output := _output()) is not None:
        output.put(text)
    else:  # it was closed before the process began
        log.warning("standard output takes no lines: it is closed")


@functools.cache
def _output() -> LineWriter | None:
    """Returns the writer of standard output; None if that is closed."""
    if sys.stdout is None:
        return None
    failed = functools.partial(log.warning, "standard output takes no lines: %s")
    return LineWriter(os.dup(sys.stdout.fileno()), lambda _: "", failed)


async def _came(options: Options, serving: "Serving | Workers", waiting: str) -> None:
    """Says that clients are served, when what the start waited for has come."""
    if waiting:
        while await serving.waits_for():
            await pause(WAITED_S)
        _tell(logs.lines([_ready(options, serving)], options.log_format))


def _ready(options: Options, serving: "Serving | Workers") -> str:
    return f"ready on {addresses(options.host, serving.port)}"


def _said(options: Options, serving: "Serving | Workers", waiting: str = "") -> str:
    """The lines that report the open ports. One text: a reader may close the pipe after the first line.

    `waiting`: what clients cannot be served without yet.
    """
    lines = [
        f"listening on {addresses(options.host, serving.port)}, {waiting}" if waiting else _ready(options, serving)
    ]
    if serving.certificate is not None:
        made = "" if options.tls_cert else ", made for development"
        only = " only" if options.tls_only else ""
        lines += [f"TLS{only} on {addresses(options.host, options.tls_port)}: {serving.certificate}{made}"]
    left_out = [flag for _, flag, _ in serving.left_out]
    if options.http_port and "--http-port" not in left_out:
        tls = " with TLS" if options.tls_only else ""
        lines += [f"HTTP with JSON on {addresses(options.host, options.http_port)}{tls}"]
    if options.metrics_port and "--metrics-port" not in left_out:
        lines += [f"metrics on {addresses(options.metrics_host, options.metrics_port)}"]
    lines += [f"no {what}: port {port} is taken; {flag} names another" for what, flag, port in serving.left_out]
    if options.access_keys:
        lines += [f"every call needs an access key: {options.access_keys}"]
    else:
        lines += ["no access keys: every client that reaches a port may do everything"]
    return logs.lines(lines, options.log_format)


if __name__ == "__main__":
    sys.exit(main())
