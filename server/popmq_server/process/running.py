"""What each process that serves does around its event loop: allocator, threads, garbage collection, exit codes.

Exit codes: 0 stopped by SIGTERM or SIGINT · 2 wrong settings · 74 the engine failed · 78 no start.
"""

import asyncio
import gc
import logging
import sys
from collections.abc import Coroutine
from typing import Any

from popmq_server import logs
from popmq_server.errors import EngineFailed, StartError
from popmq_server.process.allocator import return_large_blocks

EXIT_IO = 74
EXIT_CONFIG = 78
#: Interval in seconds at which Python switches threads. With the default of 5 ms the event loop and the writer wait for
#: each other: 64 single senders had p99 58 ms, with 1 ms 15 ms.
SWITCH_INTERVAL_S = 0.001
#: New objects between two collections of the youngest. 64 calls in progress have 2,500, so with the default of 700 each
#: commit came with one, which found nothing.
COLLECT_AFTER = 10_000

log = logging.getLogger("popmq")


def run(serve: Coroutine[Any, Any, int], log_format: str) -> int:
    """Runs `serve` in an event loop; returns the exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return_large_blocks()
    gc.disable()  # until `settle`: what the start makes stays, and looking through it again and again takes a tenth
    try:
        return asyncio.run(serve)
    except EngineFailed as error:
        log.critical("%s; %s", error, error.recovery)
        return EXIT_IO
    except StartError as error:
        if log_format == "json":
            log.critical("%s", error)
        else:
            logs.tell(f"popmq: {error}\n")
        return EXIT_CONFIG
    finally:
        gc.enable()


def settle() -> None:
    """Excludes the objects made by the start from garbage collection; they live until the process ends.

    A collection of the oldest generation would block all threads for 30 ms: the modules alone are 50,000 objects. There
    is none before either, which would take a tenth of the start: less than a thousand of them are garbage.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()
