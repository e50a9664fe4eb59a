"""What a group that pulls sends back through a gateway, over the brokers of tests/remoting/fake."""

import asyncio

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_server.cluster import names
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, pop, send
from tests.cluster.pulling import code, filled, pulling
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import removing
from tests.remoting.fake.log import Record
from tests.remoting.fake.server import ok
from tests.remoting.jumping import jumping, passed

RETRIES = f"%RETRY%{GROUP}+{TOPIC}"
HIDDEN = names.retry_topic(GROUP, TOPIC)


async def back(engine: ClusterEngine, *messages: do.SentBack) -> list[str]:
    """OK, DEAD or the code of each."""
    results = await engine.execute(do.SendBack(TOPIC, GROUP, messages, client_id="worker-1"))
    return [each.code if isinstance(each, Refused) else "DEAD" if each.dead_lettered else "OK" for each in results]


async def retries(engine: ClusterEngine, offset: int = 0, wait_ms: int = 0, **more: object) -> do.Pulled:
    command = do.Pull(RETRIES, more.pop("group", GROUP), 0, offset, **more)  # type: ignore[arg-type]
    return await engine.pull(command, wait_ms)


def rows(pulled: do.Pulled) -> list[tuple[bytes, int, int]]:
    """(body, offset, attempt)."""
    return [(pb.Message.FromString(row[0]).body, row[3], row[4]) for row in pulled.rows]


def dead_letters(fake: FakeCluster) -> list[Record]:
    topics = [broker.log.topics.get("%DLQ%shop%bill") for broker in fake.brokers.values()]
    return [record for topic in topics if topic for record in topic.queues[0]]


@jumping
async def test_what_is_sent_back_comes_again_in_the_retry_topic_with_its_attempt() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        created(fake)
        await pulling(engine)
        sent = pb.Message(message_id="m", body=b"1", tag="red", keys=["k"], properties={"p": "v"}, born_ms=7)
        (place,) = await send(engine, sent)
        assert isinstance(place, do.Place)
        asked = do.SentBack(place.queue, place.offset, delay_ms=0, reason="no stock")
        assert await back(engine, asked) == ["OK"]
        (row,) = (await retries(other)).rows
        assert pb.Message.FromString(row[0]) == sent
        assert row[2:5] == (0, 0, 2)
        assert len([broker for broker in fake.brokers.values() if HIDDEN in broker.log.topics]) == 1


@jumping
async def test_a_message_comes_again_after_its_delay_or_the_backoff_of_its_group() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].log.groups["shop%bill"]["groupRetryPolicy"] = {
            "type": "CUSTOMIZED",
            "customizedRetryPolicy": {"next": [0, 0, 20_000, 60_000]},
        }
        await pulling(engine)
        filled(fake, "a", 0, b"1", b"2")
        assert await back(engine, do.SentBack(0, 0, delay_ms=5_000), do.SentBack(0, 1)) == ["OK", "OK"]
        waiting = asyncio.ensure_future(retries(engine, 0, 10_000))
        await passed(4.0)
        assert not waiting.done()
        first = await waiting
        assert rows(first) == [(b"1", 0, 2)]
        assert pb.Message.FromString(first.rows[0][0]).deliver_at_ms == 0, "its producer did not say so"
        assert (await retries(engine, 1)).rows == []
        await passed(16.0)
        assert rows(await retries(engine, 1)) == [(b"2", 1, 2)]


