"""Lists and numbers of topics and groups through a gateway, over the brokers of tests/remoting/fake."""

import asyncio
from dataclasses import replace

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.numbers.scraped import Scraped
from popmq_server.contract import commands as do
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers, Rows, TopicNumbers
from popmq_server.errors import Refused
from popmq_server.values.records import Subscription
from tests.cluster.gateway import GROUP, TOPIC, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed

ORDERS = do.CreateTopic(TOPIC, 4, False, None)
BILL = do.CreateGroup(GROUP, 2, (1_000,), 10_000, 0, "EARLIEST", 0, False)


async def filled(engine: ClusterEngine, count: int, topic: str = TOPIC) -> None:
    """So many messages, one by one: over all brokers."""
    for number in range(count):
        await send(engine, pb.Message(message_id=str(number), body=b"x"), topic=topic)


async def topics(engine: ClusterEngine, name: str = "", **page: object) -> Rows[TopicNumbers]:
    return await engine.ask(queries.Topics(name, **page))  # type: ignore[arg-type]  # fields of several types


async def groups(engine: ClusterEngine, topic: str = "", group: str = "", **page: object) -> Rows[GroupNumbers]:
    return await engine.ask(queries.Groups(topic, group, **page))  # type: ignore[arg-type]  # fields of several types


async def code_of(engine: ClusterEngine, query: queries.Topics | queries.Groups | queries.GroupSettings) -> str:
    with pytest.raises(Refused) as refused:
        await engine.ask(query)
    return refused.value.code


@jumping
async def test_a_topic_has_the_ends_of_its_queues_by_their_numbers_and_what_is_not_known_is_none() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(ORDERS)
        await filled(engine, 8)
        (row,) = await topics(engine, TOPIC)
        assert (row.topic.queues, row.messages) == (4, 8)
        assert row.queues == [(queue, 0, 2) for queue in range(4)]
        assert (row.bytes, row.delayed, row.half) == (None, None, None)
        assert await code_of(engine, queries.Topics("other")) == "TOPIC_NOT_FOUND"


@jumping
async def test_a_list_shows_what_this_gateway_has_just_made_changed_or_deleted() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        seen = [[row.topic.name for row in await topics(engine)]]
        await engine.execute(ORDERS)
        seen.append([f"{row.topic.name} {row.topic.queues}" for row in await topics(engine)])
        reading = asyncio.ensure_future(topics(engine))
        await engine.execute(do.UpdateTopic(TOPIC, 6, None))
        await reading
        seen.append([f"{row.topic.name} {row.topic.queues}" for row in await topics(engine)])
        await engine.execute(do.DeleteTopic(TOPIC))
        seen.append([row.topic.name for row in await topics(engine)])
        assert seen == [[], [f"{TOPIC} 4"], [f"{TOPIC} 6"], []]


@jumping
async def test_topics_are_listed_by_name_in_pages_without_those_of_brokers_and_gateways() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        for name in ("e", "b.x", "d"):
            await engine.execute(replace(ORDERS, name=name, type="FIFO" if name == "d" else "NORMAL"))
        await engine.execute(BILL)
        for hidden in ("TBW102", "a", "popmq_retry_1", "rmq_sys_REVIVE_LOG_c", "%RETRY%shop%bill"):
            fake.brokers["a"].log.create(hidden, 1)
        await filled(engine, 4, "b.x")
        first = await topics(engine, rows_max=2)
        assert [(row.topic.name, row.messages) for row in first] == [("%DLQ%shop.bill", 0), ("b.x", 4)]
        rest = await topics(engine, after=first.after)
        assert [(row.topic.name, row.topic.type, row.topic.queues) for row in rest] == [
            ("d", "FIFO", 4),
            ("e", "NORMAL", 4),
        ]
        assert rest.after == ""


@jumping
async def test_a_list_is_asked_for_once_in_fifteen_seconds_a_few_questions_at_a_time() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        log = fake.brokers["a"].log
        for number in range(40):
            log.create(f"t{number}", 2)
        fake.register()
        counts, code = fake.brokers["a"].counts, RequestCode.GET_TOPIC_STATS_INFO
        for _ in range(3):
            assert len(await topics(engine)) == 40
        assert (counts[code], counts[RequestCode.GET_ALL_TOPIC_CONFIG]) == (40, 1)
        assert fake.name_servers[0].counts[RequestCode.GET_ROUTEINFO_BY_TOPIC] == 0
        await passed(16.0)
        await topics(engine)
        assert counts[code] == 80


@jumping
async def test_the_queues_of_a_broker_that_is_away_are_left_out_and_keep_their_numbers() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(ORDERS)
        await filled(engine, 8)
        await topics(engine, TOPIC)
        await fake.brokers["a"].stop()
        await passed(2.0)
        (row,) = await topics(engine, TOPIC)
        assert (row.topic.queues, row.queues) == (4, [(2, 0, 2), (3, 0, 2)])


