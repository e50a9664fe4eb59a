"""Changes of leases that may have been carried out already, over the brokers of tests/remoting/fake."""

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_server.cluster import layout
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed

CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
ONE = pb.Message(message_id="id-1", body=b"1")


async def code(engine: ClusterEngine, change: do.Change, *, repeated: bool) -> str:
    (result,) = await engine.execute(do.ChangeInvisibleTime(GROUP, (change,), repeated))
    return result.code if isinstance(result, Refused) else "OK"


@jumping
async def test_a_change_that_a_dead_gateway_may_have_carried_out_is_not_made_twice() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await send(one, ONE)
        (handle,) = handles(await pop(one, invisible_ms=10_000))
        extend = do.Change(handle, "extend", 20_000)
        assert await code(one, extend, repeated=False) == "OK"
        assert await code(other, extend, repeated=True) == "HANDLE_LAPSED"
        assert fake.brokers["a"].counts[CHANGE] == 1
        for kind in ("release", "reject"):
            assert await code(other, do.Change(handle, kind, 0), repeated=True) == "HANDLE_LAPSED"
        await passed(21.0)
        assert bodies(await pop(other)) == [b"1"], "once, after the lease of the renewal"


@jumping
async def test_a_change_whose_answer_was_lost_on_the_way_from_its_broker_ends_the_delivery() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, ONE)
        (handle,) = handles(await pop(engine, invisible_ms=10_000))
        fake.brokers["a"].faults.add(Fault(Kind.CUT, size=3), CHANGE)
        assert await code(engine, do.Change(handle, "extend", 20_000), repeated=False) == "HANDLE_LAPSED"
        await passed(21.0)
        assert bodies(await pop(engine)) == [b"1"]


@jumping
async def test_a_broker_that_surely_changed_nothing_may_be_asked_again_with_the_same_handle() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, ONE)
        (handle,) = handles(await pop(engine, invisible_ms=60_000))
        await fake.brokers["a"].stop()
        assert await code(engine, do.Change(handle, "extend", 20_000), repeated=False) == "UNAVAILABLE"


@jumping
async def test_an_ordered_delivery_keeps_its_handle_so_its_change_is_repeated() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "FIFO"})
        topic = await engine.shared.topics.get(TOPIC)
        await engine.shared.layouts.write(topic, layout.of_route({"a": 2}))
        await send(engine, pb.Message(message_id="id-1", body=b"1", message_group="g"))
        (handle,) = handles(await pop(engine, invisible_ms=10_000))
        assert await code(engine, do.Change(handle, "extend", 20_000), repeated=True) == "OK"
