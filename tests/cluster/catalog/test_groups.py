"""Groups that are created, changed and deleted through a gateway, and where they begin to read."""

import json
from dataclasses import replace

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server.cluster import names
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import queries
from popmq_server.contract.operations import A, Command
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, gateway, pop, send
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import answering
from tests.remoting.jumping import jumping, passed

KNOWN, LETTERS = "shop%bill", "%DLQ%shop%bill"
NEW = do.CreateGroup(GROUP, 5, (1_000, 60_000), 45_000, 0, "EARLIEST", 0, False)
LATEST = replace(NEW, start_from="LATEST")


async def refused(engine: ClusterEngine, command: Command[A]) -> Refused:
    with pytest.raises(Refused) as caught:
        await engine.execute(command)
    return caught.value


async def sent(engine: ClusterEngine, *texts: str) -> None:
    """One by one, so that they are in several queues."""
    for text in texts:
        await send(engine, pb.Message(message_id=text, body=text.encode()))


async def popped(engine: ClusterEngine) -> list[str]:
    return sorted(body.decode() for body in bodies(await pop(engine, max_messages=100)))


def having(fake: FakeCluster) -> list[str]:
    """The brokers that have the group."""
    return [name for name, broker in fake.brokers.items() if KNOWN in broker.log.groups]


def kept(fake: FakeCluster) -> dict[str, object]:
    """What the name server keeps of the group."""
    return dict(json.loads(fake.name_servers[0].kv.get(("POPMQ_GROUPS", KNOWN), "{}")))


@jumping
async def test_the_dead_letters_of_a_new_group_can_be_read_at_once_though_they_were_asked_for_before() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        page = queries.Browse(f"%DLQ%{GROUP}", 0, 0, 10, 1_000)
        with pytest.raises(Refused) as refused:
            await engine.ask(page)
        assert refused.value.code == "TOPIC_NOT_FOUND"
        await engine.execute(NEW)
        assert (await engine.ask(page)).rows == []


@jumping
async def test_a_group_is_made_at_each_broker_with_its_dead_letters_and_the_rest_at_the_name_servers() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        wanted = replace(LATEST, share_number=2, fifo=True)
        made = await engine.execute(wanted)
        assert not made.existed
        for broker in fake.brokers.values():
            config = broker.log.groups[KNOWN]
            assert (config["retryMaxTimes"], config["consumeMessageOrderly"]) == (4, True)
            assert LETTERS in broker.log.topics
        assert kept(fake) == {
            "invisible_ms": 45_000,
            "share_number": 2,
            "start_from": "LATEST",
            "start_ms": 0,
            "created_ms": made.group.created_ms,
        }
        group = await other.shared.groups.get(GROUP)
        assert group == made.group
        assert (group.max_attempts, group.delays_ms, group.invisible_ms) == (5, (1_000, 60_000), 45_000)


@jumping
async def test_a_group_that_exists_is_found_with_equal_settings_and_refused_with_others() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        made = await engine.execute(NEW)
        assert await other.execute(NEW) == do.CreatedGroup(made.group, True)
        before = [{**broker.log.groups} for broker in fake.brokers.values()]
        for changed in (replace(NEW, max_attempts=6), replace(NEW, invisible_ms=1_000), LATEST):
            assert (await refused(other, changed)).code == "ALREADY_EXISTS"
        assert [broker.log.groups for broker in fake.brokers.values()] == before


@jumping
async def test_a_group_that_one_broker_refused_names_it_and_the_same_call_mends_it() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        fake.brokers["b"].faults.add(answering(ResponseCode.SYSTEM_ERROR), code, times=2)
        half = await refused(engine, NEW)
        assert (half.code, having(fake)) == ("UNAVAILABLE", ["a"])
        assert "left are b" in half.message
        assert (await refused(engine, NEW)).code == "UNAVAILABLE"
        assert not (await engine.execute(NEW)).existed
        assert (await engine.execute(NEW)).existed
        assert having(fake) == ["a", "b"]


@jumping
async def test_a_broker_that_is_away_holds_up_a_new_group_but_not_one_that_exists() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        await fake.brokers["b"].stop()
        assert (await engine.execute(NEW)).existed
        assert (await refused(engine, replace(NEW, name="other"))).code == "UNAVAILABLE"
        assert (await refused(engine, replace(NEW, name="other"))).code == "UNAVAILABLE"


