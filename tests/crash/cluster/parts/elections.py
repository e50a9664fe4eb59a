"""Masters of broker a that are killed, one after the other, each replaced by its replica."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import NamedTuple

from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.rig import Names, knows, masters, wait_until


class Election(NamedTuple):
    """When a master was killed, and when the name server had its replica in its place: seconds of time.monotonic."""

    killed_s: float
    elected_s: float


def elections(cluster: RocketMQCluster, names: Names, rounds: int) -> Iterator[Election]:
    """So many, each told after eight seconds with the new master; then the old one comes back as its replica."""
    for number in range(rounds):
        master, other = (("a", "a-2"), ("a-2", "a"))[number % 2]
        # What a master was told less than ten seconds ago its replica may not know.
        wait_until(functools.partial(knows, cluster.port(other), names), "the replica has the topics")
        time.sleep(8.0)
        cluster.kill(master)
        killed_s = time.monotonic()
        after = f"127.0.0.1:{cluster.port(other)}"
        wait_until(functools.partial(_is_master, cluster, after), f"{other} is elected")
        elected_s = time.monotonic()
        time.sleep(8.0)
        yield Election(killed_s, elected_s)
        cluster.restart(master)
        time.sleep(12.0)


def _is_master(cluster: RocketMQCluster, address: str) -> bool:
    """Whether the name server has this master of broker a."""
    return masters(cluster.name_server).get("a") == address
