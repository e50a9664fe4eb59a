"""Reads by offset, positions, what is sent back, dead letters and look-ups, in front of a real RocketMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import pause
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place, queries
from popmq_server.errors import Refused
from tests.cluster.pulling import code
from tests.cluster.real.calls import SOON_MS, created, pop_all, send
from tests.cluster.real.conftest import Rig, wall_ms

pytestmark = pytest.mark.interop

MIB = 1 << 20
T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], enough: Callable[[T], bool]) -> T:
    """Asks until the brokers have dispatched what they stored, milliseconds after its OK."""
    found = await ask()
    until_ms = wall_ms() + 10_000
    while not enough(found) and wall_ms() < until_ms:
        await pause(0.02)
        found = await ask()
    assert enough(found), found
    return found


def messages(count: int, size: int = 1, **more: object) -> list[pb.Message]:
    return [
        pb.Message(message_id=f"id-{n:05}", body=b"%05d" % n + bytes(size), **more)  # type: ignore[arg-type]
        for n in range(count)
    ]


def number(row: tuple[bytes, *tuple[object, ...]]) -> int:
    return int(pb.Message.FromString(row[0]).body[:5])


async def pull(
    engine: ClusterEngine, rig: Rig, queue: int, offset: int = 0, wait_ms: int = 0, **more: object
) -> do.Pulled:
    topic = more.pop("topic", rig.topic)
    return await engine.pull(do.Pull(topic, more.pop("group", ""), queue, offset, **more), wait_ms)  # type: ignore[arg-type]


async def offsets(
    engine: ClusterEngine, rig: Rig, group: str = "", since_ms: int | None = None
) -> list[do.OffsetsOfQueue]:
    return await engine.execute(do.QueryOffsets(rig.topic, group, since_ms))


async def pulling(engine: ClusterEngine, rig: Rig) -> None:
    await engine.execute(do.SetConsumeMode(rig.topic, rig.group, "PULL"))


async def placed(engine: ClusterEngine, rig: Rig, *sent: pb.Message) -> list[Place]:
    places = [place for place in await send(engine, rig, *sent) if isinstance(place, Place)]
    assert len(places) == len(sent)
    last = max(place.offset for place in places)
    queue = places[0].queue
    await until(lambda: offsets(engine, rig), lambda rows: rows[queue].max_offset > last)
    return places


async def test_a_queue_is_read_in_whole_in_parts_and_again(rig: Rig) -> None:
    async with rig.gateway() as engine, rig.gateway() as other:
        await created(engine, rig)
        places = await placed(engine, rig, *messages(300, 200))
        queue = places[0].queue
        whole = await pull(engine, rig, queue, max_messages=1000)
        assert [number(row) for row in whole.rows] == list(range(300))
        assert (whole.status, whole.next_offset, whole.min_offset, whole.max_offset) == ("FOUND", 300, 0, 300)
        again = await pull(other, rig, queue, 120, max_messages=1000, end_offset=170)
        assert (again.rows, again.next_offset) == (whole.rows[120:170], 170)
        small = await pull(other, rig, queue, 10, max_bytes=1_000)
        assert 1 <= len(small.rows) < 6


async def test_the_statuses_of_a_real_broker_are_those_of_the_contract(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        (place,) = await placed(engine, rig, *messages(1, tag="red"))
        empty = (place.queue + 1) % 4
        found = [
            (await pull(engine, rig, queue, offset, filter=wanted)).status
            for queue, offset, wanted in (
                (place.queue, 1, None),
                (place.queue, 9, None),
                (place.queue, 0, ("tag", "green")),
                (place.queue, 0, ("sql92", "TAGS = 'green'")),
                (place.queue, 0, ("sql92", "TAGS = 'red'")),
                (empty, 0, None),
                (empty, 4, None),
                (7, 0, None),
            )
        ]
        assert found == [
            *("OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_MESSAGE", "NO_MATCHED_MESSAGE", "FOUND"),
            *("NO_MESSAGE_IN_QUEUE", "NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE"),
        ]


async def test_a_pull_waits_for_the_next_message_and_answers_when_its_time_is_over(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        (place,) = await placed(engine, rig, *messages(1))
        began_ms = wall_ms()
        late = await pull(engine, rig, place.queue, 1, 1_500)
        assert (late.status, late.next_offset) == ("OFFSET_OVERFLOW_ONE", 1)
        assert 1_400 < wall_ms() - began_ms < 4_000
        waiting = asyncio.ensure_future(pull(engine, rig, place.queue, 1, 30_000))
        began_ms = wall_ms()
        while not waiting.done():  # sends go to all queues in turn
            await send(engine, rig, *messages(1))
            await pause(0.2)
        assert len((await waiting).rows) >= 1
        assert wall_ms() - began_ms < 10_000


async def test_positions_are_kept_by_the_brokers_for_any_gateway(rig: Rig) -> None:
    async with rig.gateway() as engine, rig.gateway() as other:
        await created(engine, rig)
        places = await placed(engine, rig, *messages(100))
        queue = places[0].queue
        assert {row.committed for row in await offsets(engine, rig, rig.group)} == {-1}
        assert await code(pull(engine, rig, queue, group=rig.group)) == ("WRONG_CONSUME_MODE", "group")
        await pulling(engine, rig)
        assert await code(engine.pop(do.Pop(rig.topic, rig.group), 0)) == ("WRONG_CONSUME_MODE", "group")
        assert [row.committed for row in await offsets(engine, rig, rig.group)] == [0, 0, 0, 0]
        read = await pull(engine, rig, queue, 40, group=rig.group, commit_offset=40)
        assert (read.acked, number(read.rows[0])) == (40, 40)
        row = (await offsets(other, rig, rig.group))[queue]
        assert (row.min_offset, row.max_offset, row.committed) == (0, 100, 40)
        assert await other.execute(do.UpdateOffsets(rig.topic, rig.group, {queue: 70})) == 30
        assert (await offsets(engine, rig, rig.group))[queue].committed == 70
        assert await code(other.execute(do.UpdateOffsets(rig.topic, rig.group, {queue: 101}))) == (
            *("INVALID_FIELD", f"offsets[{queue}]"),
        )


async def test_offsets_are_found_by_time_and_bytes_are_estimated(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        places = await placed(engine, rig, *messages(50, 1_000))
        await pause(0.05)
        between_ms = wall_ms()
        await pause(0.05)
        queue, later = places[0].queue, places
        while later[0].queue != queue or later is places:
            later = await placed(engine, rig, *messages(50, 3_000))
        row = (await offsets(engine, rig, since_ms=between_ms))[queue]
        assert (row.at_timestamp, row.max_offset) == (50, 100)
        assert 0.7 * 205_000 < row.bytes_behind < 1.3 * 205_000
        row = (await offsets(engine, rig, since_ms=0))[queue]
        assert row.at_timestamp == 0
        row = (await offsets(engine, rig, since_ms=wall_ms() + 60_000))[queue]
        assert row.at_timestamp == 100


async def test_a_reset_moves_a_group_of_either_mode_at_its_next_read(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        places = await placed(engine, rig, *messages(20))
        queue = places[0].queue
        rows = await pop_all(engine, rig, 20, max_messages=32)
        await engine.execute(do.Ack(rig.group, tuple(row[5].decode() for row in rows)))
        moved = await engine.execute(do.ResetOffsets(rig.topic, rig.group, offsets={queue: 15}))
        assert moved[queue] == 15
        assert sorted(number(row) for row in await pop_all(engine, rig, 5)) == [15, 16, 17, 18, 19]
        await pulling(engine, rig)
        moved = await engine.execute(do.ResetOffsets(rig.topic, rig.group, to=("EARLIEST", 0)))
        assert moved == {0: 0, 1: 0, 2: 0, 3: 0}
        assert (await offsets(engine, rig, rig.group))[queue].committed == 0
        read = await pull(engine, rig, queue, 3, group=rig.group, commit_offset=3)
        assert [number(row) for row in read.rows] == list(range(3, 20)), "the broker asks for no other offset"
        assert (await offsets(engine, rig, rig.group))[queue].committed == 3


async def test_what_is_sent_back_comes_again_after_its_delay_with_its_attempts_until_it_is_dead(rig: Rig) -> None:
    async with rig.gateway() as engine, rig.gateway() as other:
        await created(engine, rig, retries_max=1)
        await pulling(engine, rig)
        places = await placed(engine, rig, *messages(3, tag="red"))
        queue, retries = places[0].queue, f"%RETRY%{rig.group}+{rig.topic}"
        asked = (
            do.SentBack(queue, 0, delay_ms=0),
            do.SentBack(queue, 1, delay_ms=3_000),
            do.SentBack(queue, 2, reject=True, reason="no such customer"),
        )
        results = await engine.execute(do.SendBack(rig.topic, rig.group, asked, "worker-1"))
        assert [each.dead_lettered for each in results if isinstance(each, do.Changed)] == [False, False, True]
        first = await pull(other, rig, 0, 0, SOON_MS, topic=retries, group=rig.group)
        assert [(number(row), row[4]) for row in first.rows] == [(0, 2)]
        second = await pull(other, rig, 0, 1, SOON_MS, topic=retries, group=rig.group)
        assert [(number(row), row[4]) for row in second.rows] == [(1, 2)]
        message = pb.Message.FromString(second.rows[0][0])
        assert (message.tag, message.deliver_at_ms, message.message_id) == ("red", 0, "id-00001")
        await other.execute(do.UpdateOffsets(retries, rig.group, {0: 1}))
        (row,) = await engine.execute(do.QueryOffsets(retries, rig.group))
        assert (row.min_offset, row.max_offset, row.committed) == (1, 2, 1)
        (result,) = await engine.execute(do.SendBack(rig.topic, rig.group, (do.SentBack(0, 1, retry=True),)))
        assert isinstance(result, do.Changed)
        assert result.dead_lettered
        dead_letters = [buried.dead_letter for buried in await dead(engine, rig, 2)]
        assert sorted((each.offset, each.attempts, each.reason, each.last_client) for each in dead_letters) == [
            (1, 2, "no attempts left", ""),
            (2, 1, "no such customer", "worker-1"),
        ]


async def dead(engine: ClusterEngine, rig: Rig, count: int) -> list[pb.Message]:
    """The dead letters of the group, of all brokers."""

    async def browsed() -> list[pb.Message]:
        found = list[pb.Message]()
        for queue in range(2):
            try:
                page = await engine.ask(queries.Browse(f"%DLQ%{rig.group}", queue, 0, 100, MIB))
            except Refused:
                continue
            found += [pb.Message.FromString(row[0]) for row in page.rows]
        return found

    return await until(browsed, lambda found: len(found) >= count)


async def test_a_group_that_pops_again_gets_what_it_had_sent_back(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        await pulling(engine, rig)
        places = await placed(engine, rig, *messages(2))
        queue, retries = places[0].queue, f"%RETRY%{rig.group}+{rig.topic}"
        await engine.execute(do.UpdateOffsets(rig.topic, rig.group, {queue: 2}))
        await engine.execute(do.SendBack(rig.topic, rig.group, (do.SentBack(queue, 1, delay_ms=0),)))
        await pull(engine, rig, 0, 0, SOON_MS, topic=retries, group=rig.group)
        await engine.execute(do.SetConsumeMode(rig.topic, rig.group, "POP"))
        rows = await pop_all(engine, rig, 1)
        assert [(number(row), row[4]) for row in rows] == [(1, 2)]


async def test_dead_letters_are_redriven_for_their_group_alone(rig: Rig) -> None:
    async with rig.gateway() as engine, rig.gateway() as other:
        await created(engine, rig)
        places = await placed(engine, rig, *messages(40))
        rows = await pop_all(engine, rig, 40, max_messages=32)
        changes = tuple(do.Change(row[5].decode(), "reject", reason="why") for row in rows)
        await engine.execute(do.ChangeInvisibleTime(rig.group, changes))
        await dead(engine, rig, 40)
        found = await other.execute(do.Redrive(rig.group))
        assert found == do.Redriven({rig.topic: 40}, [])
        again = await pop_all(other, rig, 40, max_messages=32)
        assert sorted(number(row) for row in again) == list(range(40))
        assert await engine.execute(do.Redrive(rig.group)) == do.Redriven({}, [])
        one = await until(
            lambda: engine.execute(do.Redrive(rig.group, message_ids=frozenset({"id-00007"}))),
            lambda found: found.topics != {},
        )
        assert one == do.Redriven({rig.topic: 1}, [])
        assert [number(row) for row in await pop_all(other, rig, 1)] == [7]
        queue = places[0].queue
        reader = await pull(engine, rig, queue, max_messages=1000)
        assert [number(row) for row in reader.rows] == list(range(40))
        assert reader.next_offset == reader.max_offset


async def test_messages_are_peeked_browsed_and_looked_up_in_all_brokers(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        for n in range(8):
            tag = "odd" if n % 2 else "even"
            await placed(engine, rig, pb.Message(message_id=f"m-{n}", body=b"%d" % n, keys=["k", f"k{n}"], tag=tag))
            await pause(0.005)
        rows = await engine.ask(do.Peek(rig.topic, rig.group, 5, MIB))
        assert [pb.Message.FromString(row[0]).body for row in rows] == [b"%d" % n for n in range(5)]
        assert len({row[2] for row in rows}) == 4
        rows = await engine.ask(do.Peek(rig.topic, rig.group, 9, MIB, ("tag", "odd")))
        assert [pb.Message.FromString(row[0]).body for row in rows] == [b"1", b"3", b"5", b"7"]
        by_key = await until(
            lambda: engine.ask(do.LookUp(rig.topic, "", "k", 100, MIB)), lambda found: len(found.rows) == 8
        )
        assert [pb.Message.FromString(row[0]).body for row in by_key.rows] == [b"%d" % n for n in range(7, -1, -1)]
        assert not by_key.more
        (row,) = (await engine.ask(do.LookUp(rig.topic, "m-5", "", 100, MIB))).rows
        page = await engine.ask(queries.Browse(rig.topic, row[2], row[3], 1, MIB))
        assert page.rows == [row]
        times = [each[1] for each in by_key.rows]
        bounded = await engine.ask(do.LookUp(rig.topic, "", "k", 100, MIB, times[4], times[2]))
        assert [each[1] for each in bounded.rows] == [at for at in times if times[4] <= at <= times[2]]
        assert (await engine.ask(do.LookUp(rig.topic, "", "none", 100, MIB))).rows == []


async def test_many_messages_with_one_key_are_all_found(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        for part in range(5):
            await send(
                engine, rig, *(pb.Message(message_id=f"{part}-{n}", body=b"x", keys=["same"]) for n in range(40))
            )
            await pause(1.1)
        found = await until(
            lambda: engine.ask(do.LookUp(rig.topic, "", "same", 1000, MIB)), lambda found: len(found.rows) == 200
        )
        assert not found.more


async def test_a_group_waits_until_messages_are_before_it(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        waiting = asyncio.ensure_future(engine.wait_available(do.Available(rig.topic, rig.group), 3, SOON_MS))
        await pause(0.5)
        assert not waiting.done()
        await send(engine, rig, *messages(3))
        ready = await waiting
        assert (ready.ready, sum(ready.position.queues.values())) == (3, 3)
        await pop_all(engine, rig, 3)
        # A broker moves the group's position some milliseconds after its answer to a pop.
        available = do.Available(rig.topic, rig.group)
        await until(lambda: engine.wait_available(available, 1, 0), lambda found: found.ready == 0)
