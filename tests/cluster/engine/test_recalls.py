"""Recalls through a gateway."""

from unittest.mock import patch

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.messages import recall
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.errors import Refused
from tests.cluster.gateway import TOPIC, bodies, created, gateway, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed


async def delayed(engine: ClusterEngine, number: int) -> str:
    """The recall handle of a message that is due in a minute."""
    (place,) = await send(engine, pb.Message(message_id=f"id-{number}", body=b"%d" % number, delay_ms=60_000))
    assert isinstance(place, Place)
    return place.recall_handle


async def refused(engine: ClusterEngine, handle: str, topic: str = TOPIC) -> str:
    with pytest.raises(Refused) as caught:
        await engine.execute(do.Recall(topic, handle))
    return caught.value.code


@jumping
async def test_a_message_that_is_recalled_at_any_gateway_is_never_delivered() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake, **{"message.type": "DELAY"})
        handle = await delayed(one, 1)
        await delayed(one, 2)
        assert await other.execute(do.Recall(TOPIC, handle)) == "id-1"
        await passed(61.0)
        assert bodies(await pop(one)) == [b"2"]


@jumping
async def test_a_recall_that_is_late_damaged_or_of_another_topic_is_refused() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "DELAY"})
        fake.create("other")
        handle = await delayed(engine, 1)
        assert await refused(engine, handle[4:]) == "INVALID_FIELD"
        assert await refused(engine, handle, "other") == "INVALID_FIELD"
        assert await refused(engine, handle, "nothing") == "TOPIC_NOT_FOUND"
        await passed(61.0)
        assert await refused(engine, handle) == "MESSAGE_NOT_FOUND"


@jumping
async def test_a_broker_that_recalls_nothing_is_named_with_its_setting() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "DELAY"})
        handle = await delayed(engine, 1)
        fake.brokers["a"].timers.enabled = False
        with pytest.raises(Refused, match="a answered 16") as caught:
            await engine.execute(do.Recall(TOPIC, handle))
        assert (caught.value.code, "recallMessageEnable=true" in caught.value.action) == ("UNSUPPORTED", True)


@jumping
async def test_a_recall_handle_that_names_a_broker_nobody_knows_calls_none() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "DELAY"})
        made_up = recall.read(await delayed(engine, 1))._replace(broker="nobody").text()
        with patch.object(engine.shared.brokers.cluster, "call") as call:
            assert await refused(engine, made_up) == "UNAVAILABLE"
        assert not call.called