@jumping
async def test_the_attempts_count_on_until_the_message_is_a_dead_letter() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for broker in fake.brokers.values():
            broker.log.groups["shop%bill"]["retryMaxTimes"] = 2
        await pulling(engine)
        filled(fake, "b", 1, b"0", b"1")
        assert await back(engine, do.SentBack(3, 1, delay_ms=0)) == ["OK"]
        assert await back(engine, do.SentBack(0, 0, retry=True, delay_ms=0)) == ["OK"]
        assert rows(await retries(engine)) == [(b"1", 0, 2), (b"1", 1, 3)]
        assert await back(engine, do.SentBack(0, 1, retry=True, reason="gave up")) == ["DEAD"]
        (dead_letter,) = dead_letters(fake)
        page = await engine.execute(do.QueryOffsets(TOPIC))
        assert len(page) == 4
        said = dict(entry.split("\x01") for entry in dead_letter.properties.split("\x02") if entry)
        assert (said["DLQ_ORIGIN_TOPIC"], said["__popmq_origin_queue"], said["__popmq_origin_offset"]) == (
            *("shop%orders", "3", "1"),
        )
        assert (said["__popmq_dead_attempts"], said["__popmq_reason"], said["__popmq_client"]) == (
            *("3", "gave up", "worker-1"),
        )


@jumping
async def test_a_consumer_may_reject_count_by_itself_or_allow_less() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        filled(fake, "a", 0, b"0", b"1", b"2", b"3")
        asked = (
            do.SentBack(0, 0, reject=True),
            do.SentBack(0, 1, attempts=17),
            do.SentBack(0, 2, max_attempts=1),
            do.SentBack(0, 3, delay_ms=0, attempts=4),
        )
        assert await back(engine, *asked) == ["DEAD", "DEAD", "DEAD", "OK"]
        assert rows(await retries(engine)) == [(b"3", 0, 5)]
        assert [dead_letter.property("__popmq_reason") for dead_letter in dead_letters(fake)] == [
            "",
            *["no attempts left"] * 2,
        ]


@jumping
async def test_each_message_of_a_request_has_its_own_result() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        filled(fake, "a", 0, b"0", b"1")
        asked = (
            do.SentBack(0, 0, delay_ms=0),
            do.SentBack(0, 7),
            do.SentBack(5, 0),
            do.SentBack(0, 0, retry=True),
            do.SentBack(1, 0, retry=True),
        )
        results = await engine.execute(do.SendBack(TOPIC, GROUP, asked))
        refused = [(each.code, each.field) if isinstance(each, Refused) else None for each in results]
        assert refused == [
            None,
            ("MESSAGE_NOT_FOUND", "messages[1].offset"),
            ("INVALID_FIELD", "messages[2].queue"),
            ("MESSAGE_NOT_FOUND", "messages[3].offset"),
            ("INVALID_FIELD", "messages[4].queue"),
        ]
        twice = await back(engine, do.SentBack(0, 0, retry=True, delay_ms=0), do.SentBack(0, 0, retry=True))
        assert twice == ["OK", "MESSAGE_NOT_FOUND"]


@jumping
async def test_only_a_group_that_pulls_sends_back() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"0")
        assert await code(back(engine, do.SentBack(0, 0))) == ("WRONG_CONSUME_MODE", "group")
        assert await code(retries(engine)) == ("WRONG_CONSUME_MODE", "group")
        assert await code(retries(engine, group="")) == ("UNSUPPORTED", "topic")


@jumping
async def test_entries_of_a_retry_topic_are_finished_by_their_numbers_and_never_come_back() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        created(fake)
        await pulling(engine)
        (row,) = await engine.execute(do.QueryOffsets(RETRIES, GROUP))
        assert (row.min_offset, row.max_offset, row.committed) == (0, 0, 0)
        filled(fake, "a", 0, *(b"%d" % n for n in range(5)))
        await back(engine, *(do.SentBack(0, n, delay_ms=0) for n in range(5)))
        assert await other.execute(do.UpdateOffsets(RETRIES, GROUP, {0: 2})) == 2
        assert await other.execute(do.UpdateOffsets(RETRIES, GROUP, {0: 1})) == 0
        found = await retries(other)
        assert ([row[3] for row in found.rows], found.min_offset, found.max_offset) == ([2, 3, 4], 2, 5)
        found = await retries(engine, 3, commit_offset=4)
        assert ([row[3] for row in found.rows], found.acked) == ([4], 2)
        (row,) = await engine.execute(do.QueryOffsets(RETRIES, GROUP))
        assert (row.min_offset, row.max_offset, row.committed) == (4, 5, 4)
        assert await back(engine, do.SentBack(0, 3, retry=True)) == ["MESSAGE_NOT_FOUND"]
        for wanted, field in (({0: 6}, "offsets[0]"), ({1: 0}, "offsets[1]")):
            assert await code(engine.execute(do.UpdateOffsets(RETRIES, GROUP, wanted))) == ("INVALID_FIELD", field)
        assert await code(engine.execute(do.QueryOffsets(RETRIES, "", 5))) == ("INVALID_FIELD", "timestamp_ms")
        assert await code(engine.execute(do.QueryOffsets(RETRIES, "other"))) == ("INVALID_FIELD", "group")


