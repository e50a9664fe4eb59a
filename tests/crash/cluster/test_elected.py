"""A master is killed whose replica is elected by a controller inside the name server.

On the newest release: replicas of 5.3.2 and 5.3.3 copy no topic that has a type, so their failover loses topics.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path

import pytest

from bench.peers import install
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.load import Load
from tests.crash.cluster.parts.rig import (
    DRAIN_S,
    QUEUES,
    Record,
    doors,
    knows,
    load,
    masters,
    ordered,
    report,
    wait_until,
)
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

OF_A = range(QUEUES // 2)
BACK_S = 2.0


def first_after_s(loaded: Load, kind: str, moment_s: float) -> float:
    """Seconds from a moment to the first answer of a kind about a queue of broker a."""
    answers = loaded.histories.answers[kind]
    return (
        min((each.at_s for each in answers if each.at_s > moment_s and each.queue in OF_A), default=float("inf"))
        - moment_s
    )


def is_master(cluster: RocketMQCluster, address: str) -> bool:
    """Whether the name server has this master of broker a."""
    return masters(cluster.name_server).get("a") == address


@pytest.fixture
def newest() -> Path:
    """Its jars."""
    try:
        return install.rocketmq(install.ROCKETMQ_NEWEST)
    except install.Missing as error:
        pytest.skip(str(error))


def test_a_killed_master_is_replaced_by_its_replica_and_no_ok_is_lost(
    newest: Path, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds, elected, sends, pops = scale.pick(short=1, whole=3), list[float](), list[float](), list[float]()
    with (
        RocketMQCluster(tmp_path / "rocketmq", newest, ("a", "b"), elected=("a",)) as cluster,
        doors(tmp_path, cluster.name_server) as open_,
        load(open_) as loaded,
        ordered(open_) as in_order,
    ):
        for number in range(rounds):
            other = ("a-2", "a")[number % 2]
            # What a master was told less than ten seconds ago its replica may not know.
            wait_until(functools.partial(knows, cluster.port(other), open_.names), "the replica has the topics")
            time.sleep(8.0)
            master = ("a", "a-2")[number % 2]
            cluster.kill(master)
            killed_s = time.monotonic()
            after = f"127.0.0.1:{cluster.port(other)}"
            elected.append(wait_until(functools.partial(is_master, cluster, after), f"{other} is elected"))
            elected_s = time.monotonic()
            time.sleep(8.0)
            sends.append(first_after_s(loaded, "send", killed_s) - (elected_s - killed_s))
            pops.append(first_after_s(loaded, "message", killed_s) - (elected_s - killed_s))
            cluster.restart(master)
            time.sleep(12.0)
        in_order.finish(DRAIN_S)
        loaded.finish(DRAIN_S)
    more = {
        "kills": rounds,
        "elected_after_s": round(max(elected), 2),
        "sends_back_s": round(max(sends), 2),
        "pops_back_s": round(max(pops), 2),
    }
    report(loaded, record, "a master is killed, its replica is elected", more=more)
    report(in_order, record, "a master is killed, its replica is elected, FIFO", more={"kills": rounds})
    assert max(*sends, *pops) < BACK_S
