"""A broker on a fake clock whose leases all end in one millisecond: only a fake clock can make that exact.

    python -m bench.parts.storm '["FOLDER", 100000]'

It prints its endpoint, waits for a line, moves the clock to the deadline, and prints the seconds that the revive took.
"""

import json
import sys
import time
from pathlib import Path

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer.core import Core
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.values.outgoing import Outgoing, hash8

LEASE_MS = 3_600_000


def prepare(folder: Path, clock: FakeClock, checkpoints: int) -> None:
    """Pops `checkpoints` messages one by one, each under a CheckPoint of its own, all with the same deadline."""
    core = Core(Store(folder, 4 << 30, "none"), clock)
    core.run([ask.CreateTopic("storm", 8, False, 72 * LEASE_MS)])
    core.run([ask.CreateGroup("storm", 17, (10_000,), 60_000, 0, "EARLIEST", 0, False, in_flight_max=1_000_000)])
    for first in range(0, checkpoints, 1_000):
        numbers = range(first, min(first + 1_000, checkpoints))
        core.run([ask.Send("storm", tuple(message(number) for number in numbers))])
        core.run([ask.Pop("storm", "storm", (), 1, 3 << 20, LEASE_MS) for _ in numbers])
    core.close()


def message(number: int) -> Outgoing:
    name = f"m{number}"
    data = pb.Message(message_id=name, body=b"x" * 100).SerializeToString()
    return Outgoing(data, bytes(8), (hash8(name),), name)


def main() -> None:
    folder, checkpoints = json.loads(sys.argv[1])
    clock = FakeClock()
    prepare(Path(folder), clock, checkpoints)
    with EmbeddedBroker(Path(folder), clock=clock, max_size=4 << 30) as broker:
        print(broker.endpoint, flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        clock.advance(LEASE_MS)
        print(time.perf_counter() - began, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
