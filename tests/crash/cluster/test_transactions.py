"""Transactions whose every end is sent twice, while gateways are killed: delivered once or never, as they ended."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import popmq
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.callers import CALL_S
from tests.crash.cluster.parts.rig import Doors, Record, doors, resolution
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

PRODUCERS, BATCH = 4, 20
DUPLICATES_MAX = 0.001
#: Checks come 6 s after the half message, then each 3 s; leases of killed gateways end after 30 s.
SETTLED_S, QUIET_S = 180.0, 5.0
TIMEOUTS = popmq.Timeouts.all(CALL_S)


class Producer(threading.Thread):
    """Sends half messages, and ends each of them twice."""

    def __init__(self, open_: Doors, number: int, count: int) -> None:
        super().__init__()
        self._open, self._count, self._prefix = open_, count, f"t{number}"
        self.decided: dict[str, popmq.transaction.Resolution] = {}
        #: Half messages whose send was OK.
        self.begun = set[str]()
        self.ends = Counter[str]()

    def run(self) -> None:
        # A half message is sent once: a repeated send would be a second transaction with the same id.
        once = popmq.Retry(tries=1)
        with (
            popmq.Client(self._open.endpoint, timeouts=TIMEOUTS, retry=once) as sender,
            popmq.Client(self._open.endpoint, timeouts=TIMEOUTS) as client,
        ):
            for first in range(0, self._count, BATCH):
                names = [f"{self._prefix}-{number}" for number in range(first, first + BATCH)]
                self.decided |= {name: resolution(name) for name in names}
                halves = [popmq.Message(name, message_id=name, transaction=True) for name in names]
                for receipt in self._begun(sender, halves):
                    self.begun.add(receipt.message_id)
                    for _ in range(2):
                        self._end(client, receipt)

    def _begun(self, sender: popmq.Client, halves: list[popmq.Message]) -> list[popmq.SendReceipt]:
        try:
            return sender.send(self._open.names.topic, halves)
        except popmq.errors.PartlyRefused as refused:
            return [each for each in refused.results if isinstance(each, popmq.SendReceipt)]
        except popmq.PopMQError:
            return []  # what was stored is ended by a check

    def _end(self, client: popmq.Client, receipt: popmq.SendReceipt) -> None:
        try:
            client.transactions.end(receipt.transaction_id, self.decided[receipt.message_id])
            self.ends["OK"] += 1
        except popmq.PopMQError as error:
            self.ends[type(error).__name__] += 1


class Consumer(threading.Thread):
    """Acks what comes, and notes by body where first attempts were stored."""

    def __init__(self, open_: Doors) -> None:
        super().__init__()
        self._open = open_
        self.places = defaultdict[str, set[tuple[int, int]]](set)
        self.again, self.done = 0, threading.Event()

    def run(self) -> None:
        names = self._open.names
        with popmq.Client(self._open.endpoint, timeouts=TIMEOUTS) as client:
            while not self.done.is_set():
                with contextlib.suppress(popmq.PopMQError):
                    found = client.pop(names.topic, names.group, wait=0.5, invisible=30.0)
                    for each in found:
                        # A later attempt says nothing of where the message was stored.
                        self.places[each.body.decode()] |= {(each.queue, each.offset)} if each.attempt == 1 else set()
                        self.again += each.attempt > 1
                    if found:
                        client.ack(found)


def settled(consumers: list[Consumer], wanted: set[str]) -> dict[str, int]:
    """Waits until all that is wanted has come, and a while for what should not. How often each message was stored."""
    until_s = time.monotonic() + SETTLED_S
    while time.monotonic() < until_s and not wanted <= set().union(*(consumer.places for consumer in consumers)):
        time.sleep(0.5)
    time.sleep(QUIET_S)
    for consumer in consumers:
        consumer.done.set()
        consumer.join()
    names = set().union(*(consumer.places for consumer in consumers))
    return {name: max(1, len(set().union(*(each.places[name] for each in consumers)))) for name in names}


def test_a_transaction_is_delivered_once_or_never_however_often_it_is_ended(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    count, chance, kills = scale.pick(short=800, whole=20_000), random.Random(scale.seed), 0
    checks = Counter[str]()

    def on_check(check: popmq.TransactionCheck) -> popmq.transaction.Resolution:
        checks[check.message.message_id] += 1
        return resolution(check.message.message_id)

    with (
        doors(tmp_path, rocketmq.name_server, type="TRANSACTION") as open_,
        popmq.Client(open_.endpoint) as checker,
    ):
        checker.transactions.on_check(open_.names.topic, on_check)
        producers = [Producer(open_, number, count // PRODUCERS) for number in range(PRODUCERS)]
        consumers = [Consumer(open_) for _ in range(2)]
        for thread in (*consumers, *producers):
            thread.start()
        while any(producer.is_alive() for producer in producers):
            time.sleep(chance.uniform(2.0, 6.0))
            open_.gateways[kills % 2].kill()
            open_.gateways[kills % 2].start()
            kills += 1
        decided = {name: how for producer in producers for name, how in producer.decided.items()}
        ended = sum((producer.ends for producer in producers), Counter[str]())
        committed = {name for name, how in decided.items() if how == "commit"}
        begun = set().union(*(producer.begun for producer in producers)) & committed
        found = settled(consumers, begun)
    counts = {
        "transactions": len(decided),
        "ends": ended.total(),
        "ends_ok": ended["OK"],
        "checks": checks.total(),
        "kills": kills,
        "to_be_delivered": len(begun),
        "delivered": len(found),
        "lost": len(begun - found.keys()),
        "duplicates": sum(number - 1 for number in found.values()),
        "of_rolled_back": len(found.keys() - committed),
        "leases_over": sum(consumer.again for consumer in consumers),
    }
    told = ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items())
    record("gateways are killed while transactions end twice", "gateways", counts, told)
    assert kills > 0
    assert (counts["lost"], counts["of_rolled_back"]) == (0, 0)
    assert counts["duplicates"] <= max(1, DUPLICATES_MAX * len(decided))
