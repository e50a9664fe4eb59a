"""Session leases of clients that fall silent, at one of two gateways that know of each other through the brokers."""

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_server import logs
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.popping.sessions import SILENT_S
from popmq_server.contract import commands as do
from tests.cluster.gateway import GROUP, bodies, created, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed

#: A client's silence is noticed, the leases end after 1 s, and the broker looks for ended leases each some seconds.
SOON_S = SILENT_S + 15


class Over:
    """A call whose client waits no longer: what goes on after it must not end with it."""

    def time_remaining(self) -> float:
        return 0.0

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


async def calls(engine: ClusterEngine, client: str = "one") -> None:
    """The client makes a call at this gateway."""
    token = logs.CALL.set(Over())
    await engine.execute(do.RenewSession(client))
    logs.CALL.reset(token)


async def held(engine: ClusterEngine, *texts: bytes) -> do.Popped:
    """A push consumer holds these messages, by a lease of a quarter of an hour."""
    await send(engine, *(pb.Message(message_id=text.decode(), body=text) for text in texts))
    await calls(engine)
    popped = await pop(engine, client_id="one", session=True)
    assert sorted(bodies(popped)) == sorted(texts)
    return popped


@jumping
async def test_what_a_killed_client_held_comes_again_soon_after_its_silence_is_noticed() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await calls(other, "somebody")
        await held(one, b"1", b"2")
        await passed(SILENT_S - 10)
        assert bodies(await pop(other)) == []
        await passed(SOON_S - SILENT_S + 10)
        assert sorted(bodies(await pop(other)) + bodies(await pop(other))) == [b"1", b"2"]


@jumping
async def test_a_client_that_makes_calls_keeps_its_leases() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await held(engine, b"1")
        for _ in range(10):
            await passed(15)
            await calls(engine)
        assert bodies(await pop(engine)) == []


@jumping
async def test_what_a_client_acked_at_another_gateway_where_it_went_on_stays_acked() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        popped = await held(one, b"1", b"2")
        for _ in range(10):
            await calls(other)
            await passed(15)
        acked = await other.execute(do.Ack(GROUP, handles(popped)))
        assert acked.results == [None, None]
        await passed(SOON_S)  # silent at both
        assert bodies(await pop(other)) == []


@jumping
async def test_what_a_client_acked_at_another_gateway_stays_acked_if_it_ended_there_right_after() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await calls(one, "somebody")
        await passed(2)  # so that the client is looked at when it has been silent for longer at both
        popped = await held(one, b"1", b"2")
        await calls(other)
        assert (await other.execute(do.Ack(GROUP, handles(popped)))).results == [None, None]
        await passed(2 * SILENT_S)
        assert bodies(await pop(other)) == []


@jumping
async def test_a_goodbye_gives_back_only_what_no_other_gateway_can_have_acked() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        popped = await held(one, b"acked elsewhere")
        await passed(5)
        await calls(other)
        assert (await other.execute(do.Ack(GROUP, handles(popped)))).results == [None]
        await passed(5)
        await held(one, b"held when it ends")
        await passed(5)
        assert await one.execute(do.ReleaseSession("one")) == 1
        await passed(15)
        assert bodies(await pop(other)) == [b"held when it ends"]


@jumping
async def test_a_goodbye_gives_nothing_back_while_another_gateway_gives_no_answer() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await calls(other, "somebody")
        await held(one, b"1")
        fake.brokers["a"].faults.add(Fault(Kind.SILENT), RequestCode.GET_CONSUMER_RUNNING_INFO, None)
        assert await one.execute(do.ReleaseSession("one")) == 0
        fake.brokers["a"].faults.clear()
        await passed(SOON_S)
        assert bodies(await pop(other)) == []


@jumping
async def test_leases_are_left_alone_while_another_gateway_gives_no_answer() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await calls(other, "somebody")
        await held(one, b"1")
        faults = fake.brokers["a"].faults
        faults.add(Fault(Kind.SILENT), RequestCode.GET_CONSUMER_RUNNING_INFO, None)
        await passed(2 * SILENT_S)
        assert bodies(await pop(other)) == []
        faults.clear()
        await passed(SOON_S)
        assert bodies(await pop(other)) == [b"1"]


@jumping
async def test_a_lease_that_is_over_is_not_given_back_a_second_time() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await held(engine, b"1")
        for _ in range(70):
            await passed(15)
            await calls(engine)
        again = await pop(engine, invisible_ms=3_600_000)
        assert bodies(again) == [b"1"]
        await engine.execute(do.ReleaseSession("one"))
        await passed(SOON_S)
        assert bodies(await pop(engine)) == []
