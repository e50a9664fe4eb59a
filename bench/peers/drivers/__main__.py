"""Measures one leg of a library from Python. Its flags, and the line that it prints, are those of bench/loadgen.

python -m bench.peers.drivers -target honker -endpoint FILE -leg send -topic b1 -callers 64
"""

import argparse
import asyncio
import functools
import importlib
import json
from collections.abc import Callable
from dataclasses import fields

from bench.peers.drivers.legs import Options, Run, Tasks, Threads, by_tasks, by_threads
from bench.peers.drivers.with_honker import Honker
from bench.peers.drivers.with_pgqueuer import PgQueuer
from bench.peers.drivers.with_popmq import EmbeddedPopMQ, PopMQ
from bench.peers.drivers.with_simplebroker import SimpleBroker

#: Target → library, and the package whose event loop its users run.
TASKS: dict[str, tuple[Callable[[Options], Tasks], str]] = {
    "popmq-sdk": (PopMQ, "asyncio"),
    "popmq-embedded": (EmbeddedPopMQ, "asyncio"),
    "pgqueuer": (PgQueuer, "uvloop"),
}
THREADS: dict[str, Callable[[Options], Threads]] = {
    "honker": Honker,
    "honker-full": functools.partial(Honker, full=True),
    "simplebroker": SimpleBroker,
}


def options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.drivers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-target", choices=[*TASKS, *THREADS], required=True)
    parser.add_argument("-leg", choices=["prepare", "send", "receive"], required=True)
    for name in ("endpoint", "topic"):
        parser.add_argument(f"-{name}", required=True)
    for name, usual in (("batch", 1), ("callers", 1), ("bytes", 1024), ("rate", 0)):
        parser.add_argument(f"-{name}", type=int, default=usual)
    parser.add_argument("-seconds", type=float, default=5.0)
    given = parser.parse_args()
    return Options(**{each.name: getattr(given, each.name) for each in fields(Options)})


async def tasks(given: Options) -> dict[str, float]:
    library = TASKS[given.target][0](given)
    async with library.opened():
        if given.leg == "prepare":
            await library.prepare(given.topic.split(","))
            return {}
        run = Run(given.seconds)
        return run.result(await by_tasks(library.send if given.leg == "send" else library.receive, given.callers, run))


def threads(given: Options) -> dict[str, float]:
    library = THREADS[given.target](given)
    if given.leg == "prepare":
        library.prepare(given.topic.split(","))
        return {}
    run = Run(given.seconds)
    opened = library.sender if given.leg == "send" else library.receiver
    return run.result(by_threads(opened, given.callers, run))


def main() -> None:
    given = options()
    if given.target in THREADS:
        told = threads(given)
    else:
        loop = importlib.import_module(TASKS[given.target][1]).new_event_loop
        with asyncio.Runner(loop_factory=loop) as runner:
            told = runner.run(tasks(given))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
