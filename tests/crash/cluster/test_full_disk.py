"""The disk of one broker is full: its sends say so, the other broker's go on, and what was delivered is acked."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.rocketmq_cluster import RocketMQCluster
from popmq_verify.full import small_disk
from tests.crash.cluster.parts.rig import QUEUES, Record, doors, wait_until

pytestmark = pytest.mark.chaos

#: A broker whose disk is used more than 90 % stores nothing. What is left keeps its files mapped.
FULL = 0.95
OF_B = range(QUEUES // 2, QUEUES)
HALVES = 16
LEASE_S = 120.0
#: Brokers look at their disk each 10 s, from a minute after their start on.
NOTICED_S = 100.0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A small file system. Skips the test where it cannot be mounted."""
    folder = tmp_path / "small"
    with small_disk(folder) as why:
        if why:
            pytest.skip(why)
        yield folder


def test_a_full_disk_is_told_and_harms_neither_the_other_broker_nor_acks(
    small: Path, jars: Path, tmp_path: Path, record: Record
) -> None:
    groups = [f"g{number}" for number in range(HALVES)]
    with (
        RocketMQCluster(tmp_path / "rocketmq", jars, ("a", "b"), stores={"a": small}) as cluster,
        doors(tmp_path, cluster.name_server) as open_,
        popmq.Client(open_.endpoint, retry=popmq.Retry(tries=1)) as client,
    ):
        topic, group, fifo = open_.names.topic, open_.names.group, open_.names.fifo
        placed = {each: client.send(fifo, popmq.Message("x", message_group=each)).queue for each in groups}
        of_a = [each for each, queue in placed.items() if queue not in OF_B]
        sent = {client.send(topic, str(number)).message_id for number in range(64)}
        held = list[popmq.Delivery]()
        while len(held) < len(sent):
            held += client.pop(topic, group, wait=5.0, invisible=LEASE_S)

        ballast = small / "ballast"
        disk = shutil.disk_usage(small)
        ballast.write_bytes(bytes(int(disk.total * FULL) - disk.used))
        refusals = list[popmq.PopMQError]()

        def refused() -> bool:
            try:
                client.send(fifo, popmq.Message("y", message_group=of_a[0]))
            except popmq.PopMQError as error:
                refusals.append(error)
            return bool(refusals)

        wait_until(refused, "the broker notices that its disk is full", NOTICED_S)
        for each in of_a:
            with pytest.raises(popmq.PopMQError) as caught:
                client.send(fifo, popmq.Message("z", message_group=each))
            refusals.append(caught.value)
        assert {type(each) for each in refusals} == {popmq.errors.StorageFull}
        elsewhere = [client.send(topic, f"later {number}").queue for number in range(64)]
        assert {queue in OF_B for queue in elsewhere} == {True}
        client.ack(held)

        ballast.unlink()

        def stored() -> bool:
            with contextlib.suppress(popmq.errors.StorageFull):
                return client.send(fifo, popmq.Message("y", message_group=of_a[0])).queue >= 0
            return False

        wait_until(stored, "the broker notices that its disk has room")
        again = came_again(client, topic, group, sent)
    counts = {"refused": len(refusals), "elsewhere": len(elsewhere), "acked": len(held), "came_again": again}
    told = f"{len(refusals)} FIFO sends STORAGE_FULL, {len(elsewhere)} other sends OK at the other broker"
    record("the disk of a broker is full", "gateways", counts, f"{told}; {len(held)} acks OK, {again} came again")


def came_again(client: popmq.Client, topic: str, group: str, acked: set[str]) -> int:
    """How many of these messages are delivered although they were acked, by the time that leases are over."""
    found, until_s = set[str](), time.monotonic() + LEASE_S
    while time.monotonic() < until_s:
        for each in client.pop(topic, group, wait=2.0, invisible=LEASE_S):
            found.add(each.message_id)
    return len(found & acked)
