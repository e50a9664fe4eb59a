"""One call that needs several requests to a broker: some go at once, and what was found is kept when one fails."""

import asyncio

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server.cluster.popping.pops import POPS_MAX
from popmq_server.cluster.pulling.reading import PULLS_AHEAD
from tests.cluster.gateway import created, gateway, handles, pop, send
from tests.cluster.pulling import filled, pull, read
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping


def messages(count: int, size: int = 1) -> list[pb.Message]:
    return [pb.Message(message_id=f"id-{number}", body=b"%d" % number + bytes(size)) for number in range(count)]


def slow(fake: FakeCluster, code: RequestCode) -> None:
    """Each answer takes a second: what takes no longer went at once."""
    fake.brokers["a"].faults.add(Fault(Kind.SLOW, seconds=1.0), code, times=None)


@jumping
async def test_a_large_pop_asks_for_the_first_messages_and_then_for_several_batches_at_once() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(400))
        slow(fake, RequestCode.POP_MESSAGE)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        popped = await pop(engine, max_messages=256)
        assert len(popped.rows) == len(set(handles(popped))) == 256
        assert fake.brokers["a"].counts[RequestCode.POP_MESSAGE] == 8
        assert loop.time() - began_s < 1 + -(-7 // POPS_MAX) + 0.5


@jumping
async def test_a_large_pop_takes_no_more_bytes_than_it_may_beyond_its_first_batch() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(400, size=10_000))
        popped = await pop(engine, max_messages=256, max_bytes=600_000)
        assert 550_000 < sum(len(row[0]) for row in popped.rows) < 620_000
        assert len(fake.brokers["a"].pops.leases) == len(popped.rows)


@jumping
async def test_what_a_pop_found_before_its_broker_failed_is_delivered() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(40))
        loop = asyncio.get_running_loop()

        def fail() -> None:
            fake.brokers["a"].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.POP_MESSAGE, times=None)

        slow(fake, RequestCode.POP_MESSAGE)
        loop.call_later(0.5, fake.brokers["a"].faults.clear)
        loop.call_later(0.5, fail)
        popped = await pop(engine, max_messages=40)
        assert len(popped.rows) == len(fake.brokers["a"].pops.leases) == 32


@jumping
async def test_a_long_read_asks_ahead_and_gives_each_message_once_and_in_order() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"%d" % number for number in range(500)))
        await pull(engine, max_messages=1)  # makes the group of readers
        slow(fake, RequestCode.PULL_MESSAGE)
        before = fake.brokers["a"].counts[RequestCode.PULL_MESSAGE]
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        pulled = await pull(engine, max_messages=320)
        assert read(pulled) == [(b"%d" % number, 0, number) for number in range(320)]
        assert fake.brokers["a"].counts[RequestCode.PULL_MESSAGE] == before + 10
        assert loop.time() - began_s < 1 + -(-9 // PULLS_AHEAD) + 0.5


@jumping
async def test_a_read_asks_for_little_beyond_what_it_may_return() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(bytes(1_000) for _ in range(500)))
        await pull(engine, max_messages=1)  # makes the group of readers
        before = fake.brokers["a"].counts[RequestCode.PULL_MESSAGE]
        pulled = await pull(engine, max_messages=320, max_bytes=70_000)
        assert 60 < len(pulled.rows) < 70
        assert fake.brokers["a"].counts[RequestCode.PULL_MESSAGE] <= before + 3
