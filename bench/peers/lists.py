"""Sends at a gateway while another client lists thousands of topics and their statistics.

    python -m bench.peers.lists [TOPICS]          some minutes; needs Java 17, Maven and Go as `make bench-doors` does

The lister is a process of its own: it lists all topics and asks for the statistics of all of them, with a second
between two turns as a dashboard does, or without a pause. In turns with nobody listing.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import popmq
from bench.peers.gateways import ONE, doors
from bench.peers.install import Missing

TOPICS, CALLERS, AT_ONCE = 5_000, 8, 4
ROUNDS, SECONDS = 3, 10.0
#: How the lister lists; the pause between two turns, in seconds.
WAYS = {"nobody lists": None, "each second": 1.0, "without a pause": 0.0}


async def create(endpoint: str, topics: int) -> None:
    """The topics that are listed, and one for the sends."""
    async with popmq.AsyncClient(endpoint) as client:
        await client.topics.create("sent")
        turn = iter(range(topics))

        async def some() -> None:
            for number in turn:
                await client.topics.create(f"listed-{number}", queues=1, timeout=60.0)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def p99_ms(endpoint: str, seconds: float) -> float:
    """Of single sends of 1 KiB by some callers."""
    took, until = list[float](), time.monotonic() + seconds

    async def one(client: popmq.AsyncClient) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            await client.send("sent", bytes(1024))
            took.append(time.monotonic() - began)

    async with popmq.AsyncClient(endpoint) as client:
        await asyncio.gather(*(one(client) for _ in range(CALLERS)))
    return sorted(took)[len(took) * 99 // 100] * 1000


def listing(endpoint: str, pause_s: float) -> None:
    """Lists for ever; says how many topics it found the first time."""
    with popmq.Client(endpoint) as client:
        found = 0
        while True:
            names = [topic.name for topic in client.topics.list(timeout=60.0)]
            stats = client.broker.stats(timeout=60.0)
            if not found:
                found = len(names)
                print(found, len(stats.topics), flush=True)
            time.sleep(pause_s)


@contextmanager
def lister(endpoint: str, pause_s: float | None) -> Iterator[str]:
    """What the lister found the first time."""
    if pause_s is None:
        yield "–"
        return
    words = [sys.executable, "-m", "bench.peers.lists", "--list", endpoint, str(pause_s)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline().strip()
            if not told:
                raise Missing("the lister has ended: its error is above")
            yield told
        finally:
            process.kill()


def measure(endpoint: str) -> int:
    """Prints p99 of each way, the median of the rounds."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(ROUNDS + 1):
        for way, pause_s in WAYS.items():
            with lister(endpoint, pause_s) as told:
                figure = asyncio.run(p99_ms(endpoint, SECONDS if number else 2.0))
            if number:
                found[way].append(figure)
                print(f"round {number}, {way}: p99 {figure:.1f} ms (topics and statistics listed: {told})", flush=True)
    base = median(found["nobody lists"])
    for way, figures in found.items():
        print(f"{way}: p99 {median(figures):.1f} ms, {median(figures) / base:.2f} ×")
    return 0 if median(found["each second"]) < 2 * base else 1


def main(words: list[str]) -> int:
    if words[:1] == ["--list"]:
        listing(words[1], float(words[2]))
    topics = int(words[0]) if words else TOPICS
    with tempfile.TemporaryDirectory(prefix="popmq-lists-") as scratch:
        try:
            with doors(Path(scratch)) as found:
                endpoint = found[ONE].endpoint
                began = time.monotonic()
                asyncio.run(create(endpoint, topics))
                print(f"{topics:,} topics created in {time.monotonic() - began:.0f} s", flush=True)
                return measure(endpoint)
        except Missing as missing:
            print(f"bench-lists: {missing}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
