"""Sends, pops, acks and changes of leases through gateways in front of a real RocketMQ."""

from __future__ import annotations

import asyncio

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from tests.cluster.real.calls import SOON_MS, body, created, pop_all, send
from tests.cluster.real.conftest import Rig
from tests.remoting.jumping import until

pytestmark = pytest.mark.interop


def messages(count: int, **more: str) -> list[pb.Message]:
    return [pb.Message(message_id=f"id-{n}", body=b"%d" % n, **more) for n in range(count)]  # type: ignore[arg-type]


async def acked(engine: ClusterEngine, rig: Rig, rows: list[do.PoppedRow]) -> list[str]:
    """The code of each ack."""
    answer = await engine.execute(do.Ack(rig.group, tuple(row[5].decode() for row in rows)))
    return [result.code if result else "OK" for result in answer.results]


async def test_a_hundred_messages_of_many_callers_are_acked_at_another_gateway_and_never_come_again(rig: Rig) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig)
        await asyncio.gather(*(send(one, rig, message) for message in messages(100)))
        rows = await pop_all(one, rig, 100, invisible_ms=20_000, max_messages=100)
        assert sorted(map(body, rows)) == sorted(b"%d" % n for n in range(100))
        assert set(await acked(other, rig, rows)) == {"OK"}
        assert (await one.pop(do.Pop(rig.topic, rig.group), 27_000)).rows == []


async def test_messages_of_a_batch_are_in_one_queue_and_read_in_their_order(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        places = await send(engine, rig, *messages(300))
        queue = places[0].queue  # type: ignore[union-attr]
        assert places == [Place(queue, step) for step in range(300)]
        rows = await pop_all(engine, rig, 300, max_messages=300)
        assert [(row[2], row[3]) for row in rows] == [(queue, step) for step in range(300)]


async def test_a_lease_that_is_over_is_told_and_the_message_comes_again_with_its_attempt(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        await send(engine, rig, *messages(1))
        first = await pop_all(engine, rig, 1, invisible_ms=2_000)
        again = await pop_all(engine, rig, 1)
        assert (again[0][4], body(again[0])) == (2, b"0")
        assert await acked(engine, rig, first) == ["HANDLE_LAPSED"]
        assert await acked(engine, rig, again) == ["OK"]


async def test_a_renewed_delivery_has_another_handle_which_another_gateway_acks(rig: Rig) -> None:
    async with rig.gateway() as engine, rig.gateway() as other:
        await created(engine, rig)
        await send(engine, rig, *messages(1))
        (row,) = await pop_all(engine, rig, 1, invisible_ms=8_000)
        change = do.Change(row[5].decode(), "extend", 60_000)
        (renewed,) = await other.execute(do.ChangeInvisibleTime(rig.group, (change,)))
        assert isinstance(renewed, do.Renewed)
        assert (await engine.pop(do.Pop(rig.topic, rig.group), 15_000)).rows == []
        assert (await engine.execute(do.Ack(rig.group, (renewed.handle,)))).results == [None]


async def test_rejected_and_used_up_messages_are_dead_letters(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig, retries_max=0)
        await send(engine, rig, *messages(2))
        (rejected,) = await pop_all(engine, rig, 1, max_messages=1, invisible_ms=60_000)
        await pop_all(engine, rig, 1, max_messages=1, invisible_ms=2_000)
        change = do.Change(rejected[5].decode(), "reject", reason="no such customer")
        assert await engine.execute(do.ChangeInvisibleTime(rig.group, (change,))) == [do.Changed(0, True)]
        assert (await engine.pop(do.Pop(rig.topic, rig.group), 12_000)).rows == []
        await engine.close()
        assert engine.dead.written == 2


async def test_messages_of_a_group_come_in_their_order_one_batch_at_a_time(rig: Rig) -> None:
    async with rig.gateway() as engine, rig.gateway() as other:
        await created(engine, rig, "FIFO")
        mine = messages(40, message_group="m")
        await send(engine, rig, *mine)
        seen = list[bytes]()
        for gateway in (engine, other, engine, other):
            rows = await pop_all(gateway, rig, 1, max_messages=10)
            assert (await other.pop(do.Pop(rig.topic, rig.group), 0)).rows == []
            seen += map(body, rows)
            assert set(await acked(engine, rig, rows)) == {"OK"}
        assert seen == [message.body for message in mine]


async def test_a_pop_that_waits_is_answered_soon_after_the_send(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        waiting = [asyncio.ensure_future(engine.pop(do.Pop(rig.topic, rig.group), SOON_MS)) for _ in range(20)]
        await until(lambda: engine.pops.waits.parked == 2)
        await send(engine, rig, *messages(5))
        await send(engine, rig, *messages(5))
        loop = asyncio.get_running_loop()
        began_s, rows = loop.time(), 0
        while rows < 10:
            done, _ = await asyncio.wait(
                [each for each in waiting if not each.done()], timeout=10.0, return_when="FIRST_COMPLETED"
            )
            assert done
            rows = sum(len(each.result().rows) for each in waiting if each.done())
        assert loop.time() - began_s < 3.0
        for each in waiting:
            each.cancel()
