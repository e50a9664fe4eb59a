"""Sends, pops and acks through a gateway, over the brokers of tests/remoting/fake."""

import asyncio
import itertools
from unittest.mock import patch

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_remoting.requests.popping import PopOutcome
from popmq_server import logs
from popmq_server.cluster.popping import attempts
from popmq_server.cluster.popping.broker_pops import PopKey
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed


def messages(*numbers: int) -> list[pb.Message]:
    return [pb.Message(message_id=f"id-{number}", body=b"%d" % number) for number in numbers]


@jumping
async def test_what_one_gateway_delivers_another_one_acks() -> None:
    async with FakeCluster(("a", "b"), skew_ms=60_000) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await send(one, *messages(1, 2, 3))
        popped = await pop(one)
        assert bodies(popped) == [b"1", b"2", b"3"]
        acked = await other.execute(do.Ack(GROUP, handles(popped)))
        assert acked == do.Acked([None, None, None], {TOPIC: 3})
        await passed(61.0)
        assert (await pop(one)).rows == []


class ShortCall:
    """A call with so many seconds left."""

    def __init__(self, left_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + left_s

    def time_remaining(self) -> float:
        return max(0.0, self._until_s - self._loop.time())


@jumping
async def test_a_client_with_a_short_deadline_is_served_and_hears_why_not_before_it_is_over() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(0))
        for left_s in (0.1, 1.0):
            logs.CALL.set(call := ShortCall(left_s))
            assert await send(engine, *messages(1)) != []
            fake.brokers["a"].faults.add(Fault(Kind.SILENT), RequestCode.SEND_MESSAGE_V2)
            with pytest.raises(Refused) as caught:
                await send(engine, *messages(2))
            assert caught.value.code == "UNAVAILABLE"
            assert caught.value.message == "no broker of topic 'shop.orders' answered before the deadline"
            assert call.time_remaining() > 0


@jumping
async def test_messages_of_one_call_are_in_one_queue_in_their_order() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        places = await send(engine, *messages(*range(5)))
        assert places == [Place(places[0].queue, step) for step in range(5)]  # type: ignore[union-attr]


@jumping
async def test_single_sends_of_one_turn_are_one_request_to_a_broker() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(0))
        counts = fake.brokers["a"].counts
        before = counts[RequestCode.SEND_MESSAGE_V2]
        await asyncio.gather(*(send(engine, message) for message in messages(*range(1, 33))))
        assert (counts[RequestCode.SEND_BATCH_MESSAGE], counts[RequestCode.SEND_MESSAGE_V2] - before) == (1, 0)
        assert sorted(bodies(await pop(engine, max_messages=100))) == sorted(b"%d" % number for number in range(33))


@jumping
async def test_a_large_pop_goes_on_one_by_one_after_two_of_its_requests_met_at_a_queue() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(*range(300)))
        asked, plain = list[int](), engine.pops._at_brokers.pop

        async def pop_once(key: PopKey, messages_max: int) -> PopOutcome:
            """The third request finds the queue locked by the second one."""
            asked.append(messages_max)
            return PopOutcome([], 0, 0) if len(asked) == 3 else await plain(key, messages_max)

        engine.pops._at_brokers.pop = pop_once  # type: ignore[method-assign]
        assert len((await pop(engine, max_messages=1_000)).rows) == 300
        assert len(asked) > 3


@jumping
async def test_a_pop_that_waits_gets_what_is_sent_meanwhile() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        waiting = asyncio.ensure_future(pop(engine, 20_000))
        await passed(5.0)
        assert engine.parked() == 1
        await send(engine, *messages(1))
        assert bodies(await waiting) == [b"1"]


@jumping
async def test_a_lease_that_is_over_is_told_and_the_message_comes_again() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(1))
        first = await pop(engine, invisible_ms=10_000)
        await passed(11.0)
        (result,) = (await engine.execute(do.Ack(GROUP, handles(first)))).results
        assert isinstance(result, Refused)
        assert result.code == "HANDLE_LAPSED"
        again = await pop(engine)
        assert [(row[4], pb.Message.FromString(row[0]).body) for row in again.rows] == [(2, b"1")]


@jumping
async def test_a_renewed_delivery_has_another_handle_and_the_group_keeps_it() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine, gateway(fake) as other:
        created(fake)
        await send(engine, *messages(1))
        (handle,) = handles(await pop(engine, invisible_ms=10_000))
        (renewed,) = await other.execute(do.ChangeInvisibleTime(GROUP, (do.Change(handle, "extend", 60_000),)))
        assert isinstance(renewed, do.Renewed)
        await passed(30.0)
        assert (await pop(engine)).rows == []
        assert (await engine.execute(do.Ack(GROUP, (renewed.handle,)))).results == [None]
        await passed(60.0)
        assert (await pop(engine)).rows == []


