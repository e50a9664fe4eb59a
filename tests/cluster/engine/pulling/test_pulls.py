"""Pulls by queue and offset through a gateway, over the brokers of tests/remoting/fake."""

import asyncio

from popmq_remoting.codes import RequestCode
from popmq_server.contract import commands as do
from tests.cluster.gateway import GROUP, TOPIC, created, gateway
from tests.cluster.pulling import code, filled, pull, pulling, read
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed


@jumping
async def test_queues_of_all_brokers_are_read_by_their_numbers_as_far_as_was_asked_for() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["b"].pull_messages = 8
        filled(fake, "b", 1, *(b"%d" % n for n in range(100)))
        whole = await pull(engine, 3, 0, max_messages=90)
        assert read(whole) == [(b"%d" % n, 3, n) for n in range(90)]
        assert (whole.status, whole.next_offset, whole.min_offset, whole.max_offset) == ("FOUND", 90, 0, 100)
        assert (whole.more, whole.full) == (True, True)
        bounded = await pull(engine, 3, 20, max_messages=90, end_offset=25)
        assert (read(bounded), bounded.next_offset) == ([(b"%d" % n, 3, n) for n in range(20, 25)], 25)


@jumping
async def test_each_status_says_where_the_offset_is() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"x" for _ in range(10)))
        fake.brokers["a"].log.least["shop%orders", 0] = 4
        for queue, offset, expected in (
            (0, 2, ("OFFSET_TOO_SMALL", 4)),
            (0, 10, ("OFFSET_OVERFLOW_ONE", 10)),
            (0, 12, ("OFFSET_OVERFLOW_BADLY", 10)),
            (1, 0, ("NO_MESSAGE_IN_QUEUE", 0)),
            (1, 5, ("NO_MESSAGE_IN_QUEUE", 0)),
            (2, 0, ("NO_MATCHED_LOGIC_QUEUE", 0)),
        ):
            found = await pull(engine, queue, offset)
            assert (found.status, found.next_offset) == expected, (queue, offset)


@jumping
async def test_bytes_end_an_answer_but_never_before_its_first_message() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, bytes(5000), bytes(10), bytes(5000))
        found = await pull(engine, max_bytes=1000)
        assert (len(found.rows), found.next_offset, found.more) == (1, 1, True)
        found = await pull(engine, offset=1, max_bytes=1000)
        assert (len(found.rows), found.next_offset, found.full) == (1, 2, True)


@jumping
async def test_tags_are_compared_again_and_what_was_looked_at_is_not_read_twice() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", b"2", tags="red")
        filled(fake, "a", 0, b"3", tags="big")
        filled(fake, "a", 0, b"4", tags="green")
        found = await pull(engine, filter=("tag", "red"))
        assert ([row[0] for row in read(found)], found.next_offset) == ([b"1", b"2"], 4)
        found = await pull(engine, offset=2, filter=("tag", "red"))
        assert (found.status, found.next_offset) == ("NO_MATCHED_MESSAGE", 4)


@jumping
async def test_rows_may_come_without_bodies() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1")
        ((body, _, _),) = read(await pull(engine, body=False))
        assert body == b""


@jumping
async def test_a_pull_at_the_end_waits_for_the_next_message_and_no_longer_than_it_said() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1")
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(pull(engine, 0, 1, 20_000))
        await passed(3.0)
        assert engine.parked() == 1
        began_s = loop.time()
        filled(fake, "a", 0, b"2")
        assert read(await waiting) == [(b"2", 0, 1)]
        assert loop.time() - began_s < 1.0
        began_s = loop.time()
        late = await pull(engine, 0, 2, 7_000)
        assert (late.status, late.next_offset) == ("OFFSET_OVERFLOW_ONE", 2)
        assert 6.9 < loop.time() - began_s < 8.0
        began_s = loop.time()
        assert (await pull(engine, 1, 5, 20_000)).status == "NO_MESSAGE_IN_QUEUE"
        assert (await pull(engine, 0, 9, 20_000)).status == "OFFSET_OVERFLOW_BADLY"
        assert loop.time() - began_s < 1.0, "an offset to correct is told at once"
        assert engine.parked() == 0


