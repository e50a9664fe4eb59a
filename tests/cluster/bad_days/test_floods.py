"""Many at once, or the same answer for ever: a gateway asks its brokers no more for it, and serves the others."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server.cluster.brokers import ITEMS_A_TURN, in_lanes
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, pop, send
from tests.remoting.fake.broker import FakeBroker
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import answering
from tests.remoting.jumping import jumping, passed, until

#: Questions of one broker, topic and group in a second, at most, when it answers at once.
ASKED_PER_S = 5
CLIENTS = 10_000


@pytest.mark.slow
@jumping
async def test_ten_thousand_clients_that_wait_for_one_topic_are_one_parked_request_at_each_broker() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        waiting = [asyncio.ensure_future(pop(engine, 60_000, max_messages=1)) for _ in range(CLIENTS)]
        await until(lambda: engine.parked() == CLIENTS, 0.5)
        await passed(1.0)
        assert [broker.counts[RequestCode.NOTIFICATION] for broker in fake.brokers.values()] == [1, 1]
        await send(engine, *(pb.Message(message_id=f"id-{number}", body=b"%d" % number) for number in range(8)))
        await until(lambda: sum(one.done() for one in waiting) >= 8, 0.05)
        got = [body for one in waiting if one.done() for body in bodies(one.result())]
        assert sorted(got) == sorted(b"%d" % number for number in range(8))
        assert sum(one.done() for one in waiting) == 8
        engine.close_waits()
        await asyncio.gather(*waiting)


@asynccontextmanager
async def for_ever(calls: list[Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Runs these calls beside."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pops(engine: ClusterEngine) -> None:
    while True:
        await pop(engine, 10_000)


async def pulls(engine: ClusterEngine) -> None:
    while True:
        await engine.pull(do.Pull(TOPIC, "", 0, 0), 10_000)


@jumping
async def test_a_broker_whose_waits_end_at_once_for_ever_is_asked_five_times_a_second_however_many_wait() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        broker = fake.brokers["a"]
        broker.faults.add(answering(ResponseCode.POLLING_TIMEOUT), RequestCode.NOTIFICATION, times=None)
        async with for_ever([pops(engine) for _ in range(20)]):
            await passed(1.0)
            before = broker.counts.copy()
            await passed(120.0)
            waits = broker.counts[RequestCode.NOTIFICATION] - before[RequestCode.NOTIFICATION]
            looks = broker.counts[RequestCode.POP_MESSAGE] - before[RequestCode.POP_MESSAGE]
        assert waits <= ASKED_PER_S * 120
        assert looks <= 20 * 120 / 10 + 20, "each client looks once in its ten seconds"


@jumping
async def test_a_broker_that_says_there_are_messages_and_has_none_is_asked_five_times_a_second() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        broker = fake.brokers["a"]
        async with for_ever([pops(engine) for _ in range(20)]):
            await passed(1.0)
            broker.handlers[RequestCode.NOTIFICATION] = lambda client, request: answering(0).answer._replace(
                fields={"hasMsg": "true", "pollingFull": "false"}
            )
            await passed(30.0)
            before = broker.counts.copy()
            await passed(60.0)
        for code in (RequestCode.NOTIFICATION, RequestCode.POP_MESSAGE):
            assert broker.counts[code] - before[code] <= (ASKED_PER_S + 2) * 60, code


@jumping
async def test_a_broker_whose_reads_find_nothing_at_once_for_ever_is_asked_five_times_a_second() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        broker = fake.brokers["a"]
        async with for_ever([pulls(engine)]):
            await passed(1.0)
            broker.faults.add(answering(ResponseCode.PULL_NOT_FOUND), RequestCode.PULL_MESSAGE, times=None)
            await passed(10.0)
            before = broker.counts[RequestCode.PULL_MESSAGE]
            await passed(60.0)
        assert broker.counts[RequestCode.PULL_MESSAGE] - before <= ASKED_PER_S * 60


def busy(broker: FakeBroker) -> None:
    broker.faults.add(answering(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]"), times=None)


@jumping
async def test_a_broker_that_is_busy_for_a_minute_is_asked_with_pauses_and_served_again_afterwards() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, pb.Message(message_id="0", body=b"0"))
        broker = fake.brokers["a"]
        busy(broker)
        loop = asyncio.get_running_loop()
        began_s, before, outcomes = loop.time(), broker.counts.total(), []
        while loop.time() - began_s < 60.0:
            call_s = loop.time()
            outcomes.append(await outcome(engine))
            assert loop.time() - call_s < 10.5
            await passed(1.0)
        assert all(isinstance(one, Place) or (isinstance(one, Refused) and one.code == "BUSY") for one in outcomes)
        assert sum(isinstance(one, Place) for one in outcomes) >= len(outcomes) // 2
        assert broker.counts.total() - before <= 20 * 60
        broker.faults.clear()
        await passed(2.0)
        assert [type(await outcome(engine)) for _ in range(8)] == [Place] * 8


async def outcome(engine: ClusterEngine) -> Place | Refused:
    """What became of a send."""
    try:
        (place,) = await send(engine, pb.Message(message_id="1", body=b"1"))
    except Refused as refused:
        return refused
    return place


@jumping
async def test_a_group_that_waits_for_a_thousand_topics_is_a_request_for_each() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        for number in range(200):
            fake.create(f"t{number}", 1, "shop%bill")
        waiting = [asyncio.ensure_future(engine.pop(do.Pop(f"t{number}", GROUP), 30_000)) for number in range(200)]
        await until(lambda: engine.parked() == 200)
        await passed(2.0)
        assert fake.brokers["a"].counts[RequestCode.NOTIFICATION] == 200
        engine.close_waits()
        assert {len((await one).rows) for one in waiting} == {0}


@jumping
async def test_what_is_answered_from_memory_lets_other_calls_run_after_a_few_items() -> None:
    done, most = 0, 0

    async def one(_: int) -> None:
        nonlocal done
        done += 1

    async def others() -> None:
        nonlocal most
        before = 0
        while True:
            most, before = max(most, done - before), done
            await asyncio.sleep(0)

    async with for_ever([others()]):
        await in_lanes(range(5_000), one)
    assert done == 5_000
    assert most == ITEMS_A_TURN
