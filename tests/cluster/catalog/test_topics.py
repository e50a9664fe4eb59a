"""Topics that are created, changed and deleted through a gateway, over the brokers of tests/remoting/fake."""

import asyncio
from dataclasses import replace

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server.cluster import layout, names
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.contract.operations import A, Command
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed

NEW = do.CreateTopic(TOPIC, 4, False, None)
KNOWN = "shop%orders"


async def refused(engine: ClusterEngine, command: Command[A]) -> Refused:
    with pytest.raises(Refused) as caught:
        await engine.execute(command)
    return caught.value


def queues(fake: FakeCluster, topic: str = KNOWN) -> dict[str, int]:
    """Of each broker that has the topic."""
    logs = {name: broker.log for name, broker in fake.brokers.items()}
    return {name: len(log.topics[topic].queues) for name, log in logs.items() if topic in log.topics}


def kept(fake: FakeCluster, fifo: bool = False) -> str | None:
    """The layout at the name server."""
    return fake.name_servers[0].kv.get((layout.namespace(fifo), KNOWN))


@jumping
async def test_a_topic_is_spread_over_the_brokers_has_its_type_at_each_and_can_be_sent_to_at_once() -> None:
    async with FakeCluster(("a", "b", "c")) as fake, gateway(fake) as engine:
        assert (await refused(engine, do.UpdateTopic(TOPIC, 5, None))).code == "TOPIC_NOT_FOUND"
        made = await engine.execute(replace(NEW, type="FIFO"))
        assert (made.existed, made.topic.queues, made.topic.type) == (False, 4, "FIFO")
        assert queues(fake) == {"a": 2, "b": 1, "c": 1}
        assert {broker.log.topics[KNOWN].attributes["message.type"] for broker in fake.brokers.values()} == {"FIFO"}
        assert kept(fake, fifo=True) == "a:2;b:1;c:1"
        (place,) = await send(engine, pb.Message(message_id="1", body=b"x", message_group="g"))
        assert isinstance(place, Place)


@jumping
async def test_each_broker_gets_a_queue_however_few_are_asked_for_and_the_same_call_finds_the_topic() -> None:
    async with FakeCluster(("a", "b", "c")) as fake, gateway(fake) as engine, gateway(fake) as other:
        one = replace(NEW, queues=1)
        assert (await engine.execute(one)).topic.queues == 3
        again = await other.execute(one)
        assert (again.existed, again.topic.queues) == (True, 3)


@jumping
async def test_a_topic_that_exists_with_other_settings_is_refused_and_stays_as_it_is() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        for other in (replace(NEW, type="FIFO"), replace(NEW, queues=6), replace(NEW, permission="READ_ONLY")):
            assert (await refused(engine, other)).code == "ALREADY_EXISTS"
        assert (queues(fake), kept(fake)) == ({"a": 2, "b": 2}, "a:2;b:2")
        assert fake.brokers["a"].log.topics[KNOWN].attributes == {"message.type": "NORMAL"}


@jumping
async def test_a_creation_that_one_broker_refused_names_it_and_the_same_call_mends_it() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        fake.brokers["b"].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.UPDATE_AND_CREATE_TOPIC)
        half = await refused(engine, NEW)
        assert (half.code, queues(fake)) == ("UNAVAILABLE", {"a": 2})
        assert "done at 1 of 2 brokers; left are b" in half.message
        assert "the same call" in half.action
        assert not (await engine.execute(NEW)).existed
        assert (await engine.execute(NEW)).existed
        assert queues(fake) == {"a": 2, "b": 2}


@jumping
async def test_a_broker_that_is_away_holds_up_a_new_topic_but_not_one_that_exists() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        await fake.brokers["b"].stop()
        assert (await engine.execute(NEW)).existed
        away = await refused(engine, replace(NEW, name="other"))
        assert (away.code, queues(fake, "other")) == ("UNAVAILABLE", {})
        assert "broker b" in away.message


@jumping
async def test_a_broker_that_comes_later_gets_no_queue_of_a_topic_that_is_whole() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        del fake.name_servers[0].brokers["b"]
        fake.register("a")
        await engine.execute(replace(NEW, queues=2))
        fake.register()
        await passed(60.0)
        assert (await engine.execute(replace(NEW, queues=2))).existed
        assert queues(fake) == {"a": 2}


@jumping
async def test_a_fifo_topic_whose_layout_is_lost_is_not_given_another_one() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        fifo = replace(NEW, type="FIFO")
        await engine.execute(fifo)
        fake.name_servers[0].kv.clear()
        lost = await refused(other, fifo)
        assert lost.code == "UNAVAILABLE"
        assert "popmq cluster layout shop.orders --set" in lost.action