@jumping
async def test_a_rejected_message_is_one_dead_letter_with_its_reason_also_when_it_is_rejected_again() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(1))
        (handle,) = handles(await pop(engine))
        change = do.Change(handle, "reject", reason="no such customer")
        for _ in range(2):
            assert await engine.execute(do.ChangeInvisibleTime(GROUP, (change,))) == [do.Changed(0, True)]
        (dead_letter,) = fake.brokers["a"].log.topics["%DLQ%shop%bill"].queues[0]
        assert dead_letter.body == b"1"
        assert "no such customer" in dead_letter.properties
        await passed(70.0)
        assert (await pop(engine)).rows == []


@jumping
async def test_a_message_without_attempts_left_is_a_dead_letter_and_not_delivered() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].log.groups["shop%bill"]["retryMaxTimes"] = 1
        await send(engine, *messages(1))
        for attempt in (1, 2):
            assert [row[4] for row in (await pop(engine, invisible_ms=10_000)).rows] == [attempt]
            await passed(11.0)
        assert (await pop(engine)).rows == []
        await passed(1.0)
        assert len(fake.brokers["a"].log.topics["%DLQ%shop%bill"].queues[0]) == 1


@jumping
async def test_a_caller_that_has_gone_leaves_nothing_leased() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        waiting = asyncio.ensure_future(pop(engine, 20_000))
        await passed(1.0)
        waiting.cancel()
        await passed(0.1)
        await send(engine, *messages(1))
        assert bodies(await pop(engine)) == [b"1"]


@jumping
async def test_a_message_of_another_program_with_properties_that_are_no_numbers_is_a_dead_letter_too() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        log = fake.brokers["a"].log
        odd = "".join(
            f"{name}\x01{text}\x02" for name, text in (("1ST_POP_TIME", "soon"), ("__popmq_born", "9" * 5_000))
        )
        log.append("shop%orders", 0, b"1", f"UNIQ_KEY\x011\x02{odd}")
        (handle,) = handles(await pop(engine))
        results = await engine.execute(do.ChangeInvisibleTime(GROUP, (do.Change(handle, "reject"),)))
        assert results == [do.Changed(0, dead_lettered=True)]
        assert len(log.topics["%DLQ%shop%bill"].queues[0]) == 1


@jumping
async def test_large_messages_are_asked_for_in_the_number_that_fits_and_what_is_far_too_much_is_given_back() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].binary = True  # in which it writes frames of any size, as brokers do
        for number in range(5):
            await send(engine, pb.Message(message_id=str(number), body=bytes([number]) * ((4 << 20) - 200)))

        def asked() -> list[str]:
            requests = fake.brokers["a"].requests
            return [each.fields["maxMsgNums"] for each in requests if each.code == RequestCode.POP_MESSAGE]

        found = []
        for _ in range(5):
            popped = await pop(engine, max_bytes=9 << 20)
            await engine.execute(do.Ack(GROUP, handles(popped)))
            found.append([body[0] for body in bodies(popped)])
            await passed(2.0)
        assert asked()[:2] == ["32", "2"]
        assert sorted(itertools.chain(*found)) == [0, 1, 2, 3, 4]
        assert (len(found[0]), max(map(len, found))) == (2, 3)
        assert fake.brokers["a"].connections == 1, "a large answer ends no connection"


@jumping
async def test_a_repeated_attempt_id_gets_the_same_messages() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(1))
        first = await pop(engine, client_id="c", attempt_id="try-1")
        again = await pop(engine, client_id="c", attempt_id="try-1")
        assert (again.replay, again.rows) == (True, first.rows)


@jumping
async def test_a_repeated_attempt_id_gets_what_is_still_leased_and_else_other_messages() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await send(engine, *messages(1, 2, 3, 4))

        async def tried() -> do.Popped:
            return await pop(engine, client_id="c", attempt_id="try-1", max_messages=3)

        acked, released, kept = handles(await tried())
        await engine.execute(do.Ack(GROUP, (acked,)))
        await passed(0.5)
        await engine.execute(do.ChangeInvisibleTime(GROUP, (do.Change(released, "release", 1_000),)))
        assert handles(await tried()) == (kept,)
        await engine.execute(do.Ack(GROUP, (kept,)))
        other = await tried()
        assert (other.replay, bodies(other)) == (False, [b"4"])
        await passed(100.0)
        fake.brokers["a"].log.wake()
        assert not (await tried()).replay, "its lease is over"


@jumping
async def test_answers_that_are_kept_for_repeats_have_a_limit_and_acked_ones_are_not_kept() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        kept = engine.pops.attempts

        async def tried(number: int) -> do.Popped:
            return await pop(engine, client_id="c", attempt_id=f"try-{number}", invisible_ms=300_000)

        with patch.object(attempts, "BYTES_MAX", 5_000):
            for number in range(10):
                await send(engine, pb.Message(message_id=str(number), body=bytes(1_000)))
                await tried(number)
                assert kept.bytes <= 5_000
            assert [(await tried(number)).replay for number in (9, 6, 0)] == [True, True, False]
        await engine.execute(do.Ack(GROUP, handles(await tried(9)) + handles(await tried(8))))
        assert kept.bytes < 3_000
        await passed(61.0)
        await tried(11)
        assert kept.bytes == 0
