"""Bad days of brokers, as a gateway's clients see them: in time, typed, and without harm to others."""

import asyncio
import functools
from collections.abc import Coroutine

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_server.cluster import layout
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.popping.waits import LineKey
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed, until

BOTH = ("a", "b")


def message(number: int = 1, **more: str) -> pb.Message:
    return pb.Message(message_id=f"id-{number}", body=b"%d" % number, **more)  # type: ignore[arg-type]


async def refused(engine: ClusterEngine, *messages: pb.Message) -> Refused:
    with pytest.raises(Refused) as caught:
        await send(engine, *messages)
    return caught.value


def stored(fake: FakeCluster, broker: str) -> int:
    return sum(len(queue) for queue in fake.brokers[broker].log.topics["shop%orders"].queues)


def sends(fake: FakeCluster) -> int:
    codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    return sum(broker.counts[code] for broker in fake.brokers.values() for code in codes)


@jumping
async def test_while_a_broker_is_away_all_messages_go_to_the_other_one() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, message(0))
        await fake.brokers["a"].stop()
        for number in range(6):
            (place,) = await send(engine, message(number))
            assert isinstance(place, Place)
        assert stored(fake, "b") >= 6


@jumping
async def test_a_message_group_waits_for_its_broker_and_goes_to_no_other() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "FIFO"})
        topic = await engine.shared.topics.get(TOPIC)
        await engine.shared.layouts.write(topic, layout.of_route({"a": 2, "b": 2}))
        places = await send(engine, *(message(number, message_group=f"m{number}") for number in range(8)))
        assert {place.queue < 2 for place in places if isinstance(place, Place)} == {True, False}
        await fake.brokers["a"].stop()
        after = await send(engine, *(message(number, message_group=f"m{number}") for number in range(8)))
        for before, now in zip(places, after, strict=True):
            assert isinstance(before, Place)
            if before.queue < 2:
                assert isinstance(now, Refused)
                assert now.code == "UNAVAILABLE"
            else:
                assert now == Place(before.queue, before.offset + places_of(places, before.queue))


@jumping
async def test_while_a_broker_stands_still_sends_and_pops_of_others_do_not_wait_for_it() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *map(message, range(2)))
        await pop(engine, 100)  # the group is known, and both brokers are
        fake.brokers["a"].running.clear()
        caught = list[asyncio.Task[Place | Refused]]()
        for number in range(2):  # in turn: one of them goes to a
            caught.append(asyncio.ensure_future(send_or_refused(engine, message(number))))
            await passed(0.1)
        await passed(1.1)
        began_s = asyncio.get_running_loop().time()
        for number in range(10, 16):
            (place,) = await send(engine, message(number))
            assert isinstance(place, Place)
        assert {b"%d" % number for number in range(10, 16)} <= set(bodies(await pop(engine, 5_000)))
        assert asyncio.get_running_loop().time() - began_s < 0.5
        for outcome in await asyncio.gather(*caught):
            assert isinstance(outcome, Place) or "stored twice" in outcome.action
        assert asyncio.get_running_loop().time() - began_s < 6.0
        fake.brokers["a"].running.set()


def places_of(places: list[Place | Refused], queue: int) -> int:
    """How many messages went to a queue."""
    return sum(isinstance(place, Place) and place.queue == queue for place in places)


@jumping
async def test_a_fifo_topic_without_a_layout_is_refused_with_what_the_operator_does() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "FIFO"})
        found = await refused(engine, message(message_group="m"))
        assert found.code == "UNAVAILABLE"
        assert "popmq cluster layout shop.orders --set" in found.action


@pytest.mark.parametrize(
    ("number", "remark", "code"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, "", "UNAVAILABLE"),
        (ResponseCode.SLAVE_NOT_AVAILABLE, "", "UNAVAILABLE"),
        (ResponseCode.MESSAGE_ILLEGAL, "the message body size over max value", "INVALID_FIELD"),
        (ResponseCode.SYSTEM_ERROR, "too few", "UNAVAILABLE"),
    ],
)
@jumping
async def test_what_may_be_stored_or_is_wrong_is_told_and_not_sent_again(number: int, remark: str, code: str) -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        for broker in fake.brokers.values():
            broker.faults.add(answering(number, remark), RequestCode.SEND_MESSAGE_V2, times=None)
        places = await send_or_refused(engine, message())
        assert isinstance(places, Refused)
        assert places.code == code
        assert sends(fake) == 1


async def send_or_refused(engine: ClusterEngine, one: pb.Message) -> Place | Refused:
    try:
        (place,) = await send(engine, one)
    except Refused as found:
        return found
    return place