@jumping
async def test_more_queues_go_where_there_are_the_fewest_and_have_the_next_numbers() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(replace(NEW, queues=3))
        changed = await engine.execute(do.UpdateTopic(TOPIC, 6, None))
        assert (changed.queues, queues(fake), kept(fake)) == (6, {"a": 3, "b": 3}, "a:2;b:1;a:1;b:2")
        assert (await refused(engine, do.UpdateTopic(TOPIC, 5, None))).code == "INVALID_FIELD"


@jumping
async def test_a_gateway_that_meets_a_new_queue_before_all_are_added_gives_it_the_number_that_it_keeps() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        await engine.execute(NEW)
        topic = await other.shared.topics.get(TOPIC)
        fake.brokers["a"].faults.add(Fault(Kind.SLOW, seconds=0.5), RequestCode.UPDATE_AND_CREATE_TOPIC)
        registers, fake.brokers["a"].registers = fake.brokers["a"].registers, lambda: None
        adding = asyncio.ensure_future(engine.execute(do.UpdateTopic(TOPIC, 6, None)))
        await passed(0.2)
        await other.shared.brokers.route_anew(TOPIC)
        number = await other.shared.layouts.number(topic, "b", 2)
        registers()
        await adding
        assert kept(fake) == "a:2;b:2;a:1;b:1"
        assert await engine.shared.layouts.number(topic, "b", 2) == number == 5


@jumping
async def test_more_queues_that_one_broker_refused_are_added_by_the_same_call() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(replace(NEW, queues=2))
        more = do.UpdateTopic(TOPIC, 6, None)
        fake.brokers["a"].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.UPDATE_AND_CREATE_TOPIC)
        half = await refused(engine, more)
        assert (half.code, queues(fake)) == ("UNAVAILABLE", {"a": 1, "b": 3})
        assert "left are a" in half.message
        assert (await engine.execute(more)).queues == 6
        assert queues(fake) == {"a": 3, "b": 3}


@jumping
async def test_neither_the_type_of_a_topic_nor_the_number_of_a_fifo_topic_s_queues_changes() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(replace(NEW, type="FIFO"))
        for change in (do.UpdateTopic(TOPIC, 0, None, type="NORMAL"), do.UpdateTopic(TOPIC, 5, None)):
            assert (await refused(engine, change)).code == "INVALID_FIELD"
        assert (queues(fake), fake.brokers["a"].log.topics[KNOWN].attributes) == (
            {"a": 2, "b": 2},
            {"message.type": "FIFO"},
        )


@jumping
async def test_a_permission_changes_at_each_broker_and_refuses_sends() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(replace(NEW, type="DELAY"))
        changed = await engine.execute(do.UpdateTopic(TOPIC, 0, None, (("permission", "READ_ONLY"),)))
        assert (changed.permission, changed.queues, changed.type) == ("READ_ONLY", 4, "DELAY")
        assert {broker.log.topics[KNOWN].perm for broker in fake.brokers.values()} == {4}
        with pytest.raises(Refused, match="permission of topic"):
            await send(engine, pb.Message(message_id="1", body=b"x"))


@jumping
async def test_what_one_broker_permits_is_permitted_while_the_operator_empties_another_one() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].log.topics[KNOWN].perm = 4
        fake.register()
        for number in range(4):
            (place,) = await send(engine, pb.Message(message_id=str(number), body=b"x"))
            assert isinstance(place, Place)
            assert place.queue in (2, 3)


@jumping
async def test_a_topic_with_other_numbers_of_queues_at_its_brokers_is_served() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["b"].log.create(KNOWN, 5)
        fake.brokers["a"].log.create("on-a-alone", 1)
        fake.register()
        for number in range(10):
            await send(engine, pb.Message(message_id=str(number), body=b"%d" % number))
        assert sorted(bodies(await pop(engine, max_messages=20))) == [b"%d" % number for number in range(10)]
        assert isinstance((await send(engine, pb.Message(message_id="1", body=b"x"), topic="on-a-alone"))[0], Place)
        assert (await engine.execute(do.CreateTopic("on-a-alone", 1, False, None))).existed
        assert queues(fake, "on-a-alone") == {"a": 1}