@jumping
async def test_an_empty_retry_topic_is_waited_for_and_says_where_the_next_entry_is() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        filled(fake, "b", 0, b"1")
        empty = await retries(engine)
        assert (empty.status, empty.next_offset) == ("OFFSET_OVERFLOW_ONE", 0)
        assert (await retries(engine, 3)).status == "OFFSET_OVERFLOW_BADLY"
        waiting = asyncio.ensure_future(retries(engine, 0, 20_000))
        await passed(2.0)
        assert await back(engine, do.SentBack(2, 0, delay_ms=0)) == ["OK"]
        assert rows(await waiting) == [(b"1", 0, 2)]


@jumping
async def test_a_group_that_pops_from_now_on_gets_what_it_had_sent_back_and_no_other_group_does() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for broker in fake.brokers.values():
            broker.log.groups["audit"] = {"groupName": "audit", "retryMaxTimes": 16}
        await pulling(engine)
        filled(fake, "a", 0, b"1", b"2")
        await engine.execute(do.UpdateOffsets(TOPIC, GROUP, {0: 2}))
        await back(engine, do.SentBack(0, 0, delay_ms=0), do.SentBack(0, 1, delay_ms=0))
        await engine.execute(do.UpdateOffsets(RETRIES, GROUP, {0: 1}))
        for _ in range(2):
            await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP"))
        popped = await pop(engine)
        assert [(body, row[4]) for body, row in zip(bodies(popped), popped.rows, strict=True)] == [(b"2", 2)]
        others = await engine.pop(do.Pop(TOPIC, "audit", max_messages=100), 0)
        assert sorted(bodies(others)) == [b"1", b"2"]
        assert [row[4] for row in others.rows] == [1, 1]
        await passed(1.0)
        assert {key[0] for broker in fake.brokers.values() for key in broker.pops.leases} == {"shop%bill", "audit"}
        await passed(100.0)
        assert sorted(bodies(await engine.pop(do.Pop(TOPIC, "audit", max_messages=100), 0))) == [b"1", b"2"]


@jumping
async def test_what_waits_behind_entries_that_their_broker_is_removing_is_moved_when_the_group_pops() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        filled(fake, "a", 0, b"0", b"1", b"2")
        assert await back(engine, *(do.SentBack(0, offset, delay_ms=0) for offset in range(3))) == ["OK"] * 3
        await engine.execute(do.UpdateOffsets(TOPIC, GROUP, {0: 3}))
        fake.brokers["a"].faults.add(removing(1, 3), RequestCode.PULL_MESSAGE)
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP"))
        assert sorted(bodies(await pop(engine))) == [b"1", b"2"]


@jumping
async def test_a_message_without_room_for_another_attempt_is_a_dead_letter_and_its_neighbour_comes_again() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        broker = fake.brokers["a"]
        broker.log.append("shop%orders", 0, b"full", f"UNIQ_KEY\x01id\x02p\x01{'x' * 32_740}\x02")
        broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda client, request: ok()
        filled(fake, "a", 0, b"1")
        assert await back(engine, do.SentBack(0, 0), do.SentBack(0, 1, delay_ms=0)) == ["DEAD", "OK"]
        (moved,) = [one for one in broker.requests if one.code == RequestCode.CONSUMER_SEND_MSG_BACK]
        assert moved.fields["delayLevel"] == "-1"
