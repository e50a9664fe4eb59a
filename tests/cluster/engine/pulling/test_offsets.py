"""Positions of groups, and consume modes, through gateways over the brokers of tests/remoting/fake."""

import asyncio
import random

from popmq_remoting.codes import RequestCode
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.values.records import Subscription
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, handles, pop
from tests.cluster.pulling import code, filled, pull, pulling
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed


async def offsets(engine: ClusterEngine, group: str = "", since_ms: int | None = None) -> list[do.OffsetsOfQueue]:
    return await engine.execute(do.QueryOffsets(TOPIC, group, since_ms))


async def update(engine: ClusterEngine, offsets: dict[int, int], topic: str = TOPIC) -> int:
    return await engine.execute(do.UpdateOffsets(topic, GROUP, offsets))


async def committed(engine: ClusterEngine, group: str = GROUP) -> list[int]:
    return [row.committed for row in await offsets(engine, group)]


@jumping
async def test_offsets_of_all_queues_say_what_is_known_and_none_of_the_rest() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 1, b"1", b"2", b"3")
        fake.brokers["a"].log.least["shop%orders", 1] = 1
        rows = await offsets(engine)
        assert [(row.queue, row.min_offset, row.max_offset) for row in rows] == [
            (0, 0, 0),
            (1, 1, 3),
            (2, 0, 0),
            (3, 0, 0),
        ]
        assert {(row.committed, row.at_timestamp, row.least_committed, row.read_ms) for row in rows} == {
            (-1, -1, None, None)
        }


@jumping
async def test_the_first_offset_at_a_time_is_found_in_each_queue() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2")
        await passed(10.0)
        now_ms = loop_ms()
        filled(fake, "a", 0, b"3")
        assert [row.at_timestamp for row in await offsets(engine, since_ms=now_ms)] == [2, 0]
        assert [row.at_timestamp for row in await offsets(engine, since_ms=0)] == [0, 0]
        assert [row.at_timestamp for row in await offsets(engine, since_ms=now_ms + 60_000)] == [3, 0]


@jumping
async def test_a_group_has_a_position_in_all_queues_or_in_none() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2")
        assert await committed(engine) == [-1, -1, -1, -1]
        fake.brokers["a"].log.least["shop%orders", 0] = 1
        fake.brokers["b"].log.offsets["shop%bill", "shop%orders", 0] = 0
        assert await committed(engine) == [1, 0, 0, 0]


@jumping
async def test_update_offsets_moves_a_group_that_pulls_and_counts_what_it_passed() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"x" for _ in range(5)))
        filled(fake, "b", 1, *(b"x" for _ in range(5)))
        assert await code(update(engine, {0: 1})) == ("WRONG_CONSUME_MODE", "group")
        await pulling(engine)
        assert await update(engine, {0: 3, 3: 2}) == 5
        assert await update(engine, {0: 1, 3: 4}) == 2
        assert await committed(engine) == [1, 0, 0, 4]
        assert await code(update(engine, {0: 2, 3: 6})) == ("INVALID_FIELD", "offsets[3]")
        assert await code(update(engine, {0: 2, 4: 0})) == ("INVALID_FIELD", "offsets[4]")
        assert await committed(engine) == [1, 0, 0, 4], "a refused request moves nothing"


@jumping
async def test_an_estimate_of_bytes_is_within_thirty_percent_for_sizes_that_differ_by_queue_and_by_age() -> None:
    drawn = random.Random(7)
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for broker, queue_id, most in (("a", 0, 200), ("a", 1, 8000), ("b", 0, 2000)):
            for grows in (1, 1, 8):
                sizes = [drawn.randrange(most // 2, most) * grows // 8 for _ in range(400)]
                filled(fake, broker, queue_id, *map(bytes, sizes))
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "PULL"))
        await update(engine, {0: 600, 1: 300})
        for group, starts in (("", [0, 0, 0, 0]), (GROUP, [600, 300, 0, 0])):
            exact = []
            for queue, start in enumerate(starts):
                rows = (await pull(engine, queue, start, max_messages=4096, max_bytes=1 << 24)).rows
                exact.append(sum(len(row[0]) for row in rows))
            for row, size in zip(await offsets(engine, group), exact, strict=True):
                assert 0.7 * size <= row.bytes_behind <= 1.3 * size, (group, row, size)


@jumping
async def test_sizes_are_not_sampled_again_for_each_question() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(bytes(100) for _ in range(1000)))
        await offsets(engine)
        before = fake.brokers["a"].counts[RequestCode.PULL_MESSAGE]
        assert 0 < before <= 20
        for _ in range(5):
            assert (await offsets(engine))[0].bytes_behind > 100_000
        assert fake.brokers["a"].counts[RequestCode.PULL_MESSAGE] == before
        filled(fake, "a", 0, *(bytes(2000) for _ in range(1000)))
        assert 0.7 * 2_100_000 < (await offsets(engine))[0].bytes_behind < 1.3 * 2_100_000, "half of them are new"


# ── Modes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_mode_is_set_on_every_master_and_a_broker_that_was_away_gets_it_by_the_same_call() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["b"].faults.add(Fault(Kind.DROPPED), RequestCode.SET_MESSAGE_REQUEST_MODE)
        command = do.SetConsumeMode(TOPIC, GROUP, "PULL", share_number=3)
        assert await code(engine.execute(command)) == ("UNAVAILABLE", "")
        assert await engine.execute(command) == Subscription(mode="PULL", share_number=3)
        for broker in fake.brokers.values():
            assert broker.modes["shop%orders"]["shop%bill"] == {"mode": "PULL", "popShareQueueNum": 3}


