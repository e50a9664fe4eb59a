"""The least CPU time of a request, for each message, in this process: no socket, no load program and no fsync.

    python -m bench.parts.one_request

Requests go one after the other, as frames in memory (bench/check.py). The time is that of all threads, with the
client's encoding. Beside other programs the least of many short pieces changes less than the CPU time of a whole leg.
"""

import asyncio
import itertools
import json
import tempfile
import time
from pathlib import Path

from bench.check import WARM, Client, Step, popping, sending, served

#: The order matters: pops take what was sent.
LEGS: dict[str, tuple[Step, int]] = {
    "send 1": (sending(1), 1),
    "send 256": (sending(256), 256),
    "pop + ack 256": (popping(256), 256),
    "pop + ack 1": (popping(1), 1),
}
#: Requests of each leg.
REQUESTS = 300


async def least_us(folder: Path) -> dict[str, float]:
    """Microseconds of CPU for each message, by leg."""
    async with served(folder) as client:
        return {name: await _leg(client, step) / messages for name, (step, messages) in LEGS.items()}


async def _leg(client: Client, step: Step) -> float:
    took = []
    for number in itertools.islice(itertools.count(), WARM + REQUESTS):
        began = time.process_time_ns()
        await step(client, number)
        took.append((time.process_time_ns() - began) / 1e3)
    return min(took)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(asyncio.run(least_us(Path(made)))))
