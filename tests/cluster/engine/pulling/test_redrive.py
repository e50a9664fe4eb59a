"""Dead letters that are delivered again through a gateway, over the brokers of tests/remoting/fake."""

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_server.cluster import layout
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import queries
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, handles, pop, send
from tests.cluster.pulling import code, filled, pull, pulling, read
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, removing
from tests.remoting.jumping import jumping, passed

LETTERS = f"%DLQ%{GROUP}"


async def rejected(engine: ClusterEngine, *reasons: str) -> None:
    """Everything that the group gets is a dead letter, with these reasons in their turn."""
    rows = 0
    while popped := handles(await pop(engine)):
        changes = tuple(
            do.Change(handle, "reject", reason=reasons[(rows + index) % len(reasons)])
            for index, handle in enumerate(popped)
        )
        await engine.execute(do.ChangeInvisibleTime(GROUP, changes))
        rows += len(popped)


async def redriven(engine: ClusterEngine, **more: object) -> tuple[dict[str, int], list[tuple[int, str, str]]]:
    """The messages of each topic; (offset, id, code) of each failure."""
    found = await engine.execute(do.Redrive(GROUP, **more))  # type: ignore[arg-type]
    return found.topics, [(each.offset, each.message_id, each.why.code) for each in found.failures]


def groups(fake: FakeCluster, *names: str) -> None:
    for broker in fake.brokers.values():
        for name in names:
            broker.log.groups[name] = {"groupName": name, "retryMaxTimes": 16}


@jumping
async def test_dead_letters_are_delivered_again_to_their_group_alone_and_each_once() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        created(fake)
        groups(fake, "audit")
        for broker, queue_id in (("a", 0), ("b", 1)):
            filled(fake, broker, queue_id, *(b"%s%d" % (broker.encode(), n) for n in range(40)), tags="red")
        assert len((await engine.pop(do.Pop(TOPIC, "audit", max_messages=100), 0)).rows) == 80
        await rejected(engine, "no stock")
        fake.register()
        assert await redriven(engine) == ({TOPIC: 80}, [])
        assert (await other.pop(do.Pop(TOPIC, "audit", max_messages=100), 0)).rows == []
        again = await pop(other, max_messages=100)
        assert sorted(bodies(again)) == sorted(b"%s%d" % (broker, n) for broker in (b"a", b"b") for n in range(40))
        message = pb.Message.FromString(again.rows[0][0])
        assert (message.tag, message.HasField("dead_letter"), dict(message.properties)) == ("red", False, {})
        assert {row[4] for row in again.rows} == {1}
        assert await redriven(other) == ({}, []), "they were redriven"
        await passed(200.0)
        assert (await other.pop(do.Pop(TOPIC, "audit", max_messages=100), 0)).rows != [], "its own leases are over"


@jumping
async def test_a_reader_without_a_group_is_told_how_many_messages_are_for_another_group() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"%d" % n for n in range(4)))
        await rejected(engine, "no stock")
        fake.register()
        await redriven(engine)
        pulled = [await pull(engine, queue, 0, max_messages=100) for queue in range(2)]
        assert [body for each in pulled for body, _, _ in read(each)] == [b"0", b"1", b"2", b"3"]
        assert sum(each.next_offset for each in pulled) == 8
        assert sum(each.passed_over for each in pulled) == 4


@jumping
async def test_letters_are_chosen_by_id_topic_or_reason() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"%d" % n for n in range(4)))
        await rejected(engine, "no stock", "Traceback (most recent call last):\n  line\nKeyError: 7")
        fake.register()
        assert await redriven(engine, topic="other") == ({}, [])
        assert await redriven(engine, reason="no stock") == ({TOPIC: 2}, [])
        assert sorted(bodies(await pop(engine))) == [b"0", b"2"]
        assert await redriven(engine, reason="KeyError: 7", topic=TOPIC) == ({TOPIC: 2}, [])
        assert sorted(bodies(await pop(engine))) == [b"1", b"3"]
        asked = frozenset({"a-0-3", "nobody"})
        assert await redriven(engine, message_ids=asked) == ({TOPIC: 1}, [(-1, "nobody", "MESSAGE_NOT_FOUND")])
        assert bodies(await pop(engine)) == [b"3"]
        assert await redriven(engine, offsets=(1, 1, 9)) == ({TOPIC: 1}, [(9, "", "MESSAGE_NOT_FOUND")])
        assert bodies(await pop(engine)) == [b"1"]
        assert await redriven(engine, offsets=(0,), reason="KeyError: 7") == ({}, [(0, "a-0-0", "MESSAGE_NOT_FOUND")])


@jumping
async def test_of_a_message_that_died_twice_the_newest_letter_is_redriven() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1")
        await rejected(engine, "first")
        fake.register()
        await redriven(engine)
        await passed(1.0)
        await rejected(engine, "second")
        asked = frozenset({"a-0-0"})
        assert await redriven(engine, message_ids=asked, reason="first") == ({}, [(1, "a-0-0", "MESSAGE_NOT_FOUND")])
        assert await redriven(engine, message_ids=asked, reason="second") == ({TOPIC: 1}, [])


@jumping
async def test_offsets_name_no_letter_where_several_brokers_have_some() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1")
        filled(fake, "b", 0, b"2")
        await rejected(engine, "why")
        fake.register()
        assert await code(redriven(engine, offsets=(0,))) == ("INVALID_FIELD", "offsets")
        assert await redriven(engine, message_ids=frozenset({"b-0-0"})) == ({TOPIC: 1}, [])
        assert bodies(await pop(engine)) == [b"2"]