@jumping
async def test_a_send_whose_answer_is_lost_is_not_repeated() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        for broker in fake.brokers.values():
            broker.faults.add(Fault(Kind.CUT, size=3), RequestCode.SEND_MESSAGE_V2)
        found = await refused(engine, message())
        assert found.code == "UNAVAILABLE"
        assert "stored twice" in found.action
        assert sends(fake) == 1


@jumping
async def test_a_message_that_a_broker_finds_too_large_harms_no_neighbour_of_its_batch() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        broker = fake.brokers["a"]
        broker.faults.add(answering(ResponseCode.MESSAGE_ILLEGAL), RequestCode.SEND_BATCH_MESSAGE)
        broker.faults.add(answering(ResponseCode.MESSAGE_ILLEGAL), RequestCode.SEND_MESSAGE_V2)
        found = await asyncio.gather(*(send_or_refused(engine, message(number)) for number in range(4)))
        assert [isinstance(one, Refused) for one in found] == [True, False, False, False]
        assert stored(fake, "a") == 3


@jumping
async def test_a_broker_that_does_not_answer_ends_a_send_in_time() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].faults.add(Fault(Kind.SILENT), RequestCode.SEND_MESSAGE_V2)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert (await refused(engine, message())).code == "UNAVAILABLE"
        assert loop.time() - began_s < 10.5


@jumping
async def test_pops_go_on_with_the_brokers_that_live() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        await fake.brokers["a"].stop()
        waiting = asyncio.ensure_future(pop(engine, 60_000))
        await passed(20.0)
        await send(engine, message())
        assert bodies(await waiting) == [b"1"]


@jumping
async def test_a_pop_is_refused_when_no_broker_of_the_topic_lives() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        await pop(engine)
        for broker in fake.brokers.values():
            await broker.stop()
        with pytest.raises(Refused, match=r"broker [ab]"):
            await pop(engine)


@jumping
async def test_a_thousand_waiting_clients_are_one_parked_request_at_each_broker() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake)
        waiting = [asyncio.ensure_future(pop(engine, 30_000)) for _ in range(1_000)]
        await until(lambda: engine.parked() == 1_000)
        await passed(1.0)
        assert [broker.counts[RequestCode.NOTIFICATION] for broker in fake.brokers.values()] == [1, 1]
        assert {len(popped.rows) for popped in await asyncio.gather(*waiting)} == {0}


@jumping
async def test_many_messages_reach_as_many_waiting_clients_without_a_wait_for_each_other() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        waiting = [asyncio.ensure_future(pop(engine, 9_000, max_messages=1)) for _ in range(50)]
        await passed(2.0)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await send(engine, *(message(number) for number in range(50)))
        got = await asyncio.gather(*waiting)
        assert sorted(body for popped in got for body in bodies(popped)) == sorted(b"%d" % n for n in range(50))
        assert loop.time() - began_s < 3.0


@jumping
async def test_a_broker_that_answers_waits_at_once_is_asked_a_few_times_a_second() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        broker = fake.brokers["a"]
        broker.faults.add(answering(ResponseCode.POLLING_TIMEOUT), RequestCode.NOTIFICATION, times=None)
        assert (await pop(engine, 10_000)).rows == []
        assert broker.counts[RequestCode.NOTIFICATION] <= 50


@jumping
async def test_pops_go_on_after_the_clock_of_a_broker_was_set_and_a_wrong_one_is_named() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        log = fake.brokers["a"].log
        plain_ms = log.now_ms

        def ahead(ahead_ms: int) -> int:
            return plain_ms() + ahead_ms

        for ahead_ms in (0, 60_000, -60_000, 60_000):
            log.now_ms = functools.partial(ahead, ahead_ms)
            await send(engine, message())
            assert bodies(await pop(engine, invisible_ms=3_600_000)) == [b"1"]
        log.now_ms = functools.partial(ahead, 3_600_000)
        with pytest.raises(Refused) as caught:
            await pop(engine)
        assert (caught.value.code, "clock of broker a" in caught.value.message) == ("UNAVAILABLE", True)


@jumping
async def test_a_refused_batch_of_acks_is_asked_for_one_by_one() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, message(1), message(2))
        popped = await pop(engine)
        fake.brokers["a"].faults.add(answering(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), RequestCode.BATCH_ACK_MESSAGE)
        fake.brokers["a"].faults.add(answering(ResponseCode.NO_MESSAGE), RequestCode.ACK_MESSAGE)
        results = (await engine.execute(do.Ack(GROUP, handles(popped)))).results
        assert [result.code if result else "OK" for result in results] == ["HANDLE_LAPSED", "OK"]


