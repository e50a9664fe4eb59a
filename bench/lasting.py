"""Measurements that are too long for `make bench-compare`: a start with ten million messages, and half an hour of load.

    make bench-long                                     MINUTES=30; both figures into BENCHMARKS.md
    python -m bench.lasting 1 --messages 100000 --leases 1000        a trial, which writes nothing

- **Start**: two load processes send the messages, then each of the leases is a Pop of one message that is never acked.
  The broker is killed (SIGKILL), and the time from exec to the open port is measured, the median of STARTS. The figure
  counts only if the broker then reports the same numbers of messages and leases as before.
- **Half an hour**: callers in a closed loop send a batch, pop as many messages, and ack them; retention drops them a
  minute later. The rate of the last quarter is divided by that of the first minute, both medians of samples; and the
  size of the data file by the bytes of the messages that are stored, in the last quarter.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import popmq
from bench import tables
from bench.measuring.load import Spec
from bench.measuring.measure import Subject, busy_s, cpu_s, machine, subject
from bench.parts import legs
from harness.broker_process import ROOT, BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb

MINUTES, MESSAGES, LEASES, STARTS = 30.0, 10_000_000, 100_000, 3
BODY_BYTES, BATCH, CALLERS, SAMPLE_S = 1024, 64, 8, 5.0
#: Bytes of the messages that are only stored: ten million of 1 KiB would fill 10 GB.
SMALL_BODY_BYTES = 128
KEEP_S = 60.0
#: Seconds after which filling is given up.
FILL_S = 3600.0


@dataclass(frozen=True)
class Sample:
    """A broker's numbers at a time, in seconds since the load began. `data_bytes`: the file; `live_bytes`: messages."""

    at_s: float
    moved: int
    data_bytes: int
    live_bytes: int


# ── A start ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def ready_s(folder: Path, messages: int, leases: int) -> float:
    """Seconds from exec to the open port of a broker that was killed with these messages and leases."""
    with subject(folder, "--max-size", "64GiB") as broker:
        topic, group = broker.topic("rest"), "rest"
        made = pb.Group(name=group, in_flight_max=1_000_000)
        broker.stubs.admin.CreateGroup(pb.CreateGroupRequest(group=made), timeout=30)
        share = Spec("raw_send", broker.endpoint, topic, batch=500, callers=4, body_bytes=SMALL_BODY_BYTES)
        share.messages, share.seconds = messages // legs.PROCESSES, FILL_S
        broker.leg("fill", share, legs.PROCESSES)
        broker.leg("lease", Spec("raw_lease", broker.endpoint, topic, group, 1, 64, 0, FILL_S, leases), 1)
        before = _numbers(broker)
        assert before[0] >= messages, f"{before[0]} messages were stored"
        assert before[1] >= leases, f"{before[1]} messages are leased"
        took = []
        for _ in range(STARTS):
            broker.process.kill()
            broker.process.start()
            took.append(broker.process.ready_s)
        assert _numbers(broker) == before, "the broker tells other numbers after the kill"
    return statistics.median(took)


def _numbers(broker: Subject) -> tuple[int, int]:
    """(stored messages, leased ones)."""
    with Stubs(broker.endpoint) as stubs:
        stats = stubs.admin.GetStats(pb.GetStatsRequest(topic="rest", group="rest"), timeout=60)
    return stats.topics[0].messages, stats.groups[0].in_flight


# ── Half an hour ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def lasting(broker: BrokerProcess, folder: Path, seconds: float) -> list[Sample]:
    """Sends, pops and acks for `seconds`, with samples of the broker's numbers."""
    samples: list[Sample] = []
    moved = 0
    async with popmq.AsyncClient(broker.endpoint) as client:
        await client.topics.create("flow", retention=popmq.Retention(keep=KEEP_S))
        await client.groups.create("flow")
        began = time.monotonic()

        async def caller(number: int) -> None:
            nonlocal moved
            bodies, sent = b"." * (BODY_BYTES - 16), 0
            while time.monotonic() < began + seconds:
                messages = [popmq.Message(b"%04x%012x" % (number, sent + place) + bodies) for place in range(BATCH)]
                sent += BATCH
                await client.send("flow", messages)
                deliveries = await client.pop("flow", "flow", max_messages=BATCH)
                if deliveries:
                    await client.ack(deliveries)
                moved += len(deliveries)

        async def watch() -> None:
            while time.monotonic() < began + seconds:
                await asyncio.sleep(SAMPLE_S)
                (topic,) = (await client.broker.stats(topic="flow")).topics
                assert topic.bytes is not None, "the embedded engine knows it"
                data = (folder / "popmq.mdb").stat().st_blocks * 512
                samples.append(Sample(time.monotonic() - began, moved, data, topic.bytes))

        await asyncio.gather(watch(), *map(caller, range(CALLERS)))
    return samples


def judged(samples: list[Sample]) -> dict[str, float]:
    """The last quarter beside the first minute. Raises ValueError when it did not last for two minutes."""
    first = [sample for sample in samples if sample.at_s <= 60 + SAMPLE_S]
    last = samples[-max(2, len(samples) // 4) :]
    if samples[-1].at_s < 120 or len(first) < 2:
        raise ValueError("the first minute and the last quarter need two minutes at least")
    file = statistics.median(sample.data_bytes / max(sample.live_bytes, 1) for sample in last)
    return {"rate_kept": _rate(last) / _rate(first), "file_share": file}


def _rate(samples: list[Sample]) -> float:
    """Messages a second: the median between two samples, so that a stall of the disk does not count for all."""
    pairs = itertools.pairwise(samples)
    return statistics.median((after.moved - before.moved) / (after.at_s - before.at_s) for before, after in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lasting", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("minutes", type=float, nargs="?", default=MINUTES)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--leases", type=int, default=LEASES)
    parser.add_argument("--scratch", type=Path, help="where the data folders go: the disk that is measured")
    parser.add_argument("--keep", action="store_true", help="the rows go into BENCHMARKS.md")
    options = parser.parse_args()
    if options.keep and (options.minutes < MINUTES or options.messages < MESSAGES or options.leases < LEASES):
        parser.error("only the whole measurement is kept")
    with tempfile.TemporaryDirectory(prefix="popmq-long-", dir=options.scratch) as scratch:
        told: dict[str, Any] = {"machine": machine(Path(scratch)), "minutes": options.minutes}
        print(f"bench-long: {options.messages:,} messages and {options.leases:,} leases", file=sys.stderr, flush=True)
        found = {"ready_large": ready_s(Path(scratch) / "rest", options.messages, options.leases)}
        print(f"bench-long: {options.minutes:g} minutes of sends, pops and acks", file=sys.stderr, flush=True)
        with BrokerProcess(Path(scratch) / "flow", "--max-size", "64GiB") as broker:
            others, began = busy_s() - cpu_s(broker.pid) - time.process_time(), time.monotonic()
            samples = asyncio.run(lasting(broker, Path(scratch) / "flow", options.minutes * 60))
            others = busy_s() - cpu_s(broker.pid) - time.process_time() - others
            told["others"] = max(0.0, others) / (time.monotonic() - began) / len(os.sched_getaffinity(0))
    told["figures"] = found | judged(samples)
    if options.keep:
        tables.LONG.write_text(json.dumps(told, indent=1) + "\n")
        tables.put_long(told, ROOT / "BENCHMARKS.md")
    print(tables.long(told))
    return int(bool(tables.long_fails(told)))


if __name__ == "__main__":
    sys.exit(main())