@jumping
async def test_a_group_of_half_of_the_brokers_delivers_and_then_names_the_broker_that_lacks_it() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
        await engine.execute(NEW)
        del fake.brokers["b"].log.groups[KNOWN]
        await sent(engine, *"1234")
        assert len(await popped(engine)) == 2
        with pytest.raises(Refused) as lacking:
            await pop(engine, 20_000)
        assert (lacking.value.code, "makes it at broker b" in lacking.value.action) == ("UNAVAILABLE", True)
        assert not (await engine.execute(NEW)).existed
        assert len(await popped(engine)) == 2


@jumping
async def test_a_group_that_another_gateway_deleted_is_not_found_after_a_moment() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine, gateway(fake) as other:
        await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
        await engine.execute(NEW)
        await pop(other)
        await passed(1.0)
        await engine.execute(do.DeleteGroup(GROUP))
        codes = []
        for _ in range(2):
            with pytest.raises(Refused) as gone:
                await pop(other)
            codes.append(gone.value.code)
        assert codes == ["UNAVAILABLE", "GROUP_NOT_FOUND"]


@jumping
async def test_a_group_that_another_gateway_has_made_is_found_after_a_second() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
        await other.ask(queries.GroupSettings())
        await engine.execute(NEW)
        await passed(1.0)
        before = fake.brokers["a"].counts[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG]
        assert await popped(other) == []
        for _ in range(10):
            with pytest.raises(Refused, match="there is no group"):
                await other.pop(do.Pop(TOPIC, "nobody"), 0)
        asked = fake.brokers["a"].counts[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] - before
        assert asked == 1, "who names what does not exist costs a question in a second"


@jumping
async def test_a_group_of_another_program_that_no_call_can_name_harms_no_other_one() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        for odd in ("my.group", "g" * 255):
            fake.create(f"%DLQ%{odd}", 1, odd)
        await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
        await engine.execute(NEW)
        await sent(engine, "1")
        assert await popped(engine) == ["1"]
        assert [each.name for each in await engine.ask(queries.GroupSettings())] == [GROUP]
        assert [each.topic.name for each in await engine.ask(queries.Topics())] == [f"%DLQ%{GROUP}", TOPIC]


@jumping
async def test_a_group_of_another_program_is_taken_over_with_the_settings_that_brokers_do_not_have() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        fake.name_servers[0].kv.clear()
        assert (await refused(engine, replace(LATEST, max_attempts=9))).code == "ALREADY_EXISTS"
        assert (await engine.execute(LATEST)).group.start_from == "LATEST"
        assert kept(fake)["start_from"] == "LATEST"


@jumping
async def test_an_update_changes_all_settings_and_keeps_the_time_of_creation() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        made = (await engine.execute(NEW)).group
        wanted = vars(replace(NEW, max_attempts=9, delays_ms=(7_000,), invisible_ms=90_000, consume_enable=False))
        changed = await engine.execute(do.UpdateGroup(GROUP, wanted))
        assert changed == made._replace(max_attempts=9, delays_ms=(7_000,), invisible_ms=90_000, consume_enable=False)
        assert await other.shared.groups.get(GROUP) == changed
        assert {broker.log.groups[KNOWN]["consumeEnable"] for broker in fake.brokers.values()} == {False}
        assert (await refused(engine, do.UpdateGroup("other", vars(NEW)))).code == "GROUP_NOT_FOUND"


@jumping
async def test_an_update_keeps_how_long_the_operator_lets_push_consumers_take() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        fake.brokers["a"].log.groups[KNOWN]["consumeTimeoutMinute"] = 2
        del fake.brokers["b"].log.groups[KNOWN]
        await engine.execute(do.UpdateGroup(GROUP, vars(replace(NEW, max_attempts=9))))
        configs = [broker.log.groups[KNOWN] for broker in fake.brokers.values()]
        assert [(each["retryMaxTimes"], each["consumeTimeoutMinute"]) for each in configs] == [(8, 2), (8, 2)]


