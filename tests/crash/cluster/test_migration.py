"""`popmq migrate` from a broker to a cluster, and back: killed at any moment and started again."""

from collections.abc import Callable
from pathlib import Path

import pytest

import popmq
from harness.broker_process import BrokerProcess
from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.conftest import Scale
from tests.crash.migrating import campaign
from tests.crash.migrating.campaign import Ways

#: The part of the messages that a group may get although it had finished them.
REPEATED = 0.01


def check(verdict: campaign.Verdict, messages: int) -> None:
    assert verdict.missing == dict.fromkeys(campaign.PARTS, 0)
    assert max(verdict.repeated.values()) <= REPEATED * messages, verdict.repeated
    assert verdict.stored <= messages * (1 + REPEATED)
    assert verdict.kills["in the copy"] > 0, "a campaign that met nothing proves nothing"


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["to a cluster", "from a cluster"])
def test_a_migration_that_is_killed_loses_nothing_and_repeats_little(
    tmp_path: Path, rocketmq: RocketMQCluster, scale: Scale, show: Callable[[str], None], way: str
) -> None:
    messages = scale.pick(short=20_000, whole=200_000)
    kills = scale.pick(short=3, whole=10)
    with (
        GatewayProcess(tmp_path / "gateway.log", rocketmq.name_server) as gateway,
        BrokerProcess(tmp_path / "broker", "--sync", "none") as broker,
    ):
        if way == "to a cluster":
            ways = Ways("-there", wait_s=8.0)
            verdict = campaign.between(broker, gateway, ways, messages=messages, kills=kills, seed=scale.seed)
        else:  # brokers do not tell what a group holds
            ways = Ways("-back", held=0, weaker=True, wait_s=8.0)
            verdict = campaign.between(gateway, broker, ways, messages=messages, kills=kills, seed=scale.seed)
    show(f"{way}: {verdict.table()}")
    check(verdict, messages)


@pytest.mark.chaos
def test_delayed_messages_move_with_their_time(tmp_path: Path, rocketmq: RocketMQCluster) -> None:
    """Each is recalled on the broker when the cluster has it."""
    with (
        GatewayProcess(tmp_path / "gateway.log", rocketmq.name_server) as gateway,
        BrokerProcess(tmp_path / "broker", "--sync", "none") as broker,
        popmq.Client(broker.endpoint) as source,
        popmq.Client(gateway.endpoint) as target,
    ):
        source.topics.create("later", type="DELAY")
        source.groups.create("reader")
        source.pop("later", "reader")
        source.send("later", [popmq.Message("later", delay=45.0), "now"])
        campaign.migrated(campaign.command(broker, gateway, "later", "--accept-weaker"))
        delivered = [target.pop("later", "reader", 1, wait=60.0)[0].text() for _ in range(2)]
        assert delivered == ["now", "later"]
        assert list(source.messages.list_delayed("later").messages) == []
