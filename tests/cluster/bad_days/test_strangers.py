"""Gateways and brokers that do not know each other's secrets, clocks or topics: refused in words, nothing sent on."""

import asyncio
import logging

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting import Cluster, Credentials
from popmq_remoting.codes import RequestCode
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place, queries
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, handles, pop, send
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed

ONE = pb.Message(message_id="id-1", body=b"one")


@jumping
async def test_a_handle_of_a_gateway_with_another_secret_reaches_no_broker_and_the_log_says_why_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake, b"another secret") as other:
        created(fake)
        await send(one, ONE)
        popped = handles(await pop(one))
        await pop(other)
        before = fake.brokers["a"].counts.copy()
        with caplog.at_level(logging.WARNING, "popmq.cluster"):
            for _ in range(20):
                (refused,) = (await other.execute(do.Ack(GROUP, popped))).results
                assert isinstance(refused, Refused)
                assert refused.code == "INVALID_HANDLE"
                change = do.Change(popped[0], "extend", 60_000)
                (changed,) = await other.execute(do.ChangeInvisibleTime(GROUP, (change,)))
                assert isinstance(changed, Refused)
                assert changed.code == "INVALID_HANDLE"
        assert fake.brokers["a"].counts == before
        said = "handles or transaction ids refused, of a secret that is not here: 1"
        assert [record.getMessage().partition(";")[0] for record in caplog.records] == [said]
        assert (await one.execute(do.Ack(GROUP, popped))).results == [None]


@jumping
async def test_a_user_that_brokers_do_not_know_is_the_operators_to_mend_and_no_client_s_fault() -> None:
    async with FakeCluster(secrets={"gateway": "the secret"}) as fake:
        created(fake)
        cluster = Cluster(fake.settings(Credentials("gateway", "a wrong secret")), now_ms=loop_ms)
        engine = ClusterEngine(cluster, Secrets([b"secret"]), loop_ms)
        try:
            for call in (send(engine, ONE), pop(engine), engine.ask(queries.Topics())):
                with pytest.raises(Refused) as caught:
                    await call
                assert caught.value.code == "UNAVAILABLE"
                assert "--broker-key" in caught.value.action
        finally:
            engine.close_waits()
            await engine.close()
            await cluster.close()


@pytest.mark.parametrize("skew_ms", [60_000, -60_000])
@jumping
async def test_leases_delays_and_transactions_keep_their_times_when_clocks_are_a_minute_apart(skew_ms: int) -> None:
    async with FakeCluster(skew_ms=skew_ms) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, ONE)
        popped = await pop(engine, invisible_ms=30_000)
        assert bodies(popped) == [b"one"]
        await passed(28.0)
        assert bodies(await pop(engine)) == []
        assert (await engine.execute(do.Ack(GROUP, handles(popped)))).results == [None], "its lease goes on"
        await send(engine, pb.Message(message_id="id-2", body=b"two"))
        late = await pop(engine, invisible_ms=30_000)
        await passed(36.0)
        (refused,) = (await engine.execute(do.Ack(GROUP, handles(late)))).results
        assert isinstance(refused, Refused)
        assert refused.code == "HANDLE_LAPSED"
        assert bodies(await pop(engine, 20_000)) == [b"two"]


@jumping
async def test_a_static_topic_is_refused_by_every_call_and_named() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        fake.name_servers[0].static.add("shop%orders")
        calls = {
            "send": send(engine, ONE),
            "pop": pop(engine),
            "pull": engine.pull(do.Pull(TOPIC, "", 0, 0), 0),
            "browse": engine.ask(queries.Browse(TOPIC, 0, 0, 10, 1 << 20)),
        }
        for name, call in calls.items():
            with pytest.raises(Refused) as caught:
                await call
            assert caught.value.code == "UNSUPPORTED", name
            assert "static topic" in caught.value.message, name
        fake.create("plain", group="shop%bill")
        assert isinstance((await send(engine, ONE, topic="plain"))[0], Place)


@jumping
async def test_a_bad_message_among_good_ones_is_refused_alone_at_its_field() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        bad = {
            "messages[1].keys[0]": pb.Message(message_id="b", body=b"b", keys=["two words"]),
            "messages[3].properties": pb.Message(message_id="d", body=b"d", properties={"KEYS": "a"}),
            "messages[5].properties": pb.Message(message_id="f", body=b"f", properties={"a": "x\x01y"}),
            "messages[7].properties": pb.Message(message_id="h", body=b"h", properties={"a": "x" * 33 * 1024}),
        }
        good = [pb.Message(message_id=f"g{number}", body=b"good") for number in range(4)]
        messages = [each for pair in zip(good, bad.values(), strict=True) for each in pair]
        places = await send(engine, *messages)
        assert [isinstance(place, Place) for place in places] == [True, False] * 4
        assert [place.code for place in places if isinstance(place, Refused)] == ["INVALID_FIELD"] * 4
        assert bodies(await pop(engine, max_messages=32)) == [b"good"] * 4
        assert fake.brokers["a"].counts[RequestCode.SEND_BATCH_MESSAGE] == 1
        await asyncio.sleep(0)