@jumping
async def test_push_consumers_have_forty_nine_days_where_the_operator_lets_them_take_longer() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
        await engine.execute(NEW)
        fake.brokers["a"].log.groups[KNOWN]["consumeTimeoutMinute"] = 100_000
        await passed(16.0)
        await sent(engine, "1")
        found = await pop(engine, session=True)
        assert found.due_ms - found.popped_ms == 49 * 86_400_000


@jumping
async def test_a_deleted_group_leaves_no_position_letter_or_retry_and_those_of_others_stay() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
        await engine.execute(LATEST)
        await pop(engine)
        theirs = ["%RETRY%shop%bill_2_orders", "%RETRY%shop%bill+x", "%DLQ%shop%bill_2"]
        ours = [
            *("%RETRY%shop%bill", "%RETRY%shop%bill_shop%orders", "%RETRY%shop%bill+shop%orders"),
            names.retry_topic(GROUP, TOPIC),
        ]
        log = fake.brokers["a"].log
        log.groups["shop%bill_2"] = {"groupName": "shop%bill_2"}
        for topic in ("orders", "2_orders", *theirs, *ours):
            log.create(topic, 1)
        fake.register()
        await engine.execute(do.DeleteGroup(GROUP))
        assert (having(fake), kept(fake)) == ([], {})
        assert not any(key[0] == KNOWN for broker in fake.brokers.values() for key in broker.log.offsets)
        assert {*log.topics} == {"shop%orders", "orders", "2_orders", *theirs}
        assert (await refused(engine, do.DeleteGroup(GROUP))).code == "GROUP_NOT_FOUND"


@jumping
async def test_a_deletion_that_one_broker_refused_names_it_and_the_same_call_does_the_rest() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(NEW)
        fake.brokers["b"].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.DELETE_SUBSCRIPTIONGROUP)
        half = await refused(engine, do.DeleteGroup(GROUP))
        assert (half.code, having(fake)) == ("UNAVAILABLE", ["b"])
        await engine.execute(do.DeleteGroup(GROUP))
        assert (having(fake), kept(fake), LETTERS in fake.brokers["a"].log.topics) == ([], {}, False)


# ── Where it begins ──────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_group_begins_with_the_first_message_or_after_the_last_one_or_at_a_time() -> None:
    for start, expected in (("EARLIEST", "123456"), ("LATEST", "56"), ("TIMESTAMP", "3456")):
        async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
            await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
            await sent(engine, "1", "2")
            await passed(60.0)
            await engine.execute(replace(NEW, start_from=start, start_ms=loop_ms() if start == "TIMESTAMP" else 0))
            await sent(engine, "3", "4")
            first = await popped(engine)
            await sent(engine, "5", "6")
            assert first + await popped(other) == [*expected]


@jumping
async def test_what_is_sent_to_a_queue_that_is_added_later_is_not_missed() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        await engine.execute(do.CreateTopic(TOPIC, 2, False, None))
        await engine.execute(LATEST)
        assert await popped(engine) == []
        await engine.execute(do.UpdateTopic(TOPIC, 6, None))
        await sent(engine, *"123456")
        assert await popped(other) == [*"123456"]


@jumping
async def test_the_start_is_looked_up_once_and_waits_for_all_brokers_of_the_topic() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        await engine.execute(do.CreateTopic(TOPIC, 2, False, None))
        await engine.execute(LATEST)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        fake.brokers["b"].faults.add(answering(ResponseCode.SYSTEM_ERROR), code)
        with pytest.raises(Refused, match="broker b"):
            await pop(engine)
        assert fake.brokers["a"].log.offsets == {}
        for _ in range(3):
            await pop(engine)
        assert [broker.counts[code] for broker in fake.brokers.values()] == [2, 2]


@jumping
async def test_a_group_begins_anew_in_a_topic_that_was_deleted_and_made_again() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine, gateway(fake) as other:
        await engine.execute(LATEST)
        for expected in ("12", "34"):
            await engine.execute(do.CreateTopic(TOPIC, 4, False, None))
            await sent(engine, "0")
            assert await popped(engine) + await popped(other) == []
            await sent(engine, *expected)
            assert await popped(engine) == [*expected]
            await engine.execute(do.DeleteTopic(TOPIC))
            await passed(1.0)
            with pytest.raises(Refused):
                await pop(other)
            await passed(1.0)
            with pytest.raises(Refused, match="there is no topic"):
                await pop(other)
            await passed(1.0)
