"""The brokers of a cluster for a client of a gateway: what each tells, and nothing for what it does not."""

import asyncio

from popmq_remoting.codes import RequestCode
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import ClusterBroker
from tests.cluster.gateway import gateway
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed


@jumping
async def test_each_broker_is_listed_with_what_it_tells() -> None:
    async with FakeCluster(("b", "a"), skew_ms=7_000) as fake, gateway(fake) as engine:
        fake.brokers["a"].replicas = [True, False]
        fake.brokers["b"].disk = "nobody knows"
        found = await engine.ask(queries.Brokers())
        a, b = found.brokers
        assert a.ahead_ms is not None
        assert abs(a.ahead_ms - 7_000) <= 1_000
        expected = ClusterBroker(
            name="a",
            id=0,
            address=fake.brokers["a"].address,
            version="V5_3_3",
            replicas=2,
            in_sync=1,
            ahead_ms=a.ahead_ms,
            disk_bytes=100 << 30,
            disk_free_bytes=75 << 30,
            in_flight=0,
            error="",
        )
        assert a == expected
        assert (b.name, b.replicas, b.disk_bytes, b.disk_free_bytes) == ("b", 0, None, None)
        assert found.routes_age_ms is not None
        assert 0 <= found.routes_age_ms < 1_000


@jumping
async def test_a_silent_broker_is_named_in_three_seconds_and_tells_nothing() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        fake.brokers["b"].faults.add(Fault(Kind.SILENT), times=None)
        began_s = asyncio.get_running_loop().time()
        a, b = (await engine.ask(queries.Brokers())).brokers
        assert (a.error, a.version) == ("", "V5_3_3")
        assert asyncio.get_running_loop().time() - began_s < 3.5
        assert "did not answer before the deadline" in b.error
        told = (b.version, b.replicas, b.in_sync, b.ahead_ms, b.disk_bytes, b.disk_free_bytes)
        assert told == ("", None, None, None, None, None)


@jumping
async def test_many_that_ask_cost_one_question_to_each_broker_in_two_seconds() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        for _ in range(5):
            await engine.ask(queries.Brokers())
        counts = fake.brokers["a"].counts
        assert counts[RequestCode.GET_BROKER_HA_STATUS] == 1
        await passed(2.5)
        await engine.ask(queries.Brokers())
        assert counts[RequestCode.GET_BROKER_HA_STATUS] == 2
