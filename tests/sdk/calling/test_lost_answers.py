"""Calls that change something, whose first answer was lost: what a repeat means, and which calls have none."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from popmq import errors
from popmq.testing import Broker
from popmq.topic import Start
from tests.sdk.calling.lossy import LOSE, REFUSE, LossyWire
from tests.sdk.conftest import GROUP, QUICK, TOPIC, Connect, eventually


@pytest.mark.parametrize(
    ("method", "delete"),
    [
        ("DeleteTopic", lambda client: client.topics.delete(TOPIC)),
        ("DeleteGroup", lambda client: client.groups.delete(GROUP)),
        ("DeleteSchedule", lambda client: client.schedules.delete("s")),
    ],
)
async def test_a_delete_whose_answer_was_lost_is_done(
    lossy: Any, wire: LossyWire, method: str, delete: Callable[[Any], Awaitable[None]]
) -> None:
    await lossy.schedules.create("s", "@daily", TOPIC, "go")
    wire.plan[method] = [LOSE]
    await delete(lossy)
    assert len(wire.seen[method]) == 2
    with pytest.raises(errors.NotFound):
        await delete(lossy)


@pytest.mark.parametrize(("start", "committed"), [("earliest", 0), ("latest", 1), (1.0, 0), ("now", 1)])
async def test_a_switch_with_a_start_whose_answer_was_lost_is_done(
    lossy: Any, wire: LossyWire, start: Any, committed: int
) -> None:
    await lossy.send(TOPIC, "x")
    start = time.time() + 30 if start == "now" else start  # clocks may differ by so much
    wire.plan["SetConsumeMode"] = [LOSE]
    switched = await lossy.groups.set_consume_mode(TOPIC, GROUP, "PULL", start=start)
    assert switched.mode == "PULL"
    assert sum(row.committed for row in await lossy.offsets.query(TOPIC, GROUP)) == committed
    with pytest.raises(errors.InvalidField, match="has its position"):
        await lossy.groups.set_consume_mode(TOPIC, GROUP, "PULL", start="latest")


@pytest.mark.parametrize("start", ["earliest", "latest", 1.0])
async def test_a_start_that_a_lost_request_has_not_set_is_refused(lossy: Any, wire: LossyWire, start: Start) -> None:
    """The group had its position before: the repeat must not say that it begins elsewhere."""
    await lossy.send(TOPIC, ["x", "y"])
    await lossy.ack(await lossy.pop(TOPIC, GROUP, 1))
    await lossy.send(TOPIC, "z")
    wire.plan["SetConsumeMode"] = [REFUSE]
    with pytest.raises(errors.InvalidField, match="has its position"):
        await lossy.groups.set_consume_mode(TOPIC, GROUP, "PULL", start=start)
    assert len(wire.seen["SetConsumeMode"]) == 2


async def test_a_schedule_is_not_run_twice_when_the_answer_is_lost(lossy: Any, wire: LossyWire) -> None:
    await lossy.schedules.create("s", "@daily", TOPIC, "go")
    wire.plan["RunSchedule"] = [LOSE]
    with pytest.raises(errors.Unavailable):
        await lossy.schedules.run("s")
    assert len(await lossy.pop(TOPIC, GROUP)) == 1


async def test_a_message_is_not_sent_back_twice_when_the_answer_is_lost(lossy: Any, wire: LossyWire) -> None:
    await lossy.groups.set_consume_mode(TOPIC, GROUP, "PULL")
    receipt = await lossy.send(TOPIC, "x")
    page = await lossy.pull(TOPIC, GROUP, queue=receipt.queue, offset=0)
    wire.plan["SendBack"] = [LOSE]
    with pytest.raises(errors.Unavailable):
        await lossy.send_back(page.deliveries, delay=0.0)
    assert len((await lossy.messages.browse(f"%RETRY%{GROUP}+{TOPIC}")).deliveries) == 1


@pytest.mark.parametrize(
    ("refusal", "call"),
    [
        (errors.TopicNotFound, lambda client: client.topics.delete("no-such-topic")),
        (errors.InvalidField, lambda client: client.groups.set_consume_mode(TOPIC, GROUP, "PULL", start="latest")),
    ],
)
async def test_a_repeat_of_a_request_that_was_never_sent_is_refused_as_the_first_one(
    connect: Connect, client: Any, popmq_broker: Broker, refusal: type[Exception], call: Callable[[Any], Awaitable[Any]]
) -> None:
    """Without a connection the broker has not done it."""
    await client.send(TOPIC, "x")
    await client.ack(await client.pop(TOPIC, GROUP))
    caller = connect(retry=QUICK)
    await asyncio.to_thread(popmq_broker.stop)
    calling = asyncio.ensure_future(call(caller))

    async def has_retried() -> bool:
        await asyncio.sleep(0)
        return bool(caller.client_stats().retries)

    await eventually(has_retried)
    await asyncio.to_thread(popmq_broker.start)
    with pytest.raises(refusal):
        await calling
