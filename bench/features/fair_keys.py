"""Measures turns by fair key beside a group without them: throughput, CPU of the broker, and how long others wait.

    python -m bench.features.fair_keys [--messages 60000] [--rounds 3] [--waiting 1000000]

Throughput: two consumers pop 256 messages of 200 B and ack them, until a topic is empty; a group without fair keys and
one with some, in turns, over the same messages. Waits: a sender gives messages of 400 other tenants one by one to four
workers that take 5 ms for each: without a backlog; from the group's first Pop on, with a backlog of one tenant that the
broker has not read yet; and once it has read it.
"""

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import popmq
from bench.measuring.load import Spec
from bench.measuring.measure import Leg, Subject, percentile, subject

BODY, BATCH, CONSUMERS, QUEUES = b"x" * 200, 256, 2, 8
TENANTS, TENANTS_OF_LABEL = 1000, 100
#: Messages in one request of the sender that fills a topic.
FILL = 250
#: Of the waits: workers, what they take for a message, the messages of others and the seconds between two of them.
WORKERS, WORK_S, OTHERS, EVERY_S = 4, 0.005, 400, 0.01
#: Until the broker has read the backlog ahead at most.
READ_S = 600.0
BUSY = "acme"


def busy(count: int) -> Iterator[str]:
    """One tenant, and then one message each of 1,000 others."""
    yield from (BUSY for _ in range(count - TENANTS))
    yield from (f"tenant-{number}" for number in range(TENANTS))


def scattered(count: int) -> Iterator[str]:
    """1,000 tenants at random."""
    chance = random.Random(1)
    return (f"tenant-{chance.randrange(TENANTS)}" for _ in range(count))


def spread(count: int) -> Iterator[str]:
    """One tenant with nine of ten messages, over a hundred keys under its label, and a hundred others."""
    chance = random.Random(1)
    for number in range(count):
        which = chance.randrange(TENANTS_OF_LABEL)
        yield f"other-{which}/a" if number % 10 == 0 else f"{BUSY}/{which}"


CASES: dict[str, tuple[Callable[[int], Iterator[str]], str]] = {
    "one tenant, then 1,000 others": (busy, ""),
    "1,000 tenants at random": (scattered, ""),
    "a tenant's hundred keys under one label": (spread, "/"),
}


def fill(client: popmq.Client, topic: str, tenants: Iterator[str]) -> None:
    client.topics.create(topic, queues=QUEUES)
    batch = list[popmq.Message]()
    for tenant in tenants:
        batch.append(popmq.Message(BODY, properties={"tenant": tenant}))
        if len(batch) == FILL:
            client.send(topic, batch)
            batch = []
    if batch:
        client.send(topic, batch)


