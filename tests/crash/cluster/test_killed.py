"""Gateways and brokers that are killed under load: what must hold, and what is only counted.

`make chaos-cluster`; POPMQ_CAMPAIGN=whole for all kills. Two gateways behind a TCP balancer, clients of the SDK.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import popmq
from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.balancer import Balancer
from tests.crash.cluster.load import Judged, Load, judged
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

TOPIC, GROUP = "shop.orders", "shop.bill"
#: Leases that nobody acks end after 20 s, and come back within 6 s; a broker registers 10 s after it listens.
DRAIN_S = 90.0


@pytest.fixture
def rocketmq(jars: Path, tmp_path: Path) -> Iterator[RocketMQCluster]:
    with RocketMQCluster(tmp_path / "rocketmq", jars, ("a", "b")) as cluster:
        yield cluster


@contextmanager
def doors(folder: Path, cluster: RocketMQCluster) -> Iterator[tuple[list[GatewayProcess], str]]:
    """Two gateways with one secret, and the balancer before them."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("a secret that both gateways share\n")
    flags = ("--handle-secret", str(secret))
    with (
        GatewayProcess(folder / "one.log", cluster.name_server, *flags) as one,
        GatewayProcess(folder / "other.log", cluster.name_server, *flags) as other,
        Balancer((one.port, other.port)) as endpoint,
    ):
        with popmq.Client(endpoint) as client:
            client.topics.create(TOPIC)
            client.groups.create(GROUP, max_attempts=100)
        yield [one, other], endpoint


def report(load: Load, show: Callable[[str], None], what: str) -> Judged:
    verdict = judged(load.histories)
    show(f"{what}: {verdict.row()}")
    assert verdict.sent > 100, "a campaign without load proves nothing"
    assert verdict.lost == []
    return verdict


def test_a_gateway_that_is_killed_harms_nobody(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    chance, kills = random.Random(scale.seed), scale.pick(short=4, whole=30)
    with doors(tmp_path, rocketmq) as (gateways, endpoint), Load(endpoint, TOPIC, GROUP) as load:
        for number in range(kills):
            time.sleep(chance.uniform(1.0, 4.0))
            gateways[number % 2].kill()
            time.sleep(chance.uniform(0.0, 1.0))
            gateways[number % 2].start()
        load.finish(DRAIN_S)
    verdict = report(load, show, f"gateways killed {kills} times, seed {scale.seed}")
    assert (verdict.after_ack, verdict.overlaps, verdict.backwards) == ([], [], [])
    assert verdict.refused_acks == []
    assert max(verdict.silent_s.values()) < 2.0


def test_a_rolling_restart_of_gateways_is_not_seen(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    rounds = scale.pick(short=2, whole=10)
    with doors(tmp_path, rocketmq) as (gateways, endpoint), Load(endpoint, TOPIC, GROUP, retry=popmq.Retry()) as load:
        for _ in range(rounds):
            for gateway in gateways:
                time.sleep(2.0)
                gateway.stop()
                gateway.start()
        load.finish(DRAIN_S)
    verdict = report(load, show, f"gateways restarted {2 * rounds} times")
    assert (verdict.after_ack, verdict.overlaps, verdict.backwards, verdict.refused_acks) == ([], [], [], [])
    assert load.histories.unknown == set(), "every send was OK"


def test_a_master_that_is_killed_loses_no_ok(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    rounds = scale.pick(short=1, whole=3)
    with doors(tmp_path, rocketmq) as (_, endpoint), Load(endpoint, TOPIC, GROUP) as load:
        for _ in range(rounds):
            time.sleep(8.0)
            rocketmq.kill("a")
            time.sleep(3.0)
            rocketmq.restart("a")
            time.sleep(8.0)
        load.finish(DRAIN_S)
    report(load, show, f"a master killed {rounds} times; acks that came again are counted")


def test_a_master_that_stands_still_lets_all_calls_end_in_time(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    with doors(tmp_path, rocketmq) as (_, endpoint), Load(endpoint, TOPIC, GROUP) as load:
        time.sleep(5.0)
        rocketmq.pause("a")
        time.sleep(30.0)
        rocketmq.resume("a")
        load.finish(DRAIN_S)
    report(load, show, "a master stands still for 30 s")
