"""The same faults beside two of RocketMQ's own proxies, for comparison: what they lose or repeat is only counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from harness.rocketmq_proxy import ProxyProcess
from tests.crash.cluster.parts.elections import elections
from tests.crash.cluster.parts.judging import judged
from tests.crash.cluster.parts.load import Load
from tests.crash.cluster.parts.relay import Balancer, CuttingBalancer
from tests.crash.cluster.parts.rig import DRAIN_S, Names, Record, made, v2, wait_until
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

PROXIES = "RocketMQ's proxies"
#: Brokers register each 30 s.
REGISTERED_S = 35.0
#: How long a campaign may take to cut its connections.
CUT_S = 1_200.0


class Doors(NamedTuple):
    """Two proxies behind a balancer, clients of apache.rocketmq.v2, and what a gateway made for them before."""

    proxies: list[ProxyProcess]
    endpoint: str
    loaded: Load
    names: Names


@contextmanager
def proxies(
    folder: Path,
    jars: Path,
    cluster: RocketMQCluster,
    balancer: Callable[[tuple[int, int]], Balancer] = Balancer,
) -> Iterator[Doors]:
    """Two of them under load. `balancer`: what carries their clients' connections."""
    with GatewayProcess(folder / "maker.log", cluster.name_server) as gateway:
        names = made(gateway.endpoint)
    with (
        ProxyProcess(folder / "one", jars, cluster.name_server) as one,
        ProxyProcess(folder / "other", jars, cluster.name_server) as other,
        balancer((one.port, other.port)) as endpoint,
        Load(v2(endpoint, names.group), names.topic, names.group) as loaded,
    ):
        yield Doors([one, other], endpoint, loaded, names)


def ordered(open_: Doors) -> Load:
    """The same with message groups, as `rig.ordered` for gateways: sends are repeated until they are OK."""
    names = open_.names
    caller = v2(open_.endpoint, names.fifo_group, tries=0)
    return Load(caller, names.fifo, names.fifo_group, producers=1, consumers=2, message_groups=8)


def counted(loaded: Load, record: Record, fault: str, more: Mapping[str, float]) -> None:
    """Keeps what the clients saw."""
    loaded.finish(DRAIN_S)
    verdict = judged(loaded.histories)
    told = "".join(f"; {name} {number:,g}" for name, number in more.items())
    record(fault, PROXIES, verdict.counts() | dict(more), verdict.row() + told)
    assert verdict.sent > 100, "a campaign without load compares nothing"


def test_a_proxy_is_killed(jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record) -> None:
    chance, kills = random.Random(scale.seed), scale.pick(short=2, whole=10)
    with proxies(tmp_path, jars, rocketmq) as open_:
        time.sleep(5.0)
        for number in range(kills):
            time.sleep(chance.uniform(1.0, 4.0))
            open_.proxies[number % 2].kill()
            open_.proxies[number % 2].start()
        counted(open_.loaded, record, "a gateway is killed, apache.rocketmq.v2", {"kills": kills})


def test_proxies_are_restarted(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=10)
    with proxies(tmp_path, jars, rocketmq) as open_:
        time.sleep(5.0)
        for _ in range(rounds):
            for proxy in open_.proxies:
                time.sleep(2.0)
                proxy.stop()
                proxy.start()
        counted(open_.loaded, record, "gateways are restarted, one after the other", {"restarts": 2 * rounds})


def test_connections_to_proxies_are_cut(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    cutters, wanted = list[CuttingBalancer](), scale.pick(short=100, whole=1_000)

    def cutting(ports: tuple[int, int]) -> Balancer:
        cutters.append(CuttingBalancer(ports, random.Random(scale.seed)))
        return cutters[0]

    with proxies(tmp_path, jars, rocketmq, cutting) as open_:
        time.sleep(5.0)
        (cutter,) = cutters
        cutter.cutting = True
        wait_until(lambda: cutter.cuts >= wanted, "connections are cut", CUT_S)
        cutter.cutting = False
        time.sleep(5.0)
        counted(open_.loaded, record, "connections are cut between clients and gateways", {"cuts": cutter.cuts})


def test_a_master_behind_proxies_is_killed(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=3)
    with proxies(tmp_path, jars, rocketmq) as open_, ordered(open_) as in_order:
        for _ in range(rounds):
            time.sleep(8.0)
            rocketmq.kill("a")
            time.sleep(3.0)
            rocketmq.restart("a")
            time.sleep(12.0)
        counted(in_order, record, "a master is killed, FIFO", {"kills": rounds})
        counted(open_.loaded, record, "a master is killed", {"kills": rounds})


def test_a_master_behind_proxies_is_replaced_by_its_replica(
    newest: Path, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=1, whole=3)
    with (
        RocketMQCluster(tmp_path / "rocketmq", newest, ("a", "b"), elected=("a",)) as cluster,
        proxies(tmp_path, newest, cluster) as open_,
        ordered(open_) as in_order,
    ):
        assert len(list(elections(cluster, open_.names, rounds))) == rounds
        counted(in_order, record, "a master is killed, its replica is elected, FIFO", {"kills": rounds})
        counted(open_.loaded, record, "a master is killed, its replica is elected", {"kills": rounds})


def test_a_master_behind_proxies_stands_still(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    stopped_s = scale.pick(short=15, whole=30)
    with proxies(tmp_path, jars, rocketmq) as open_:
        time.sleep(15.0)
        rocketmq.pause("a")
        time.sleep(stopped_s)
        rocketmq.resume("a")
        counted(open_.loaded, record, "a master stands still", {"stopped s": stopped_s})


def test_proxies_are_without_a_name_server_and_then_beside_one_that_has_forgotten_everything(
    jars: Path, rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    away_s = scale.pick(short=25, whole=600)
    with proxies(tmp_path, jars, rocketmq) as open_:
        time.sleep(5.0)
        rocketmq.kill("namesrv")
        time.sleep(away_s)
        rocketmq.forget_layouts()
        rocketmq.restart("namesrv")
        time.sleep(REGISTERED_S)
        counted(open_.loaded, record, "the name server is away, then empty", {"away s": away_s})
