"""A worker: serves what its supervisor has opened, until SIGTERM, or until the supervisor has gone."""

import asyncio
import contextlib
import os
import signal
import sys

from popmq_server import logs
from popmq_server.clock import SystemClock
from popmq_server.ports import Inherited
from popmq_server.process.reloading import Reload
from popmq_server.process.running import EXIT_IO, log, run, settle
from popmq_server.process.serving import Serving
from popmq_server.process.workers.assignment import READY, Assignment, read


def main() -> int:
    """The exit code is that of `popmq serve`."""
    assignment = read(sys.stdin.buffer)
    options = assignment.options
    logs.start(options.log_level, options.log_format, assignment.number)
    return run(_serve(assignment), options.log_format)


async def _serve(assignment: Assignment) -> int:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = Serving(assignment.options, SystemClock(), listening=Inherited(assignment.files))
    loop.add_signal_handler(signal.SIGHUP, Reload(assignment.argv, assignment.settings, serving.reload))

    def orphaned() -> None:
        loop.remove_reader(sys.stdin.fileno())
        log.warning("the process that supervises this worker has ended: so does the worker")
        stop.set()

    async with serving:
        settle()
        with contextlib.suppress(BrokenPipeError):
            os.write(sys.stdout.fileno(), READY)
        loop.add_reader(sys.stdin.fileno(), orphaned)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((stopped, serving.failed), return_when=asyncio.FIRST_COMPLETED)
        loop.remove_reader(sys.stdin.fileno())
        if serving.failed.done():
            log.critical("%s; %s", serving.failed.result(), serving.words.recovery)
            return EXIT_IO
    return 0
