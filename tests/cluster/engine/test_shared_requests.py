"""Calls of one turn of the event loop share a request to a broker, and none of them notices another."""

import asyncio

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server import logs
from popmq_server.cluster.collecting import packed
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, bodies, created, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed


class Hasty:
    """A call whose client gives up after 1.2 s."""

    def time_remaining(self) -> float:
        return 1.2


def messages(count: int) -> list[pb.Message]:
    return [pb.Message(message_id=f"id-{number}", body=b"%d" % number) for number in range(count)]


async def singly(engine: ClusterEngine, count: int) -> list[do.Popped]:
    """What so many callers get who want one message each."""
    return await asyncio.gather(*(pop(engine, max_messages=1) for _ in range(count)))


async def acked(engine: ClusterEngine, popped: do.Popped) -> list[Refused | None]:
    return list((await engine.execute(do.Ack(GROUP, handles(popped)))).results)


@jumping
async def test_callers_of_one_turn_that_want_a_message_each_share_requests_of_32_and_get_one_each() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(64))
        popped = await singly(engine, 64)
        assert fake.brokers["a"].counts[RequestCode.POP_MESSAGE] == 2
        assert sorted(int(body) for each in popped for body in bodies(each)) == list(range(64))
        assert {len(each.rows) for each in popped} == {1}
        results = await asyncio.gather(*(acked(engine, each) for each in popped))
        assert results == [[None]] * 64
        assert fake.brokers["a"].counts[RequestCode.BATCH_ACK_MESSAGE] == 1
        assert not fake.brokers["a"].pops.leases


@jumping
async def test_callers_with_leases_of_other_lengths_share_nothing() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(2))
        await asyncio.gather(*(pop(engine, max_messages=1, invisible_ms=ms) for ms in (10_000, 20_000)))
        assert sorted(lease.invisible_ms for lease in fake.brokers["a"].pops.leases.values()) == [10_000, 20_000]


@jumping
async def test_pops_of_message_groups_share_nothing_since_a_locked_queue_belongs_to_one_consumer() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        await engine.execute(do.CreateTopic("shop.orders", 1, False, None, "FIFO"))
        await engine.execute(do.CreateGroup(GROUP, 5, (1_000,), 45_000, 0, "EARLIEST", 0, False))
        for each in messages(4):
            each.message_group = "g"
            await send(engine, each)
        before = fake.brokers["a"].counts[RequestCode.POP_MESSAGE]
        popped = await singly(engine, 2)
        assert fake.brokers["a"].counts[RequestCode.POP_MESSAGE] == before + 2
        assert sorted(len(each.rows) for each in popped) == [0, 1]


@jumping
async def test_a_caller_whose_deadline_comes_first_gives_its_message_back_and_its_neighbour_gets_one() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(2))
        fake.brokers["a"].faults.add(Fault(Kind.SLOW, seconds=3.0), RequestCode.POP_MESSAGE)

        async def hasty() -> None:
            logs.CALL.set(Hasty())
            with pytest.raises(Refused, match="no answer before the deadline"):
                await pop(engine, max_messages=1)

        _, patient = await asyncio.gather(hasty(), pop(engine, max_messages=1))
        assert len(patient.rows) == 1
        await passed(2.0)
        again = await pop(engine)
        assert {*bodies(patient), *bodies(again)} == {b"0", b"1"}


@jumping
async def test_when_a_broker_refuses_the_acks_of_several_calls_each_is_acked_alone() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(3))
        popped = await singly(engine, 3)
        fake.brokers["a"].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.BATCH_ACK_MESSAGE)
        assert await asyncio.gather(*(acked(engine, each) for each in popped)) == [[None]] * 3
        assert fake.brokers["a"].counts[RequestCode.ACK_MESSAGE] == 3


def test_a_share_is_filled_in_order_and_what_is_larger_than_a_request_stands_alone() -> None:
    sizes = [30, 2, 1, 40, 5, 27, 1]
    assert list(packed(range(7), sizes.__getitem__, 32)) == [[0, 1], [2], [3], [4, 5], [6]]
