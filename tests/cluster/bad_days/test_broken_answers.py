"""One broker answers what no broker should, or nothing: calls end typed and in time, and the other broker serves."""

import asyncio
import functools
import json
from collections.abc import Awaitable
from typing import NamedTuple

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.wire.command import Request, Response
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place, queries
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, created, gateway, handles, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.fake.server import Client, Handler
from tests.remoting.jumping import jumping, passed

#: A call without a deadline of its client ends after 10 s.
CALL_S = 10.5
BROKEN = {
    "garbage": Fault(Kind.GARBAGE),
    "half a frame": Fault(Kind.CUT, size=11),
    "a frame of 261 MiB": Fault(Kind.HUGE),
    "the opaque of another request": Fault(Kind.WRONG_OPAQUE),
    "nothing": Fault(Kind.SILENT),
    "headers without fields": Fault(Kind.EMPTY_HEADER),
    "busy": answering(ResponseCode.SYSTEM_BUSY),
    "a code that nobody knows": answering(777),
}


class Ended(NamedTuple):
    """What a call came to, and after how long."""

    outcome: object
    seconds: float

    @property
    def is_refused(self) -> bool:
        return isinstance(self.outcome, Refused)


async def ended(call: Awaitable[object]) -> Ended:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        outcome = await call
    except Refused as refused:
        outcome = refused
    return Ended(outcome, loop.time() - began_s)


async def sent(engine: ClusterEngine, number: int) -> object:
    (place,) = await send(engine, pb.Message(message_id=f"id-{number}", body=b"%d" % number))
    return place


def at_of(popped: do.Popped, engine: ClusterEngine, broker: str) -> tuple[str, ...]:
    """The handles of deliveries of one broker."""
    return tuple(one for one in handles(popped) if engine.shared.handles.read(one, GROUP).handle.broker == broker)


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN)
@jumping
async def test_calls_to_a_broken_broker_end_typed_and_in_time_and_its_neighbour_serves(fault: Fault) -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for number in range(16):
            await sent(engine, number)
        popped = await pop(engine, max_messages=32)
        lost, kept = (at_of(popped, engine, broker) for broker in "ab")
        assert len(lost) == len(kept) == 8
        fake.brokers["a"].faults.add(fault, times=None)
        calls = {
            "acks there": engine.execute(do.Ack(GROUP, lost)),
            "a list": engine.ask(queries.Topics(TOPIC)),
            "offsets": engine.execute(do.QueryOffsets(TOPIC, GROUP)),
            "a look-up": engine.ask(do.LookUp(TOPIC, "id-3", "", 4, 1 << 20)),
            **{f"send {number}": sent(engine, number) for number in range(8)},
        }
        beside, *broken = await asyncio.gather(
            ended(engine.execute(do.Ack(GROUP, kept))), *(ended(call) for call in calls.values())
        )
        assert isinstance(beside.outcome, do.Acked)
        assert (beside.outcome.results, beside.seconds < 1.0) == ([None] * 8, True)
        for name, one in zip(calls, broken, strict=True):
            assert one.seconds < CALL_S, name
            if isinstance(one.outcome, Refused):
                assert one.outcome.code in ("UNAVAILABLE", "BUSY", "UNSUPPORTED"), (name, one.outcome)
                assert one.outcome.action, name
        later = await asyncio.gather(*(ended(sent(engine, number)) for number in range(8)))
        assert all(isinstance(one.outcome, Place) or one.is_refused for one in later)
        waiting = asyncio.ensure_future(ended(pop(engine, 9_000)))
        await passed(1.0)
        fake.brokers["a"].faults.clear()
        assert isinstance((await waiting).outcome, do.Popped)
        await passed(6.0)  # the longest pause of a breaker
        again = await asyncio.gather(*(ended(sent(engine, number)) for number in range(8)))
        assert [type(one.outcome) for one in again] == [Place] * 8


@jumping
async def test_a_broker_that_is_stopped_for_half_a_minute_answers_no_call_of_another_one_when_it_goes_on() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        for number in range(4):
            await sent(engine, number)
        stopped = fake.brokers["a"]
        stopped.running.clear()
        during = []
        for number in range(10):
            during.append(await ended(sent(engine, 100 + number)))
            await passed(3.0)
        assert all(one.seconds < CALL_S for one in during)
        assert sum(isinstance(one.outcome, Place) for one in during) >= 8
        stopped.running.set()
        places = []
        for number in range(16):
            places.append(await sent(engine, 200 + number))
            await passed(0.5)
        assert {place.queue < 2 for place in places if isinstance(place, Place)} == {True, False}
        found = await pop(engine, max_messages=32)
        texts = [pb.Message.FromString(row[0]) for row in found.rows]
        assert all(one.message_id == f"id-{one.body.decode()}" for one in texts)


@pytest.mark.parametrize("queues", [-1, 65_537, 2**31 - 1])
@jumping
async def test_a_number_of_queues_that_no_topic_has_is_refused_and_not_counted_through(queues: int) -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        config = {"topicName": "shop%orders", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        damaged = Fault(Kind.ANSWER, answer=Response(0, body=json.dumps(config).encode()))
        fake.brokers["a"].faults.add(damaged, RequestCode.GET_TOPIC_CONFIG, times=None)
        topic = await engine.shared.topics.get(TOPIC)
        assert topic.settings.queues == 2, "as the other broker has it"
        assert isinstance(await sent(engine, 1), Place)
        fake.brokers["b"].faults.add(damaged, RequestCode.GET_TOPIC_CONFIG, times=None)
        outcome = (await ended(engine.execute(do.UpdateTopic(TOPIC, 6, None)))).outcome
        assert isinstance(outcome, Refused)
        assert outcome.code == "UNAVAILABLE"


@jumping
async def test_numbers_that_no_handle_can_hold_are_refused_and_the_messages_come_again() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await sent(engine, 1)
        broker = fake.brokers["a"]
        for code, call in (
            (RequestCode.POP_MESSAGE, pop(engine)),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, extended(engine)),
        ):
            real = broker.handlers[code]
            broker.handlers[code] = functools.partial(impossible, real)
            outcome = (await ended(call)).outcome
            assert isinstance(outcome, Refused)
            broker.handlers[code] = real
            await passed(65.0)
        assert len((await pop(engine)).rows) == 1


async def impossible(real: Handler, client: Client, request: Request) -> Response:
    answer = real(client, request)
    answer = answer if isinstance(answer, Response) else await answer
    return answer._replace(fields={**answer.fields, "popTime": "-1"})


async def extended(engine: ClusterEngine) -> object:
    (handle,) = handles(await pop(engine))
    (result,) = await engine.execute(do.ChangeInvisibleTime(GROUP, (do.Change(handle, "extend", 60_000),)))
    return result
