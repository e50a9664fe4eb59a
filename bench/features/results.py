"""Measures results: stored with acks of 256 and fetched by 256, over the wire, and the memory of the broker meanwhile.

    python -m bench.features.results [--results 120000] [--steps 4]

One client, in a closed loop, through raw stubs. In each step it sends its messages, pops them, acks them with a result
of 100 B each, and fetches all results by their message ids. An ack without results is measured beside it.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.measuring.measure import Subject, cpu_s, subject
from popmq_proto.v1 import popmq_pb2 as pb

BATCH, BODY, RESULT = 256, b"x" * 100, b"y" * 100
TIMEOUT_S = 60


class Cost(NamedTuple):
    """Of one result: the rate of one client, and CPU of the broker in µs."""

    per_s: float
    broker_us: float


class Timed:
    """The time and the CPU that some calls take."""

    def __init__(self, broker: Subject) -> None:
        self._broker, self._seconds, self._cpu, self._count = broker, 0.0, 0.0, 0

    def __enter__(self) -> "Timed":
        self._began, self._cpu_began = time.perf_counter(), cpu_s(self._broker.process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds += time.perf_counter() - self._began
        self._cpu += cpu_s(self._broker.process.pid) - self._cpu_began
        self._count += BATCH

    @property
    def cost(self) -> Cost:
        return Cost(self._count / self._seconds, 1e6 * self._cpu / self._count)


def anonymous_mib(pid: int) -> float:
    """Memory of a process without files: pages of the store are in the cache of the system."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def step(broker: Subject, results: int) -> dict[str, Cost]:
    """Stores so many results and fetches them."""
    stubs = broker.stubs
    plain, stored, fetched = Timed(broker), Timed(broker), Timed(broker)
    for _ in range(results // BATCH):
        sent = stubs.broker.Send(
            pb.SendRequest(topic="jobs", messages=[pb.Message(body=BODY)] * BATCH), timeout=TIMEOUT_S
        )
        ids = [one.message_id for one in sent.results]
        for group, timed, given in (("plain", plain, False), ("keeping", stored, True)):
            asked = pb.PopRequest(topic="jobs", group=group, max_messages=BATCH, wait_ms=1000)
            handles = [one.handle for one in stubs.broker.Pop(asked, timeout=TIMEOUT_S).deliveries]
            assert len(handles) == BATCH, f"{len(handles)} messages came"
            request = pb.AckRequest(group=group, handles=handles)
            if given:
                request.results.extend(pb.DeliveryResult(handle=at, body=RESULT) for at in range(BATCH))
            with timed:
                stubs.broker.Ack(request, timeout=TIMEOUT_S)
        with fetched:
            answer = stubs.broker.GetResults(pb.GetResultsRequest(group="keeping", message_ids=ids), timeout=TIMEOUT_S)
        assert len(answer.results) == BATCH, f"{len(answer.results)} results came"
    return {"ack": plain.cost, "ack with result": stored.cost, "fetch": fetched.cost}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.features.results")
    parser.add_argument("--results", type=int, default=120_000, help="of a step")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="popmq-results-") as folder, subject(Path(folder)) as broker:
        admin = broker.stubs.admin
        admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="jobs", queues=1)), timeout=TIMEOUT_S)
        admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name="plain")), timeout=TIMEOUT_S)
        keeping = pb.Group(name="keeping", results_keep_ms=3_600_000)
        admin.CreateGroup(pb.CreateGroupRequest(group=keeping), timeout=TIMEOUT_S)
        names = ("ack", "ack with result", "fetch")
        heads = (*(f"{name}, {what}" for name in names for what in ("/s", "µs of the broker")), "broker MiB")
        print(f"| results | {' | '.join(heads)} |\n|--:|{'--:|' * len(heads)}")
        for number in range(1, options.steps + 1):
            costs = step(broker, options.results)
            cells = [text for name in names for text in (f"{costs[name].per_s:,.0f}", f"{costs[name].broker_us:.1f}")]
            memory = anonymous_mib(broker.process.pid)
            print(f"| {number * options.results:,} | {' | '.join(cells)} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