@jumping
async def test_a_wait_passes_over_messages_that_do_not_match() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        waiting = asyncio.ensure_future(pull(engine, 0, 0, 20_000, filter=("tag", "red")))
        await passed(1.0)
        filled(fake, "a", 0, b"1", tags="green")
        await passed(1.0)
        filled(fake, "a", 0, b"2", tags="red")
        assert read(await waiting) == [(b"2", 0, 1)]


@jumping
async def test_waits_are_answered_when_the_process_stops() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        waiting = asyncio.ensure_future(pull(engine, 0, 0, 20_000))
        await passed(1.0)
        engine.close_waits()
        assert (await waiting).status == "NO_MESSAGE_IN_QUEUE"


@jumping
async def test_the_group_of_readers_is_made_once_at_each_broker_and_hidden() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1")
        for _ in range(3):
            assert read(await pull(engine)) == [(b"1", 0, 0)]
        assert fake.brokers["a"].counts[RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP] == 1
        assert await code(pull(engine, group="popmq_reader")) == ("INVALID_FIELD", "group")


@jumping
async def test_a_pull_commits_before_it_reads_and_tells_how_many_messages_were_moved_past() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        filled(fake, "a", 0, *(b"%d" % n for n in range(5)))
        found = await pull(engine, 0, 3, group=GROUP, commit_offset=3)
        assert (found.acked, len(found.rows)) == (3, 2)
        assert fake.brokers["a"].log.offsets["shop%bill", "shop%orders", 0] == 3
        again = await pull(engine, 0, 3, group=GROUP, commit_offset=2)
        assert again.acked == 0
        assert fake.brokers["a"].log.offsets["shop%bill", "shop%orders", 0] == 2
        assert await code(pull(engine, group=GROUP, commit_offset=6)) == ("INVALID_FIELD", "commit_offset")
        assert await code(pull(engine, 9, group=GROUP, commit_offset=0)) == ("INVALID_FIELD", "commit_offset")
        assert await code(pull(engine, commit_offset=1)) == ("INVALID_FIELD", "commit_offset")
        assert fake.brokers["a"].log.offsets["shop%bill", "shop%orders", 0] == 2


@jumping
async def test_a_group_reads_a_topic_in_one_mode() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        created(fake)
        assert await code(pull(engine, group=GROUP)) == ("WRONG_CONSUME_MODE", "group")
        await engine.pop(do.Pop(TOPIC, GROUP), 0)
        await pulling(engine)
        await passed(16.0)
        for gate in (engine, other):
            assert await code(gate.pop(do.Pop(TOPIC, GROUP), 0)) == ("WRONG_CONSUME_MODE", "group")
            assert await code(pull(gate, group=GROUP)) == ("OK", "")


@jumping
async def test_what_does_not_exist_is_named() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        for command, expected in (
            (do.Pull("no.topic", "", 0, 0), ("TOPIC_NOT_FOUND", "topic")),
            (do.Pull(TOPIC, "no.group", 0, 0), ("GROUP_NOT_FOUND", "group")),
            (do.Pull(TOPIC, "", 0, 0, filter=("sql92", "a >")), ("FILTER_INVALID", "filter.sql92")),
            (do.Pull("%RETRY%shop.bill", "", 0, 0), ("INVALID_FIELD", "topic")),
            (do.Pull("%RETRY%no.group+shop.orders", "", 0, 0), ("TOPIC_NOT_FOUND", "topic")),
            (do.Pull("%RETRY%shop.bill+no.topic", "", 0, 0), ("TOPIC_NOT_FOUND", "topic")),
        ):
            assert await code(engine.pull(command, 0)) == expected, command