@jumping
async def test_a_layout_that_name_servers_have_lost_keeps_its_order_when_a_queue_is_added_meanwhile() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        topic = await engine.shared.topics.get(TOPIC)
        await engine.shared.layouts.write(topic, layout.read("b:2;a:2"))
        fake.name_servers[0].kv.clear()
        fake.create(KNOWN, 3, None)
        fake.brokers["b"].log.append(KNOWN, 2, b"x", "UNIQ_KEY\x011\x02")
        assert (await pop(engine)).rows == [], "its route does not have the queue yet"
        assert kept(fake) == "b:2;a:2"
        await passed(60.0)
        assert len((await pop(engine)).rows) == 1
        await engine.ask(do.LookUp(TOPIC, "1", "", 4, 1 << 20))
        assert kept(fake) == "b:2;a:3;b:1"


@jumping
async def test_a_deleted_topic_is_gone_everywhere_with_its_layout_and_what_a_pull_group_sent_back() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        created(fake)
        await send(other, pb.Message(message_id="1", body=b"x"))
        hidden = names.retry_topic(GROUP, TOPIC)
        fake.brokers["a"].log.create(hidden, 1)
        fake.register()
        await engine.execute(do.DeleteTopic(TOPIC))
        assert (queues(fake), queues(fake, hidden), kept(fake)) == ({}, {}, None)
        with pytest.raises(Refused, match="there is no topic"):
            await send(engine, pb.Message(message_id="2", body=b"x"))
        (gone,) = await send(other, pb.Message(message_id="3", body=b"x"))
        assert isinstance(gone, Refused)
        assert gone.code == "TOPIC_NOT_FOUND"
        assert (await refused(engine, do.DeleteTopic(TOPIC))).code == "TOPIC_NOT_FOUND"


@jumping
async def test_a_deletion_that_one_broker_refused_names_it_and_the_same_call_does_the_rest() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        fake.brokers["b"].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.DELETE_TOPIC_IN_BROKER)
        half = await refused(engine, do.DeleteTopic(TOPIC))
        assert (half.code, queues(fake)) == ("UNAVAILABLE", {"b": 2})
        assert "left are b" in half.message
        await engine.execute(do.DeleteTopic(TOPIC))
        assert (queues(fake), kept(fake)) == ({}, None)
        assert not (await engine.execute(replace(NEW, type="FIFO"))).existed


@jumping
async def test_no_call_creates_a_topic_or_group_that_it_only_names() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for broker in fake.brokers.values():
            broker.settings.update(autoCreateTopicEnable="true", autoCreateSubscriptionGroup="true")
        with pytest.raises(Refused) as topic:
            await send(engine, pb.Message(message_id="1", body=b"x"), topic="shop.order")
        with pytest.raises(Refused) as group:
            await engine.pop(do.Pop(TOPIC, "shop.bil"), 0)
        assert [each.value.code for each in (topic, group)] == ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"]
        # Another gateway deleted it a moment ago, and this one does not know it yet.
        await send(engine, pb.Message(message_id="1", body=b"x"))
        for broker in fake.brokers.values():
            del broker.log.topics[KNOWN]
        (gone,) = await send(engine, pb.Message(message_id="2", body=b"x"))
        assert isinstance(gone, Refused)
        assert gone.code == "TOPIC_NOT_FOUND"
        assert [*fake.brokers["a"].log.topics, *fake.brokers["a"].log.groups] == ["shop%bill"]


@jumping
async def test_a_topic_that_did_not_exist_is_unavailable_while_nobody_can_say_whether_it_does_now() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        fake.create("other", group="shop%bill")
        with pytest.raises(Refused, match="there is no topic"):
            await pop(engine)
        created(fake)
        await passed(60.0)
        await fake.name_servers[0].stop()
        with pytest.raises(Refused) as unknown:
            await pop(engine)
        assert unknown.value.code == "UNAVAILABLE"
        await fake.name_servers[0].start()
        await passed(5.0)
        assert (await pop(engine)).rows == []


@jumping
async def test_the_names_of_gateways_and_brokers_are_refused_and_nothing_is_asked() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        for name in ("popmq_retry_1", "TBW102", "rmq_sys_x", "a" * 128):
            invalid = await refused(engine, replace(NEW, name=name))
            assert (invalid.code, invalid.field) == ("INVALID_FIELD", "topic.name")
        assert fake.brokers["a"].counts == {}


@jumping
async def test_a_wrong_name_of_the_cluster_is_told_with_the_right_ones() -> None:
    async with FakeCluster() as fake, gateway(fake, name="test") as engine:
        wrong = await refused(engine, NEW)
        assert (wrong.code, wrong.action) == ("UNAVAILABLE", "the operator names the cluster: --cluster NAME")
        assert "the name servers know c, not test" in wrong.message
