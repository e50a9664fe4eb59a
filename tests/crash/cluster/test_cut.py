"""Connections that are cut after any number of bytes: each call ends, typed, and no answer is that of another call."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import popmq
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.callers import CALL_S
from tests.crash.cluster.parts.relay import CuttingBalancer
from tests.crash.cluster.parts.rig import DRAIN_S, Doors, Record, doors, load, report, wait_until
from tests.crash.cluster.parts.taps import Taps, cutting
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

ASKERS = 4


class Asker(threading.Thread):
    """Asks for one known message after the other, by its id and by its place, and compares what comes."""

    def __init__(self, open_: Doors, seed: int, known: list[popmq.SendReceipt]) -> None:
        super().__init__()
        self._open, self._chance, self._known = open_, random.Random(seed), known
        self.done = threading.Event()
        self.wrong, self.answers, self.errors = list[str](), 0, Counter[str]()
        self.longest_s = 0.0

    def run(self) -> None:
        with popmq.Client(
            self._open.endpoint, timeouts=popmq.Timeouts.all(CALL_S), retry=popmq.Retry(tries=1)
        ) as client:
            while not self.done.is_set():
                wanted, began_s = self._chance.choice(self._known), time.monotonic()
                try:
                    found = self._asked(client, wanted)
                except popmq.PopMQError as error:
                    self.errors[type(error).__name__] += 1
                else:
                    self.answers += 1
                    if found != wanted.message_id:
                        self.wrong.append(f"{found} for {wanted.message_id}")
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    def _asked(self, client: popmq.Client, wanted: popmq.SendReceipt) -> str:
        topic = self._open.names.topic
        if self._chance.random() < 0.5:
            page = client.messages.browse(topic, queue=wanted.queue, offset=wanted.offset, max_messages=1)
            return page.deliveries[0].body.decode()
        found = client.messages.look_up(topic, message_id=wanted.message_id)
        return found.deliveries[0].body.decode()


def cut(scale: Scale, record: Record, open_: Doors, cutters: list[CuttingBalancer], cuts: int, where: str) -> None:
    """A load and askers until so many connections have been cut."""
    with popmq.Client(open_.gateways[0].endpoint) as client:
        names = [f"known-{number}" for number in range(64)]
        known = [client.send(open_.names.topic, popmq.Message(name, message_id=name)) for name in names]
        # What a thread imports first, pytest rewrites there, and Python 3.11 does not always survive that.
        assert client.messages.look_up(open_.names.topic, message_id="known-0").deliveries
        assert client.messages.browse(open_.names.topic, max_messages=1).deliveries
    askers = [Asker(open_, scale.seed + number, known) for number in range(ASKERS)]
    with load(open_) as loaded:
        for cutter in cutters:
            cutter.cutting = True
        for asker in askers:
            asker.start()
        until_s = time.monotonic() + 1_200.0
        while sum(cutter.cuts for cutter in cutters) < cuts and time.monotonic() < until_s:
            time.sleep(0.1)
        for cutter in cutters:
            cutter.cutting = False
        for asker in askers:
            asker.done.set()
            asker.join()
        wait_until(lambda: len(loaded.histories.sent) > 200, "the load goes on after the cuts")
        loaded.finish(DRAIN_S)
    errors = sum((asker.errors for asker in askers), Counter[str]())
    more = {
        "cuts": sum(cutter.cuts for cutter in cutters),
        "reads": sum(asker.answers for asker in askers),
        "wrong_answers": sum(len(asker.wrong) for asker in askers),
        "failed_reads": errors.total(),
    }
    verdict = report(loaded, record, f"connections are cut between {where}", more=more)
    assert more["cuts"] >= cuts
    assert [each for asker in askers for each in asker.wrong] == []
    assert errors.keys() <= {"Unavailable", "DeadlineExceeded"}, "each call that fails says so in its own words"
    assert max(verdict.longest_s, *(asker.longest_s for asker in askers)) < CALL_S + 1.0
    assert (verdict.after_ack, verdict.overlaps) == ([], [])


def test_cut_connections_between_gateways_and_brokers_mix_no_answers(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    taps = Taps(rocketmq, cutting(random.Random(scale.seed)))
    cutters = [tap for tap in taps.brokers.values() if isinstance(tap, CuttingBalancer)]
    with taps, doors(tmp_path, taps.name_server) as open_:
        cut(scale, record, open_, cutters, scale.pick(short=40, whole=400), "gateways and brokers")


def test_cut_connections_between_clients_and_gateways_mix_no_answers(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    with doors(tmp_path, rocketmq.name_server) as open_:
        cutter = CuttingBalancer([gateway.port for gateway in open_.gateways], random.Random(scale.seed))
        with cutter as endpoint:
            cut(
                scale,
                record,
                open_._replace(endpoint=endpoint),
                [cutter],
                scale.pick(100, 1_000),
                "clients and gateways",
            )