@jumping
async def test_a_group_has_what_is_behind_its_position_what_it_retries_and_its_dead_letters() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        await engine.execute(ORDERS)
        await engine.execute(BILL)
        await filled(engine, 8)
        (before,) = await groups(engine, TOPIC, GROUP)
        assert (before.ready, before.retry, before.dead, before.mode) == (0, 0, 0, "POP")
        assert await groups(engine, group=GROUP) == []
        rejected, acked = handles(await pop(engine, max_messages=2))
        await engine.execute(do.ChangeInvisibleTime(GROUP, (do.Change(rejected, "reject"),)))
        await engine.execute(do.Ack(GROUP, (acked,)))
        await pop(engine, max_messages=2)
        await passed(11.0)
        assert len((await pop(engine, max_messages=1)).rows) == 1
        await passed(2.0)
        (row,) = await groups(engine, TOPIC, GROUP)
        assert (row.ready + row.retry, row.dead, row.in_flight, row.acked) == (5, 1, None, None)
        assert await groups(engine, TOPIC) == await groups(engine, group=GROUP) == [row]


@jumping
async def test_what_is_at_a_broker_where_a_group_has_not_read_yet_is_before_it() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(ORDERS)
        await engine.execute(BILL)
        await filled(engine, 8)
        await pop(engine, max_messages=1)
        assert [row.ready for row in await groups(engine, TOPIC, GROUP)] == [7]


@jumping
async def test_a_topic_that_another_gateway_deleted_is_not_found_after_a_second() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        await engine.execute(ORDERS)
        assert len(await topics(other, TOPIC)) == 1
        await engine.execute(do.DeleteTopic(TOPIC))
        await passed(1.5)
        assert await code_of(other, queries.Topics(TOPIC)) == "TOPIC_NOT_FOUND"


@jumping
async def test_groups_are_listed_by_topic_in_pages() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        for topic in ("t1", "t2"):
            await engine.execute(replace(ORDERS, name=topic))
            await filled(engine, 2, topic)
        for group in ("g2", "g1"):
            await engine.execute(replace(BILL, name=group))
            for topic in ("t1", "t2"):
                await engine.pop(do.Pop(topic, group), 0)
        first = await groups(engine, rows_max=3)
        assert [(row.topic, row.group) for row in first] == [("t1", "g1"), ("t1", "g2"), ("t2", "g1")]
        assert [(row.topic, row.group) for row in await groups(engine, after=first.after)] == [("t2", "g2")]
        settings = await engine.ask(queries.GroupSettings(rows_max=1))
        assert ([group.name for group in settings], settings.after) == (["g1"], "g1")
        assert [group.name for group in await engine.ask(queries.GroupSettings(after="g1"))] == ["g2"]


@jumping
async def test_names_that_do_not_exist_are_refused() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        await engine.execute(ORDERS)
        assert await code_of(engine, queries.Groups("other", "")) == "TOPIC_NOT_FOUND"
        assert await code_of(engine, queries.Groups(TOPIC, "other")) == "GROUP_NOT_FOUND"
        assert await code_of(engine, queries.GroupSettings("other")) == "GROUP_NOT_FOUND"
        with pytest.raises(Refused, match="there is no group"):
            await engine.ask(queries.Subscriptions("other"))


@jumping
async def test_subscriptions_are_what_a_group_has_read_or_has_a_mode_for() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        for topic in ("t1", "t2", "t3"):
            await engine.execute(replace(ORDERS, name=topic))
            await filled(engine, 1, topic)
        await engine.execute(BILL)
        await engine.pop(do.Pop("t2", GROUP), 0)
        await engine.execute(do.SetConsumeMode("t1", GROUP, "PULL", 3, None))
        found = await engine.ask(queries.Subscriptions(GROUP))
        assert found == [("t1", Subscription(mode="PULL", share_number=3)), ("t2", Subscription())]
        (row,) = await groups(engine, "t1", GROUP)
        assert row.mode == "PULL"


@jumping
async def test_the_store_is_the_fullest_disk_of_the_brokers() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        fake.brokers["b"].disk = "Total : 1.0 TiB, Free : 0.1 TiB."
        numbers = await engine.ask(queries.StoreSize())
        assert (numbers.map_bytes, numbers.quarantined) == (None, None)
        assert (numbers.used_bytes, numbers.disk_free_bytes) == (int(0.9 * 2**40), int(0.1 * 2**40))
        fake.brokers["b"].disk = "unknown"
        assert (await engine.ask(queries.StoreSize())).disk_free_bytes == 75 << 30
        assert await engine.ask(queries.HeldBy(((GROUP, "c"),))) is None


@jumping
async def test_a_scrape_has_what_was_read_and_does_not_wait_for_brokers_that_are_slow() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        await engine.execute(ORDERS)
        scraped = Scraped(engine.listings)
        loop = asyncio.get_running_loop()
        assert [row.topic.name for row in (await scraped.numbers())[0]] == [TOPIC]
        await engine.execute(BILL)
        fake.brokers["a"].faults.add(Fault(Kind.SLOW, seconds=5.0), RequestCode.GET_ALL_TOPIC_CONFIG)
        await passed(16.0)
        began_s = loop.time()
        assert len((await scraped.numbers())[0]) == 1
        assert loop.time() - began_s < 1.0
        await passed(6.0)
        assert [row.topic.name for row in (await scraped.numbers())[0]] == ["%DLQ%shop.bill", TOPIC]
        scraped.close()
