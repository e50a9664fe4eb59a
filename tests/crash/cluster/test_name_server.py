"""The name server is killed, stands still, and comes back with nothing: known topics go on, and no order changes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import popmq
from harness.rocketmq_cluster import RocketMQCluster
from popmq_cli.broker.cluster import cluster
from tests.crash.cluster.parts.rig import DRAIN_S, Record, doors, load, masters, ordered, report, wait_until
from tests.crash.conftest import Scale

pytestmark = pytest.mark.chaos

#: Brokers register each 30 s; a route that misses one is not believed for as long.
REGISTERED_S = 35.0


def test_known_topics_go_on_without_a_name_server_and_beside_one_that_has_forgotten_everything(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    away_s = scale.pick(short=25, whole=600)
    with (
        doors(tmp_path, rocketmq.name_server) as open_,
        load(open_) as loaded,
        ordered(open_) as in_order,
    ):
        time.sleep(5.0)
        rocketmq.pause("namesrv")
        time.sleep(10.0)
        rocketmq.kill("namesrv")
        time.sleep(away_s)
        rocketmq.forget_layouts()
        rocketmq.restart("namesrv")
        time.sleep(REGISTERED_S)
        in_order.finish(DRAIN_S)
        loaded.finish(DRAIN_S)
    more = {"stopped_s": 10, "away_s": away_s, "empty_s": REGISTERED_S}
    verdict = report(loaded, record, "the name server is away, then empty", more=more)
    order = report(in_order, record, "the name server is away, then empty, FIFO", more=more)
    assert loaded.histories.failed == in_order.histories.failed == [], "no call failed"
    assert (verdict.after_ack, verdict.overlaps, verdict.backwards) == ([], [], [])
    assert (order.after_ack, order.overlaps, order.out_of_order) == ([], [], [])


def test_without_its_layout_a_fifo_topic_is_unavailable_until_the_operator_writes_it_and_no_queue_changes_its_number(
    rocketmq: RocketMQCluster, tmp_path: Path, record: Record
) -> None:
    with doors(tmp_path, rocketmq.name_server) as open_:
        topic, fifo = open_.names.topic, open_.names.fifo
        groups = [f"g{number}" for number in range(16)]
        with popmq.Client(open_.endpoint) as client:
            before = {group: client.send(fifo, popmq.Message("1", message_group=group)).queue for group in groups}
            plain = {client.send(topic, str(number)).queue for number in range(64)}
        for gateway in open_.gateways:
            gateway.kill()
        rocketmq.kill("namesrv")
        rocketmq.forget_layouts()
        rocketmq.restart("namesrv")
        wait_until(lambda: masters(rocketmq.name_server).keys() == {"a", "b"}, "both brokers have registered")
        for gateway in open_.gateways:
            gateway.start()
        refused, other = 0, 0
        with popmq.Client(open_.endpoint, retry=popmq.Retry(tries=1)) as client:
            for group in groups:
                with pytest.raises(popmq.errors.Unavailable, match="layout"):
                    client.send(fifo, popmq.Message("2", message_group=group))
                refused += 1
            words = ["layout", fifo, "--set", "a:4;b:4", "--namesrv", rocketmq.name_server]
            assert CliRunner().invoke(cluster, words).exit_code == 0
            found = dict[str, int]()

            def mended() -> bool:
                with contextlib.suppress(popmq.errors.Unavailable):
                    found.update(
                        {group: client.send(fifo, popmq.Message("3", message_group=group)).queue for group in groups}
                    )
                return bool(found)

            wait_until(mended, "the layout is known again")
            other = sum(found[group] != before[group] for group in groups)
            assert {client.send(topic, str(number)).queue for number in range(64)} == plain
    counts = {"refused": refused, "groups_in_another_queue": other}
    record(
        "layouts are gone",
        "gateways",
        counts,
        f"{refused} FIFO sends UNAVAILABLE until the layout was written; message groups in another queue {other}",
    )
    assert other == 0
