"""The same faults beside two of RocketMQ's own proxies, for comparison: what they lose or repeat is only counted."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from harness.rocketmq_proxy import ProxyProcess
from tests.crash.cluster.parts.elections import elections
from tests.crash.cluster.parts.judging import judged
from tests.crash.cluster.parts.load import Load
from tests.crash.cluster.parts.relay import Balancer
from tests.crash.cluster.parts.rig import DRAIN_S, Names, Record, made, v2
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

PROXIES = "RocketMQ's proxies"
#: Brokers register each 30 s.
REGISTERED_S = 35.0


@contextmanager
def proxies(folder: Path, jars: Path, cluster: RocketMQCluster) -> Iterator[tuple[list[ProxyProcess], Load, Names]]:
    """Two proxies behind a balancer, clients of apache.rocketmq.v2, and what a gateway made for them before."""
    with GatewayProcess(folder / "maker.log", cluster.name_server) as gateway:
        names = made(gateway.endpoint)
    with (
        ProxyProcess(folder / "one", jars, cluster.name_server) as one,
        ProxyProcess(folder / "other", jars, cluster.name_server) as other,
        Balancer((one.port, other.port)) as endpoint,
        Load(v2(endpoint, names.group), names.topic, names.group) as loaded,
    ):
        yield [one, other], loaded, names


def counted(loaded: Load, record: Record, fault: str, kills: int) -> None:
    loaded.finish(DRAIN_S)
    verdict = judged(loaded.histories)
    record(fault, PROXIES, verdict.counts() | {"kills": kills}, f"{verdict.row()}; kills {kills}")
    assert verdict.sent > 100, "a campaign without load compares nothing"


def test_a_proxy_is_killed(jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record) -> None:
    chance, kills = random.Random(scale.seed), scale.pick(short=2, whole=10)
    with proxies(tmp_path, jars, rocketmq) as (doors, loaded, _):
        time.sleep(5.0)
        for number in range(kills):
            time.sleep(chance.uniform(1.0, 4.0))
            doors[number % 2].kill()
            doors[number % 2].start()
        counted(loaded, record, "a gateway is killed, apache.rocketmq.v2", kills)


def test_a_master_behind_proxies_is_killed(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=3)
    with proxies(tmp_path, jars, rocketmq) as (_, loaded, _):
        for _ in range(rounds):
            time.sleep(8.0)
            rocketmq.kill("a")
            time.sleep(3.0)
            rocketmq.restart("a")
            time.sleep(12.0)
        counted(loaded, record, "a master is killed", rounds)


def test_a_master_behind_proxies_is_replaced_by_its_replica(
    newest: Path, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=3)
    with (
        RocketMQCluster(tmp_path / "rocketmq", newest, ("a", "b"), elected=("a",)) as cluster,
        proxies(tmp_path, newest, cluster) as (_, loaded, names),
    ):
        assert len(list(elections(cluster, names, rounds))) == rounds
        counted(loaded, record, "a master is killed, its replica is elected", rounds)


def test_a_master_behind_proxies_stands_still(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    with proxies(tmp_path, jars, rocketmq) as (_, loaded, _):
        time.sleep(15.0)
        rocketmq.pause("a")
        time.sleep(scale.pick(short=15, whole=30))
        rocketmq.resume("a")
        counted(loaded, record, "a master stands still", 0)


def test_proxies_are_without_a_name_server_and_then_beside_one_that_has_forgotten_everything(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    with proxies(tmp_path, jars, rocketmq) as (_, loaded, _):
        time.sleep(5.0)
        rocketmq.kill("namesrv")
        time.sleep(scale.pick(short=25, whole=600))
        rocketmq.forget_layouts()
        rocketmq.restart("namesrv")
        time.sleep(REGISTERED_S)
        counted(loaded, record, "the name server is away, then empty", 0)
