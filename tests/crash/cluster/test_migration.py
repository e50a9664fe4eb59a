"""`popmq migrate` to a cluster, from one, and between two: killed at any moment and started again."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.broker_process import BrokerProcess
from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.rig import Record, wait_until
from tests.crash.conftest import Scale
from tests.crash.migrating import campaign
from tests.crash.migrating.campaign import Ways

#: The part of the messages that a group may get although it had finished them.
REPEATED = 0.01


#: A cluster delivers again within seconds. It does not tell what a group holds, so its groups hold nothing.
THERE, BACK, ACROSS = (
    Ways("-there", wait_s=8.0),
    Ways("-back", held=0, weaker=True, wait_s=8.0),
    Ways("-across", held=0, weaker=True, wait_s=8.0),
)


def migrated(
    source: BrokerProcess,
    target: BrokerProcess,
    ways: Ways,
    scale: Scale,
    record: Record,
    fault: str,
    whole: int = 200_000,
) -> campaign.Verdict:
    """The verdict of a campaign, which is kept. `whole`: the messages of a whole one."""
    messages, kills = scale.pick(short=20_000, whole=whole), scale.pick(short=3, whole=10)
    verdict = campaign.between(source, target, ways, messages=messages, kills=kills, seed=scale.seed)
    missing, repeated = sum(verdict.missing.values()), sum(verdict.repeated.values())
    counts = {"messages": messages, "groups": len(verdict.unfinished), "kills": sum(verdict.kills.values())}
    counts |= {"unfinished": sum(verdict.unfinished.values()), "missing": missing, "repeated": repeated}
    record(fault, "gateways", counts, ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    assert verdict.missing == dict.fromkeys(campaign.PARTS, 0)
    assert verdict.repeated == verdict.told, "the command says how much is repeated"
    assert max(verdict.repeated.values()) <= REPEATED * messages, verdict.repeated
    assert verdict.stored <= messages * (1 + REPEATED)
    assert verdict.kills["in the copy"] > 0, "a campaign that met nothing proves nothing"
    return verdict


@pytest.mark.chaos
def test_a_migration_to_a_cluster_that_is_killed_loses_nothing_and_repeats_little(
    tmp_path: Path, rocketmq: RocketMQCluster, scale: Scale, record: Record
) -> None:
    with (
        GatewayProcess(tmp_path / "gateway.log", rocketmq.name_server) as gateway,
        BrokerProcess(tmp_path / "broker", "--sync", "none") as broker,
    ):
        migrated(broker, gateway, THERE, scale, record, "a migration to a cluster is killed", whole=1_000_000)


@pytest.mark.chaos
def test_a_migration_from_a_cluster_that_is_killed_loses_nothing_and_repeats_little(
    tmp_path: Path, rocketmq: RocketMQCluster, scale: Scale, record: Record
) -> None:
    with (
        GatewayProcess(tmp_path / "gateway.log", rocketmq.name_server) as gateway,
        BrokerProcess(tmp_path / "broker", "--sync", "none") as broker,
    ):
        migrated(gateway, broker, BACK, scale, record, "a migration from a cluster is killed")


@pytest.fixture
def two_gateways(
    tmp_path: Path, jars: Path, rocketmq: RocketMQCluster
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    """One before the cluster of all tests, and one before a second cluster."""
    with (
        RocketMQCluster(tmp_path / "second", jars) as second,
        GatewayProcess(tmp_path / "one.log", rocketmq.name_server) as one,
        GatewayProcess(tmp_path / "other.log", second.name_server) as other,
    ):
        yield one, other


@pytest.mark.chaos
def test_a_migration_between_clusters_that_is_killed_loses_nothing_and_repeats_little(
    two_gateways: tuple[GatewayProcess, GatewayProcess], scale: Scale, record: Record
) -> None:
    migrated(*two_gateways, ACROSS, scale, record, "a migration between clusters is killed")


@pytest.mark.chaos
def test_a_migration_between_clusters_goes_on_after_a_kill_and_ends_with_its_table(
    two_gateways: tuple[GatewayProcess, GatewayProcess],
) -> None:
    one, other = two_gateways
    with popmq.Client(one.endpoint) as source, popmq.Client(other.endpoint) as target:
        source.topics.create("moved")
        source.groups.create("half")
        for first in range(0, 5_000, 100):
            source.send("moved", list(map(str, range(first, first + 100))))
        left = {str(number) for number in range(5_000)}
        while len(left) > 2_500:
            source.ack(popped := source.pop("moved", "half", 100, wait=8.0))
            left -= {each.text() for each in popped}
        words = campaign.command(one, other, "moved", "--accept-weaker")
        words.remove("--json")
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
            wait_until(lambda: stored(target) > 0 or program.poll() is not None, "the first messages are copied")
            program.kill()
        assert program.returncode == -signal.SIGKILL, "it was killed before its end"
        told = subprocess.run(words, capture_output=True, check=True, text=True).stdout.splitlines()
        found = list[str]()
        while popped := target.pop("moved", "half", 100, wait=8.0):
            found += [each.text() for each in popped]
    assert told[-2].split() == ["TOPIC", "GROUP", "COPIED", "UNFINISHED", "FOUND", "REPEATED"]
    assert told[-1].split() == ["moved", "half", "5000", str(len(left)), str(len(left)), "0"]
    assert sorted(found) == sorted(left)


def stored(client: popmq.Client) -> int:
    """How many messages the topic has; 0: it is not there yet."""
    try:
        return client.broker.stats("moved").topics[0].messages
    except popmq.errors.TopicNotFound:
        return 0


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
