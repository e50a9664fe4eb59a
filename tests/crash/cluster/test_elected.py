"""A master is killed whose replica is elected by a controller inside the name server.

On the newest release: replicas of 5.3.2 and 5.3.3 copy no topic that has a type, so their failover loses topics.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.elections import elections
from tests.crash.cluster.parts.load import Load
from tests.crash.cluster.parts.rig import DRAIN_S, QUEUES, Record, doors, load, ordered, report
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
        for killed_s, elected_s in elections(cluster, open_.names, rounds):
            elected.append(elected_s - killed_s)
            sends.append(first_after_s(loaded, "send", killed_s) - (elected_s - killed_s))
            pops.append(first_after_s(loaded, "message", killed_s) - (elected_s - killed_s))
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