@jumping
async def test_a_letter_that_cannot_be_delivered_is_told_and_the_others_are() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, b"1")
        await rejected(engine, "why")
        log = fake.brokers["a"].log
        log.append("%DLQ%shop%bill", 0, b"2", "UNIQ_KEY\x01native\x02")
        log.append("%DLQ%shop%bill", 0, b"3", "UNIQ_KEY\x01gone\x02DLQ_ORIGIN_TOPIC\x01gone%topic\x02")
        fake.register()
        assert await redriven(engine) == (
            {TOPIC: 1},
            [(1, "native", "MESSAGE_NOT_FOUND"), (2, "gone", "TOPIC_NOT_FOUND")],
        )


@jumping
async def test_a_redrive_that_a_broker_stops_goes_on_when_it_is_repeated() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"%d" % n for n in range(100)))
        await rejected(engine, "why")
        fake.register()
        sent = fake.brokers["a"].counts[RequestCode.SEND_MESSAGE_V2]
        for _ in range(40):
            fake.brokers["a"].faults.add(Fault(Kind.DROPPED), RequestCode.UPDATE_CONSUMER_OFFSET)
        assert await code(redriven(engine)) == ("UNAVAILABLE", "")
        assert fake.brokers["a"].counts[RequestCode.SEND_MESSAGE_V2] - sent == 32
        fake.brokers["a"].faults.clear()
        await passed(10.0)
        assert await redriven(engine) == ({TOPIC: 100}, [])
        assert len((await pop(engine, max_messages=200)).rows) == 132, "those of the piece that was not noted, twice"


@jumping
async def test_a_group_that_pulls_gets_its_letters_in_its_retry_topic() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        groups(fake, "audit")
        await pulling(engine)
        filled(fake, "a", 1, b"1", b"2")
        await engine.execute(do.SendBack(TOPIC, GROUP, (do.SentBack(1, 1, reject=True),)))
        fake.register()
        assert await redriven(engine) == ({TOPIC: 1}, [])
        found = await engine.pull(do.Pull(f"%RETRY%{GROUP}+{TOPIC}", GROUP, 0, 0), 0)
        assert [(pb.Message.FromString(row[0]).body, row[4]) for row in found.rows] == [(b"2", 1)]
        assert len((await pull(engine, 1)).rows) == 2


@jumping
async def test_readers_by_offset_step_over_what_was_redriven_for_another_group() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        groups(fake, "audit")
        await engine.execute(do.SetConsumeMode(TOPIC, "audit", "PULL"))
        filled(fake, "a", 0, b"1")
        await rejected(engine, "why")
        fake.register()
        for _ in range(3):
            await redriven(engine, message_ids=frozenset({"a-0-0"}))
        rows, at = [], {0: 0, 1: 0}
        for queue in at:
            for group in ("", "audit"):
                found = await pull(engine, queue, 0, group=group)
                rows += read(found)
                if found.max_offset:
                    assert found.next_offset == found.max_offset
        assert rows == [(b"1", 0, 0)] * 2
        browsed = [await engine.ask(queries.Browse(TOPIC, queue, 0, 9, 1 << 20)) for queue in at]
        assert sum(len(page.rows) for page in browsed) == 4, "operators see them"


@jumping
async def test_redriven_messages_of_a_message_group_stay_in_its_queue_in_their_order() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "FIFO"})
        topic = await engine.shared.topics.get(TOPIC)
        await engine.shared.layouts.write(topic, layout.of_route({"a": 2, "b": 2}))
        messages = [pb.Message(message_id=f"m{n}", body=b"%d" % n, message_group="customer-7") for n in range(5)]
        places = await send(engine, *messages)
        await rejected(engine, "why")
        fake.register()
        assert await redriven(engine) == ({TOPIC: 5}, [])
        again = await pop(engine)
        assert bodies(again) == [b"%d" % n for n in range(5)]
        assert {row[2] for row in again.rows} == {place.queue for place in places}  # type: ignore[union-attr]


@jumping
async def test_a_group_without_letters_has_nothing_to_redrive() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        assert await redriven(engine) == ({}, [])
        assert await redriven(engine, message_ids=frozenset({"m"})) == ({}, [(-1, "m", "MESSAGE_NOT_FOUND")])
        assert await code(engine.execute(do.Redrive("nobody"))) == ("GROUP_NOT_FOUND", "group")
        assert await code(engine.execute(do.Redrive(""))) == ("UNSUPPORTED", "group")


@jumping
async def test_letters_behind_those_that_their_broker_is_removing_are_redriven() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        filled(fake, "a", 0, *(b"%d" % n for n in range(8)))
        await rejected(engine, "no stock")
        fake.register()
        await engine.ask(queries.Browse(LETTERS, 0, 0, 1, 1_000))  # makes the group of readers
        pulls = fake.brokers["a"].faults
        pulls.add(removing(0, 8), RequestCode.PULL_MESSAGE)
        assert await code(engine.execute(do.Redrive(GROUP))) == ("UNAVAILABLE", "")
        pulls.add(removing(6, 8), RequestCode.PULL_MESSAGE)
        assert await redriven(engine) == ({TOPIC: 2}, [])
        assert await redriven(engine) == ({}, [])