@jumping
async def test_a_new_group_begins_where_it_says_and_one_with_a_position_stays() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2")
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "PULL", start=("LATEST", 0)))
        assert await committed(engine) == [2, 0]
        again = do.SetConsumeMode(TOPIC, GROUP, "PULL", start=("EARLIEST", 0))
        assert await code(engine.execute(again)) == ("INVALID_FIELD", "start")
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP"))
        assert await committed(engine) == [2, 0]
        assert (await pop(engine)).rows == []


# ── Operators move a group ───────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_reset_moves_a_group_of_either_mode_to_a_place_or_to_offsets() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2", b"3")
        for mode in ("POP", "PULL"):
            await engine.execute(do.SetConsumeMode(TOPIC, GROUP, mode))
            assert await engine.execute(do.ResetOffsets(TOPIC, GROUP, to=("LATEST", 0))) == {0: 3, 1: 0, 2: 0, 3: 0}
            assert await committed(engine) == [3, 0, 0, 0]
            assert await engine.execute(do.ResetOffsets(TOPIC, GROUP, offsets={0: 1})) == {0: 1, 1: 0, 2: 0, 3: 0}
            assert await committed(engine) == [1, 0, 0, 0]
        resets = [broker.counts[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] for broker in fake.brokers.values()]
        assert resets == [3, 2], "brokers ignore the commits of a group while a reset waits for its next read"
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP"))
        assert sorted(bodies(await pop(engine))) == [b"2", b"3"]


@jumping
async def test_a_reset_to_what_a_queue_does_not_have_moves_nothing() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2", b"3")
        fake.brokers["a"].log.least["shop%orders", 0] = 1
        await engine.execute(do.ResetOffsets(TOPIC, GROUP, offsets={0: 2}))
        for wanted, field in (({0: 0}, "offsets[0]"), ({0: 4}, "offsets[0]"), ({0: 1, 2: 0}, "offsets[2]")):
            assert await code(engine.execute(do.ResetOffsets(TOPIC, GROUP, offsets=wanted))) == ("INVALID_FIELD", field)
        assert await committed(engine) == [2, 0]


@jumping
async def test_a_clone_moves_a_group_to_the_position_of_another() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for broker in fake.brokers.values():
            broker.log.groups["audit"] = {"groupName": "audit", "retryMaxTimes": 16}
        filled(fake, "b", 0, b"1", b"2", b"3")
        command = do.CloneOffsets(TOPIC, "audit", GROUP)
        assert await code(engine.execute(command)) == ("INVALID_FIELD", "from_group")
        assert await code(engine.execute(do.CloneOffsets(TOPIC, "nobody", GROUP))) == ("GROUP_NOT_FOUND", "from_group")
        await engine.execute(do.ResetOffsets(TOPIC, "audit", offsets={2: 2}))
        assert await engine.execute(command) == {0: 0, 1: 0, 2: 2, 3: 0}
        assert await committed(engine) == [0, 0, 2, 0]


# ── Waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_group_waits_until_enough_messages_are_before_it() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        waiting = asyncio.ensure_future(engine.wait_available(do.Available(TOPIC, GROUP), 3, 30_000))
        await passed(2.0)
        assert engine.parked() == 1
        filled(fake, "b", 1, b"1")
        await passed(2.0)
        assert not waiting.done()
        filled(fake, "a", 0, b"2", b"3")
        assert await waiting == do.Ready(3, do.Position({0: 2, 1: 0, 2: 0, 3: 1}, 0), 0)
        await pop(engine)
        assert (await engine.wait_available(do.Available(TOPIC, GROUP), 1, 0)).ready == 0, "what is leased is read"


@jumping
async def test_a_wait_takes_no_message_from_a_pop_that_waits_too() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        watching = asyncio.ensure_future(engine.wait_available(do.Available(TOPIC, GROUP), 1, 20_000))
        await passed(0.5)
        popping = asyncio.ensure_future(pop(engine, 20_000))
        await passed(1.0)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        filled(fake, "a", 0, b"1")
        assert (await watching).ready == 1
        assert bodies(await popping) == [b"1"]
        assert loop.time() - began_s < 0.9, "the pop is told at once"


@jumping
async def test_a_bounded_wait_counts_no_messages_beyond_its_bound() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2", b"3")
        asked = do.Available(TOPIC, GROUP, upto=do.Position({0: 2}, 0))
        assert (await engine.wait_available(asked, 1, 0)).ready == 2
        assert await code(engine.wait_available(do.Available("no.topic", GROUP), 1, 0)) == ("TOPIC_NOT_FOUND", "topic")
        assert await code(engine.wait_available(do.Available(TOPIC, "nobody"), 1, 0)) == ("GROUP_NOT_FOUND", "group")


@jumping
async def test_a_message_that_is_rejected_after_a_reset_is_a_dead_letter_and_the_reset_is_left_to_the_next_pop() -> (
    None
):
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"0", b"1")
        held = handles(await pop(engine))
        await engine.execute(do.ResetOffsets(TOPIC, GROUP, to=("EARLIEST", 0)))
        (result,) = await engine.execute(do.ChangeInvisibleTime(GROUP, (do.Change(held[1], "reject"),)))
        assert result == do.Changed(0, dead_lettered=True)
        assert fake.brokers["a"].log.resets == {("shop%bill", "shop%orders", queue) for queue in (0, 1)}
        assert bodies(await pop(engine)) == [b"0", b"1"]
