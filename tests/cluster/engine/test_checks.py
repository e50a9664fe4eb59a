"""Checks of half messages: a broker asks a gateway, which asks one of its live producers."""

import asyncio

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.transactions import checks
from popmq_server.contract.commands import EndTransaction, Place
from popmq_server.contract.commands.timing import End
from popmq_server.errors import Refused
from tests.cluster.gateway import TOPIC, bodies, created, gateway, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed, until


async def begun(engine: ClusterEngine, *numbers: int) -> list[str]:
    """Half messages; their transaction ids."""
    halves = [pb.Message(message_id=f"id-{number}", body=b"%d" % number, transaction=True) for number in numbers]
    return [place.transaction_id for place in await send(engine, *halves) if isinstance(place, Place)]


def groups(fake: FakeCluster, broker: str = "a") -> list[str]:
    """The groups of producers that a broker knows."""
    members = fake.brokers[broker].members.values()
    return sorted(each["groupName"] for said in members for each in said["producerDataSet"])


def ask(fake: FakeCluster, broker: str = "a", number: int = 0) -> None:
    """The broker asks about its half message of this number."""
    fake.brokers[broker].check(fake.brokers[broker].halves[number])


def transactional(fake: FakeCluster) -> None:
    created(fake, **{"message.type": "TRANSACTION"})


@jumping
async def test_a_half_message_of_another_gateway_is_asked_about_and_committed_here() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        transactional(fake)
        await begun(one, 1, 2)
        stream = await other.join("client", (TOPIC,))
        await until(lambda: groups(fake) == groups(fake, "b") == ["shop%orders"])
        await passed(100.0)
        for broker in ("a", "b"):
            ask(fake, broker)
            check = await anext(stream)
            assert (check.topic, check.number) == (TOPIC, 1)
            message = pb.Message.FromString(check.data)
            assert (message.message_id, message.transaction) == (f"id-{message.body.decode()}", True)
            (ended,) = await one.execute(EndTransaction((End(check.transaction, True),)))
            assert not isinstance(ended, Refused)
        assert sorted(bodies(await pop(one))) == [b"1", b"2"]


@jumping
async def test_checks_of_a_topic_go_to_its_producers_in_turn_and_only_to_them() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        transactional(fake)
        fake.create("other")
        fake.brokers["a"].log.topics["other"].attributes["message.type"] = "TRANSACTION"
        await begun(engine, 0, 1, 2, 3)
        streams = [await engine.join(f"client-{n}", (TOPIC,)) for n in range(2)]
        stranger = await engine.join("stranger", ("other",))
        await until(lambda: groups(fake) == ["other", "shop%orders"])
        for number in range(4):
            ask(fake, number=number)
        asked = [[(await anext(stream)).data for _ in range(2)] for stream in streams]
        assert len({data for each in asked for data in each}) == 4
        waiting = asyncio.ensure_future(anext(stranger))
        await passed(1.0)
        assert not waiting.done()
        waiting.cancel()


@jumping
async def test_a_gateway_without_a_producer_of_a_topic_is_not_asked_any_more() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        transactional(fake)
        stream, second = await engine.join("client", (TOPIC,)), await engine.join("second", (TOPIC,))
        await until(lambda: groups(fake, "b") == groups(fake) == ["shop%orders"])
        stream.close()
        await passed(30.0)
        assert groups(fake) == ["shop%orders"]
        second.close()
        second.close()
        await until(lambda: groups(fake) == groups(fake, "b") == [])
        assert engine.producers.streams() == []
        await engine.join("third", (TOPIC,))
        await until(lambda: groups(fake) == groups(fake, "b") == ["shop%orders"])


@jumping
async def test_a_broker_that_was_restarted_knows_the_producers_again() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        transactional(fake)
        stream = await engine.join("client", (TOPIC,))
        await until(lambda: groups(fake) == ["shop%orders"])
        await fake.brokers["a"].stop()
        fake.brokers["a"].members.clear()
        await fake.brokers["a"].start()
        await passed(20.0)
        assert groups(fake) == ["shop%orders"]
        await begun(engine, 1)
        ask(fake)
        assert pb.Message.FromString((await anext(stream)).data).body == b"1"


@jumping
async def test_a_slow_producer_holds_a_bounded_number_of_checks_each_message_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "CHECKS_QUEUED_MAX", 10)
    async with FakeCluster() as fake, gateway(fake) as engine:
        transactional(fake)
        await begun(engine, *range(12))
        stream = await engine.join("client", (TOPIC,))
        await until(lambda: groups(fake) == ["shop%orders"])
        for number in (0, 0, *range(12)):
            ask(fake, number=number)
        await passed(1.0)
        assert len({(await anext(stream)).data for _ in range(10)}) == 10
        ask(fake, number=11)
        assert pb.Message.FromString((await anext(stream)).data).message_id == "id-11"


@jumping
async def test_a_stream_is_refused_for_a_topic_without_half_messages_or_of_no_name() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        for name, code in ((TOPIC, "INVALID_FIELD"), ("nothing", "TOPIC_NOT_FOUND")):
            with pytest.raises(Refused) as caught:
                await engine.join("client", (name,))
            assert (caught.value.code, caught.value.field) == (code, "hello.transaction_topics[0]")
        assert engine.producers.streams() == []


@jumping
async def test_streams_end_when_the_gateway_stops() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        transactional(fake)
        stream = await engine.join("client", (TOPIC,))
        engine.close_waits()
        with pytest.raises(Refused, match="stopping"):
            await anext(stream)
        with pytest.raises(Refused, match="stopping"):
            await engine.join("client", (TOPIC,))
