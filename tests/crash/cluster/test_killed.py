"""Gateways and brokers that are killed under load: what must hold, and what is only counted.

`make chaos-cluster`; POPMQ_CAMPAIGN=whole for all kills. Two gateways behind a TCP balancer, clients of the SDK.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.rocketmq_cluster import RocketMQCluster
from popmq_remoting.routing.route_memory import SHRINK_S
from tests.crash.cluster.parts.callers import CALL_S
from tests.crash.cluster.parts.judging import p99_s
from tests.crash.cluster.parts.load import Load
from tests.crash.cluster.parts.rig import DRAIN_S, QUEUES, Doors, Record, doors, load, ordered, report, v2
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

#: Queues of broker a, by the layout; b has the others.
OF_A, OF_B = range(QUEUES // 2), range(QUEUES // 2, QUEUES)
#: How long a broker that has just been started registers, and is found again by gateways.
BACK_S = 2.0
#: Of a round in which it was not found again while the round lasted.
NEVER_S = 99.0


def by_v1(open_: Doors) -> Load:
    return load(open_)


def by_v2(open_: Doors) -> Load:
    return Load(v2(open_.endpoint, open_.names.group), open_.names.topic, open_.names.group)


@pytest.mark.parametrize(("begin", "name"), [(by_v1, "popmq.v1"), (by_v2, "apache.rocketmq.v2")], ids=["v1", "v2"])
def test_a_gateway_that_is_killed_harms_nobody(
    rocketmq: RocketMQCluster,
    tmp_path: Path,
    scale: Scale,
    record: Record,
    begin: Callable[[Doors], Load],
    name: str,
) -> None:
    chance, kills = random.Random(scale.seed), scale.pick(short=4, whole=30)
    with doors(tmp_path, rocketmq.name_server) as open_, begin(open_) as loaded:
        for number in range(kills):
            time.sleep(chance.uniform(1.0, 4.0))
            open_.gateways[number % 2].kill()
            time.sleep(chance.uniform(0.0, 1.0))
            open_.gateways[number % 2].start()
        loaded.finish(DRAIN_S)
    verdict = report(loaded, record, f"a gateway is killed, {name}", more={"kills": kills})
    assert (verdict.after_ack, verdict.overlaps, verdict.backwards) == ([], [], [])
    assert verdict.refused_acks == []
    assert max(verdict.silent_s.values()) < 2.0


def test_a_rolling_restart_of_gateways_is_not_seen(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds = scale.pick(short=2, whole=10)
    with doors(tmp_path, rocketmq.name_server) as open_, load(open_, tries=0) as loaded:
        for _ in range(rounds):
            for gateway in open_.gateways:
                time.sleep(2.0)
                gateway.stop()
                gateway.start()
        loaded.finish(DRAIN_S)
    verdict = report(loaded, record, "gateways are restarted, one after the other", more={"restarts": 2 * rounds})
    assert (verdict.after_ack, verdict.overlaps, verdict.backwards, verdict.refused_acks) == ([], [], [], [])
    assert loaded.histories.failed == [], "every call was OK"


def test_a_master_that_is_killed_loses_no_ok(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    rounds, back, away = scale.pick(short=1, whole=3), list[float](), list[float]()
    calm, dead = list[float](), list[float]()
    with (
        doors(tmp_path, rocketmq.name_server) as open_,
        load(open_) as loaded,
        ordered(open_) as in_order,
    ):
        for _ in range(rounds):
            began_s = time.monotonic()
            time.sleep(8.0)
            killed_s = time.monotonic()
            rocketmq.kill("a")
            time.sleep(3.0)
            rocketmq.restart("a")
            listens_s = time.monotonic()
            calm.append(p99_s(loaded.histories.answers["send"], OF_B, (began_s + 2.0, killed_s)))
            dead.append(p99_s(loaded.histories.answers["send"], OF_B, (killed_s, listens_s)))
            time.sleep(12.0)
            sends = loaded.histories.answers["send"]
            late = [each.at_s - listens_s for each in sends if each.queue in OF_A and each.at_s > listens_s]
            back.append(min(late, default=NEVER_S))
            away.append(listens_s - killed_s)
            time.sleep(SHRINK_S)  # each round meets routes that know the broker
        in_order.finish(DRAIN_S)
        loaded.finish(DRAIN_S)
    # One that is away for longer is left out of the routes until it has registered, which takes it ten seconds.
    soon = [found for found, gone in zip(back, away, strict=True) if gone < SHRINK_S]
    more: dict[str, float] = {
        "kills": rounds,
        "longest_away_s": round(max(away)),
        "rounds_too_long": rounds - len(soon),
    }
    more |= {"back_after_s": round(max(soon), 2)} if soon else {}
    more |= {
        "p99_ms_of_the_other_before": round(max(calm) * 1000),
        "p99_ms_of_the_other_while_away": round(max(dead) * 1000),
    }
    verdict = report(loaded, record, "a master is killed", more=more)
    order = report(in_order, record, "a master is killed, FIFO", more={"kills": rounds})
    assert order.out_of_order == []
    assert max(soon, default=0.0) < BACK_S
    assert verdict.longest_s < CALL_S + 1.0


def test_a_master_that_stands_still_lets_all_calls_end_in_time(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    with doors(tmp_path, rocketmq.name_server) as open_, load(open_) as loaded:
        time.sleep(5.0)
        began_s = time.monotonic()
        rocketmq.pause("a")
        time.sleep(scale.pick(short=15, whole=30))
        answered = len(
            [each for each in loaded.histories.answers["send"] if each.at_s > began_s and each.queue in OF_B]
        )
        rocketmq.resume("a")
        loaded.finish(DRAIN_S)
    verdict = report(loaded, record, "a master stands still", more={"stopped_s": scale.pick(short=15, whole=30)})
    assert verdict.longest_s < CALL_S + 1.0, "each call ended within its deadline"
    assert answered > 100, "the other broker went on"
