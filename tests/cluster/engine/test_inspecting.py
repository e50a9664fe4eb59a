"""Peek, LookUp and Browse through a gateway, over the brokers of tests/remoting/fake."""

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import Page
from tests.cluster.gateway import GROUP, TOPIC, created, gateway, pop
from tests.cluster.pulling import code, filled, pulling
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed

MIB = 1 << 20


def said(rows: list[do.ReadRow]) -> list[tuple[bytes, int, int, int]]:
    """(body, queue, offset, attempt)."""
    return [(pb.Message.FromString(row[0]).body, *row[2:5]) for row in rows]


def stored(fake: FakeCluster, broker: str, queue_id: int, message_id: str, keys: str = "", body: bytes = b"") -> None:
    text = f"UNIQ_KEY\x01{message_id}\x02" + (f"KEYS\x01{keys}\x02" if keys else "")
    fake.brokers[broker].log.append("shop%orders", queue_id, body or message_id.encode(), text)


# ── Peek ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_peek_shows_what_comes_next_of_all_brokers_by_store_time_and_takes_nothing() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for broker, queue_id, body in (("b", 1, b"1"), ("a", 0, b"2"), ("b", 1, b"3"), ("a", 1, b"4")):
            await passed(0.01)
            fake.brokers[broker].log.append("shop%orders", queue_id, body, f"UNIQ_KEY\x01{body.decode()}\x02")
        for _ in range(2):
            rows = await engine.ask(do.Peek(TOPIC, GROUP, 3, MIB))
            assert said(rows) == [(b"1", 3, 0, 1), (b"2", 0, 0, 1), (b"3", 3, 1, 1)]
        assert [row[0] for row in said(await engine.ask(do.Peek(TOPIC, GROUP, 9, 1)))] == [b"1"]
        assert len((await pop(engine)).rows) == 4
        assert await engine.ask(do.Peek(TOPIC, GROUP, 3, MIB)) == []


@jumping
async def test_a_peek_compares_the_filter_by_itself() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1", tags="red")
        filled(fake, "a", 0, b"2", tags="big")
        for wanted in (("tag", "red"), ("sql92", "TAGS = 'red'")):
            rows = await engine.ask(do.Peek(TOPIC, GROUP, 9, MIB, wanted))
            assert [row[0] for row in said(rows)] == [b"1"]
        assert await code(engine.ask(do.Peek("no.topic", GROUP, 9, MIB))) == ("TOPIC_NOT_FOUND", "topic")
        assert await code(engine.ask(do.Peek(TOPIC, "nobody", 9, MIB))) == ("GROUP_NOT_FOUND", "group")


# ── LookUp ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_message_is_found_by_its_id_and_messages_by_a_key_the_newest_first() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for number, (broker, keys) in enumerate((("a", "k1 k2"), ("b", "k2"), ("a", "k3"), ("b", "k2x"))):
            await passed(1.0)
            stored(fake, broker, number % 2, f"id-{number}", keys)
        found = await engine.ask(do.LookUp(TOPIC, "", "k2", 10, MIB))
        assert (said(found.rows), found.more) == ([(b"id-1", 3, 0, 0), (b"id-0", 0, 0, 0)], False)
        found = await engine.ask(do.LookUp(TOPIC, "id-2", "", 10, MIB))
        assert (said(found.rows), found.more) == ([(b"id-2", 0, 1, 0)], False)
        assert await engine.ask(do.LookUp(TOPIC, "id-9", "", 10, MIB)) == do.LookedUp([], False)
        assert await code(engine.ask(do.LookUp("no.topic", "m", "", 10, MIB))) == ("TOPIC_NOT_FOUND", "topic")


@jumping
async def test_a_look_up_is_bounded_by_times_to_the_millisecond() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        times = []
        for number in range(4):
            await passed(0.3)
            times.append(loop_ms())
            stored(fake, "a", 0, f"id-{number}", "k")
        at = [record.stored_ms for record in fake.brokers["a"].log.topics["shop%orders"].queues[0]]
        found = await engine.ask(do.LookUp(TOPIC, "", "k", 10, MIB, at[1], at[2]))
        assert [row[0] for row in said(found.rows)] == [b"id-2", b"id-1"]


@jumping
async def test_all_messages_with_a_key_are_found_however_few_a_broker_answers_at_a_time() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for number in range(200):
            if number % 10 == 0:
                await passed(1.0)
            stored(fake, "ab"[number % 2], 0, f"id-{number:03}", "same")
            stored(fake, "ab"[number % 2], 1, f"no-{number:03}", "othr")
        found = await engine.ask(do.LookUp(TOPIC, "", "same", 1000, MIB))
        assert sorted(row[0] for row in said(found.rows)) == [b"id-%03d" % number for number in range(200)]
        times = [row[1] for row in found.rows]
        assert (times, found.more) == (sorted(times, reverse=True), False)
        found = await engine.ask(do.LookUp(TOPIC, "", "same", 30, MIB))
        assert sorted(row[0] for row in said(found.rows)) == [b"id-%03d" % number for number in range(170, 200)]
        assert found.more


@jumping
async def test_more_messages_of_a_second_than_an_index_gives_end_the_search_honestly() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        stored(fake, "a", 0, "first", "same")
        await passed(5.0)
        for number in range(100):
            stored(fake, "a", 0, f"id-{number}", "same")
        found = await engine.ask(do.LookUp(TOPIC, "", "same", 1000, MIB))
        assert said(found.rows)[-1][0] == b"first"
        assert (len(found.rows), found.more) == (65, True)


# ── Browse ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def browse(engine: ClusterEngine, topic: str, queue: int, offset: int, most: int = 10, size: int = MIB) -> Page:
    return await engine.ask(queries.Browse(topic, queue, offset, most, size))


@jumping
async def test_a_queue_is_browsed_in_pages_from_its_first_message_on() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "b", 0, *(b"%d" % n for n in range(50)))
        fake.brokers["b"].log.least["shop%orders", 0] = 5
        page = await browse(engine, TOPIC, 2, 0, 40)
        assert (said(page.rows)[0], len(page.rows)) == ((b"5", 2, 5, 0), 40)
        assert (page.next_offset, page.min_offset, page.max_offset, page.full) == (45, 5, 50, True)
        page = await browse(engine, TOPIC, 2, 45, 40)
        assert (len(page.rows), page.next_offset, page.full) == (5, 50, False)
        page = await browse(engine, TOPIC, 2, 50)
        assert (page.rows, page.next_offset, page.max_offset) == ([], 50, 50)
        assert (await browse(engine, TOPIC, 0, 0)).rows == []
        assert await code(browse(engine, TOPIC, 4, 0)) == ("INVALID_FIELD", "queue")
        assert await code(browse(engine, "no.topic", 0, 0)) == ("TOPIC_NOT_FOUND", "topic")


@jumping
async def test_dead_letters_and_retries_are_browsed_too() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        filled(fake, "a", 0, b"1", b"2")
        asked = do.SentBack(0, 0, reject=True, reason="why"), do.SentBack(0, 1, delay_ms=0)
        await engine.execute(do.SendBack(TOPIC, GROUP, asked))
        fake.register()
        ((data, *_),) = (await browse(engine, f"%DLQ%{GROUP}", 0, 0)).rows
        buried = pb.Message.FromString(data).dead_letter
        assert (buried.topic, buried.queue, buried.offset, buried.attempts, buried.reason) == (TOPIC, 0, 0, 1, "why")
        assert said((await browse(engine, f"%RETRY%{GROUP}+{TOPIC}", 0, 0)).rows) == [(b"2", 0, 0, 2)]