@jumping
async def test_a_known_topic_is_served_while_name_servers_are_away_and_when_they_are_back_empty() -> None:
    async with FakeCluster(BOTH, name_servers=2) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, message())
        before = fake.name_servers[0].kv.copy()
        for server in fake.name_servers:
            server.kv.clear()
            await server.stop()
        for _ in range(20):
            await passed(30.0)
            assert isinstance((await send(engine, message()))[0], Place)
        fake.forget()
        for server in fake.name_servers:
            await server.start()
        for _ in range(4):
            await passed(10.0)
            assert isinstance((await send(engine, message()))[0], Place)
        assert all(server.kv == before for server in fake.name_servers)


@jumping
async def test_a_message_group_stores_nothing_behind_a_message_that_has_to_be_sent_again() -> None:
    async with FakeCluster(BOTH) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "FIFO"})
        topic = await engine.shared.topics.get(TOPIC)
        await engine.shared.layouts.write(topic, layout.of_route({"a": 2, "b": 2}))
        for broker in fake.brokers.values():
            broker.faults.add(answering(ResponseCode.SERVICE_NOT_AVAILABLE), RequestCode.SEND_MESSAGE_V2)
        mine = [message(number, message_group="m") for number in range(3)]
        assert (await refused(engine, *mine)).code == "UNAVAILABLE"
        assert stored(fake, "a") + stored(fake, "b") == 0


@jumping
async def test_acks_at_a_broker_that_does_not_answer_end_together() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *(message(number) for number in range(32)))
        popped = await pop(engine)
        fake.brokers["a"].faults.add(Fault(Kind.SILENT), times=None)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        results = (await engine.execute(do.Ack(GROUP, handles(popped)))).results
        assert {result.code for result in results if result} == {"UNAVAILABLE"}
        assert loop.time() - began_s < 10.5


@jumping
async def test_a_caller_that_has_gone_for_good_leaves_no_answer_to_its_attempt_id() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, message())
        fake.brokers["a"].faults.add(Fault(Kind.SLOW, seconds=1.0), RequestCode.POP_MESSAGE)

        def tried() -> Coroutine[object, object, do.Popped]:
            return pop(engine, client_id="c", attempt_id="try-1", release_if_gone=True)

        gone = asyncio.ensure_future(tried())
        await passed(0.5)
        gone.cancel()
        await passed(12.0)
        again = await tried()
        assert (again.replay, [row[4] for row in again.rows]) == (False, [2])


@jumping
async def test_a_call_that_is_told_of_messages_in_the_turn_in_which_its_time_is_over_still_looks() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        loop = asyncio.get_running_loop()
        waits, key = engine.pops.waits, LineKey("a", "shop%orders", "shop%bill", ordered=False)
        until_s = loop.time() + 2.0
        loop.call_at(until_s, waits.looked, key, 0, 1)  # before the timer of the call
        assert await waits.wait([key], until_s) == key


@jumping
async def test_a_repeat_that_waits_beside_its_first_try_goes_on_when_that_one_has_gone() -> None:
    """The client has connected again, and only now its first connection is known to be lost."""
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)

        def tried() -> asyncio.Future[do.Popped]:
            asked = pop(engine, 20_000, client_id="c", attempt_id="try-1", release_if_gone=True)
            return asyncio.ensure_future(asked)

        first, repeat = tried(), tried()
        await passed(1.0)
        first.cancel()
        await passed(1.0)
        await send(engine, message(1))
        assert bodies(await repeat) == [b"1"]
        await passed(10.0)
        assert (await pop(engine)).rows == [], "its lease goes on"
        third, fourth = tried(), tried()
        await passed(1.0)
        third.cancel()
        fourth.cancel()
        await passed(1.0)
        assert engine.parked() == 0
        await send(engine, message(2))
        assert bodies(await pop(engine)) == [b"2"]


@jumping
async def test_messages_that_are_given_back_are_not_made_dead_letters_beside() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        log = fake.brokers["a"].log
        log.append("shop%orders", 0, b"used up", "UNIQ_KEY\x011\x02", reconsume_times=17)
        log.append("shop%orders", 1, b"good", "UNIQ_KEY\x012\x02")
        fake.name_servers[0].faults.add(answering(ResponseCode.SYSTEM_ERROR), RequestCode.GET_KV_CONFIG)
        with pytest.raises(Refused, match="no name server says what the layout"):
            await pop(engine)
        await passed(10.0)
        assert bodies(await pop(engine)) == [b"good"]
        await passed(10.0)
        assert len(log.topics["%DLQ%shop%bill"].queues[0]) == 1