def throughput(broker: Subject, client: popmq.Client, messages: int, rounds: int) -> None:
    print(
        f"| {messages:,} messages | messages/s | with fair keys | ratio | broker µs | with fair keys | other programs |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for number, (case, (tenants, separator)) in enumerate(CASES.items()):
        topic = f"turns-{number}"
        fill(client, topic, tenants(messages))
        plain, fair = list[Leg](), list[Leg]()
        for round_ in range(rounds):
            for legs, keys in ((plain, None), (fair, popmq.FairKeys(property="tenant", label_separator=separator))):
                group = f"{'fair' if keys else 'plain'}-{number}-{round_}"
                client.groups.create(group, fair_keys=keys)
                spec = Spec("raw_pop", broker.endpoint, topic, group, BATCH, CONSUMERS, len(BODY), seconds=600)
                legs.append(broker.leg(group, spec, CONSUMERS))
                assert legs[-1].messages == messages, f"{legs[-1].messages} of {messages} messages came"
        rates = [statistics.median(leg.messages_per_s for leg in legs) for legs in (plain, fair)]
        costs = [statistics.median(leg.broker_us_per_message for leg in legs) for legs in (plain, fair)]
        ratio = statistics.median(b.messages_per_s / a.messages_per_s for a, b in zip(plain, fair, strict=True))
        others = statistics.mean(leg.others_share for leg in (*plain, *fair))
        row = f"{rates[0]:,.0f} | {rates[1]:,.0f} | {ratio:.2f} | {costs[0]:.1f} | {costs[1]:.1f} | {others:.0%}"
        print(f"| {case} | {row} |", flush=True)


class Waits:
    """How long messages of the others wait: from their send to their handler."""

    def __init__(self, endpoint: str, topic: str, group: str, every_s: float) -> None:
        self._endpoint, self._topic, self._group, self._every_s = endpoint, topic, group, every_s
        self._found, self._end = list[float](), threading.Event()

    def measure(self, client: popmq.Client) -> list[float]:
        """Milliseconds, one for each message."""
        workers = [threading.Thread(target=self._work) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        began = time.monotonic()
        for number in range(OTHERS):
            time.sleep(max(0.0, began + self._every_s * number - time.monotonic()))
            sent = popmq.Message(str(time.monotonic()), properties={"tenant": f"tenant-{number}"})
            client.send(self._topic, sent)
        until = time.monotonic() + 60
        while len(self._found) < OTHERS and time.monotonic() < until:
            time.sleep(0.01)
        self._end.set()
        for worker in workers:
            worker.join()
        return sorted(self._found)

    def _work(self) -> None:
        with popmq.Client(self._endpoint) as client:
            while not self._end.is_set():
                for delivery in client.pop(self._topic, self._group, max_messages=1, wait=0.2):
                    if delivery.properties["tenant"] != BUSY:
                        self._found.append(1e3 * (time.monotonic() - float(delivery.body)))
                    time.sleep(WORK_S)
                    client.ack(delivery)


def is_read(client: popmq.Client, group: str, backlog: int) -> bool:
    """Whether the broker has read ahead nearly all of a backlog, some of which was taken."""
    keys = client.broker.stats(group=group).groups[0].busiest_keys
    return bool(keys) and keys[0].waiting >= 0.9 * backlog


def until_read(client: popmq.Client, group: str, backlog: int) -> None:
    """Waits until the broker has read the backlog ahead."""
    until = time.monotonic() + READ_S
    while not is_read(client, group, backlog):
        assert time.monotonic() < until, f"the broker has not read {backlog} messages ahead"
        time.sleep(0.1)


def waits(broker: Subject, client: popmq.Client, waiting: int, every_s: float) -> None:
    print(f"\n| messages of {OTHERS} others, sent | p50 ms | p99 ms |\n|---|--:|--:|")

    def measure(when: str, topic: str) -> None:
        found = Waits(broker.endpoint, topic, topic, every_s).measure(client)
        assert len(found) == OTHERS, f"{len(found)} of {OTHERS} messages came within a minute"
        print(f"| {when} | {percentile(found, 0.5):.1f} | {percentile(found, 0.99):.1f} |", flush=True)

    for topic, backlog in (("nobody", 0), ("backlog", waiting)):
        client.groups.create(topic, fair_keys=popmq.FairKeys(property="tenant"))
        fill(client, topic, (BUSY for _ in range(backlog)))
        client.ack(client.pop(topic, topic, max_messages=1))  # the group reads the topic from here on
        if not backlog:
            measure("beside no backlog", topic)
            continue
        measure(f"from the first Pop on, {backlog:,} of one tenant waiting", topic)
        print(f"  read ahead by then: {is_read(client, topic, backlog)}")
        until_read(client, topic, backlog)
        measure("once these were read ahead", topic)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.features.fair_keys")
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="messages of the tenant with a backlog")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between two messages of others")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="popmq-fair-") as folder,
        subject(Path(folder)) as broker,
        popmq.Client(broker.endpoint) as client,
    ):
        if options.rounds:
            throughput(broker, client, options.messages, options.rounds)
        if options.waiting:
            waits(broker, client, options.waiting, options.every)


if __name__ == "__main__":
    main()
