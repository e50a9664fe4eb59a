"""Forks workers of a framework, and kills them. A program of its own, which campaign.py starts.

The framework is imported once. Each worker is a fork of this process, and makes its own broker, as the commands of the
frameworks do: Dramatiq's Redis broker knows a worker that died by an id that it draws then. Prints a line
`killed PID TIME` for each kill. Ends, with its workers, when its standard input ends.
"""

import functools
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable

from tests.integrations.campaign.adapters import ADAPTERS, Adapter

#: Workers at a time.
WORKERS = 4


def fork(make: Callable[[], Adapter], prefetch: int) -> int:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(2, 1)  # Celery's worker prints a banner, and campaign.py reads ours
        random.seed()
        try:
            make().work(prefetch)
        finally:
            os._exit(1)
    return child


def main(framework: str, broker: str, endpoint: str, kills: int, seconds: float, prefetch: int) -> None:
    """`kills` of workers, spread evenly over `seconds`; then none, until standard input ends."""
    make = functools.partial(ADAPTERS[framework, broker], endpoint)
    make()  # imports what the forks need
    children = [fork(make, prefetch) for _ in range(WORKERS)]
    print("ready", flush=True)
    began = time.monotonic()
    killed = 0
    try:
        while True:
            due = began + seconds * (killed + random.uniform(0.5, 1.5)) / max(1, kills)
            wait = max(0.0, due - time.monotonic()) if killed < kills else 0.2
            if select.select([sys.stdin], [], [], wait)[0]:
                return
            for place, child in enumerate(children):  # those that ended by themselves, for example without a broker
                if os.waitpid(child, os.WNOHANG)[0]:
                    print(f"killed {child} {time.time()!r}", flush=True)
                    children[place] = fork(make, prefetch)
            if killed < kills:
                place = random.randrange(WORKERS)
                os.kill(children[place], signal.SIGKILL)
                os.waitpid(children[place], 0)
                print(f"killed {children[place]} {time.time()!r}", flush=True)
                killed += 1
                children[place] = fork(make, prefetch)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]))
