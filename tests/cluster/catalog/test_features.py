"""What brokers can do: by their versions and settings, as a gateway's clients see it."""

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server.cluster.features import version_of
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.contract.limited import limited
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, created, gateway, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import answering
from tests.remoting.jumping import jumping, passed


def test_versions_are_read_as_brokers_write_them_and_an_unknown_one_is_new() -> None:
    assert version_of("V5_3_3") == (5, 3, 3)
    assert version_of("V5_1_2_SNAPSHOT") == (5, 1, 2)
    assert version_of("V5_1_2") < (5, 1, 3) <= version_of("V5_1_3") < (5, 3, 2) < version_of("V5_4_0")
    assert version_of("HIGHER_VERSION") > (6, 0)


@jumping
async def test_an_older_broker_is_named_with_its_version_and_the_others_serve() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].version = "V5_1_2"
        for number in range(4):
            (place,) = await send(engine, pb.Message(message_id=str(number), body=b"x"))
            assert isinstance(place, Place)
            assert place.queue in (2, 3)
        with pytest.raises(Refused) as old:
            await engine.execute(do.CreateTopic("other", 4, False, None))
        assert old.value.code == "UNAVAILABLE"
        assert "broker a" in old.value.message
        assert "V5_1_2, and gateways need 5.1.3" in old.value.message
        assert old.value.action == "the operator upgrades broker a"
        assert fake.brokers["a"].counts.keys() <= {
            *(RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG, RequestCode.HEART_BEAT)
        }


@jumping
async def test_a_broker_that_was_upgraded_serves_after_a_minute() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].version = "V5_1_2"
        with pytest.raises(Refused, match="gateways need"):
            await pop(engine)
        fake.brokers["a"].version = "V5_3_3"
        await passed(61.0)
        with pytest.raises(Refused, match="gateways need"):
            await pop(engine)
        await passed(1.0)
        assert (await pop(engine)).rows == []


@jumping
async def test_the_cluster_lacks_recalls_as_soon_as_one_broker_does() -> None:
    for settings, version, lacks in (
        (("true", "true"), "V5_3_3", False),
        (("true", "false"), "V5_3_3", True),
        (("true", "true"), "V5_3_1", True),
    ):
        async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
            served = limited(engine)
            for broker, recalls in zip(fake.brokers.values(), settings, strict=True):
                broker.settings["recallMessageEnable"] = recalls
            fake.brokers["b"].version = version
            assert "recall" not in engine.info().lacking
            await engine.learn()
            assert ("recall" in engine.info().lacking) == lacks
            with pytest.raises(Refused) as refused:
                await served.execute(do.Recall(TOPIC, "no handle"))
            assert (refused.value.code == "UNSUPPORTED") == lacks


@jumping
async def test_what_is_lacking_is_learnt_when_each_broker_has_answered() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await fake.brokers["b"].stop()
        with pytest.raises(Refused, match="broker b"):
            await engine.learn()
        await fake.brokers["b"].start()
        await passed(5.0)
        await engine.learn()


@jumping
async def test_a_broker_without_filters_by_properties_names_its_setting() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        remark = "The broker does not support consumer to filter message by SQL92"
        fake.brokers["a"].faults.add(answering(ResponseCode.SYSTEM_ERROR, remark), RequestCode.POP_MESSAGE)
        with pytest.raises(Refused) as refused:
            await engine.pop(do.Pop(TOPIC, GROUP, filter=("sql92", "a > 1")), 0)
        assert refused.value.code == "UNSUPPORTED"
        assert "enablePropertyFilter=true at broker a" in refused.value.action


@jumping
async def test_a_priority_topic_needs_brokers_that_know_priorities() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        wanted = do.CreateTopic(TOPIC, 4, False, None, "PRIORITY")
        fake.brokers["a"].version = "V5_4_0"
        with pytest.raises(Refused, match="broker b has version V5_3_3") as refused:
            await engine.execute(wanted)
        assert (refused.value.code, fake.brokers["a"].log.topics) == ("UNSUPPORTED", {})
        fake.brokers["b"].version = "V5_5_0"
        await passed(61.0)
        await engine.shared.brokers.facts()
        await passed(1.0)
        assert not (await engine.execute(wanted)).existed
