"""Consumers whose group is switched between POP and PULL while they run, and whose topic is made anew under them."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

import popmq
from popmq import errors
from tests.sdk.calling.lossy import LossyWire, holding
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, told
from tests.sdk.pulling.pulls import (
    committed,
    each_queue,
    handle,
    later,
    next_of,
    pulling,
    queues_of,
    shared_out,
    soon,
    take,
)

NARROW = "narrow"


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The levels of what consumers have logged."""
    return [record.levelname for record in caplog.records if record.name == "popmq.consumer"]


async def has_no_queues(consumer: Any) -> bool:
    await asyncio.sleep(0)
    return not queues_of(consumer)


async def popped_again(wire: LossyWire, times: int) -> bool:
    """Whether a consumer has asked the broker so often for messages."""
    await asyncio.sleep(0)
    return len(wire.seen["Pop"]) >= times


async def switched(client: Any, mode: str, topic: str = NARROW) -> None:
    await client.groups.set_consume_mode(topic, GROUP, mode)


@pytest.fixture
async def narrow(client: Any) -> Any:
    """A client with a topic of one queue, so that one pull brings all."""
    await client.topics.create(NARROW, queues=1)
    return client


# ── A loop that pops ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_loop_that_pops_waits_while_its_group_pulls_and_goes_on(
    narrow: Any, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "popmq.consumer")
    await narrow.send(NARROW, "a")
    async with narrow.consume(NARROW, GROUP, confirm=True) as consumer:
        assert await take(consumer, guard, 1) == ["a"]
        for text in "bc":
            waiting = soon(consumer)
            await switched(narrow, "PULL")
            await eventually(partial(told, caplog, "waits until the group is switched back"))
            await narrow.send(NARROW, text)
            assert not waiting.done()
            assert levels(caplog) == ["INFO"]
            caplog.clear()
            await switched(narrow, "POP")
            async with guard(await waiting) as delivery:
                assert delivery.text() == text


async def test_a_loop_that_waits_for_the_switch_back_says_so_once(
    lossy: Any, wire: LossyWire, guard: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "popmq.consumer")
    monkeypatch.setattr("popmq._async.consuming.consumer.LOOK_S", 0.001)
    monkeypatch.setattr("popmq._sync.consuming.consumer.LOOK_S", 0.001)
    await lossy.send(TOPIC, "a")
    async with lossy.consume(TOPIC, GROUP, confirm=True) as consumer:
        await take(consumer, guard, 1)
        soon(consumer)
        await switched(lossy, "PULL", TOPIC)
        await eventually(partial(popped_again, wire, len(wire.seen["Pop"]) + 5))
        assert levels(caplog) == ["INFO"]


async def test_all_queues_are_read_by_those_that_pull_after_a_switch_to_pull(
    client: Any, connect: Connect, guard: Any, advance: Any
) -> None:
    """A loop that pops waits for the switch back, and keeps no share of the queues."""
    await client.send(TOPIC, "popped")
    async with connect().consume(TOPIC, GROUP) as waits:
        assert await take(waits, guard, 1) == ["popped"]
        soon(waits)
        await switched(client, "PULL", TOPIC)
        async with client.pull_consume(TOPIC, GROUP) as consumer:
            soon(consumer)
            await eventually(lambda: shared_out([consumer], [8], advance))


async def test_all_queues_are_read_by_those_that_pop_after_a_switch_to_pop(
    client: Any, connect: Connect, guard: Any, advance: Any
) -> None:
    """A loop that pulls waits for the switch back, and keeps no share of the queues."""
    await client.groups.update(GROUP, share_number=1)
    pulls = [connect().pull_consume(TOPIC, GROUP) for _ in range(3)]
    for consumer in pulls:
        soon(consumer)
    await eventually(lambda: shared_out(pulls, [2, 3, 3], advance))
    await switched(client, "POP", TOPIC)
    await each_queue(client, TOPIC, 8, 1)
    async with client.consume(TOPIC, GROUP) as consumer:
        assert sorted(await take(consumer, guard, 8)) == [str(number) for number in range(8)]
    for one in pulls:
        await one.close()


async def test_a_loop_that_begins_in_a_group_that_pulls_says_so(narrow: Any) -> None:
    await switched(narrow, "PULL")
    async with narrow.consume(NARROW, GROUP) as consumer:
        with pytest.raises(errors.WrongConsumeMode):
            await next_of(consumer)


async def test_a_loop_that_ends_when_idle_ends_with_the_switch_and_says_so(narrow: Any, guard: Any) -> None:
    """It cannot tell that nothing is left."""
    await narrow.send(NARROW, "a")
    async with narrow.consume(NARROW, GROUP, until_idle=600.0) as consumer:
        await take(consumer, guard, 1)
        waiting = soon(consumer)
        await switched(narrow, "PULL")
        with pytest.raises(errors.WrongConsumeMode):
            await waiting


# ── A loop that pulls ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_messages_pulled_ahead_are_not_delivered_after_a_switch_to_pop(narrow: Any, guard: Any) -> None:
    await narrow.send(NARROW, [f"m{number}" for number in range(10)])
    async with narrow.pull_consume(NARROW, GROUP) as consumer:
        await take(consumer, guard, 3)
        await switched(narrow, "POP")
        await eventually(partial(has_no_queues, consumer))
        waiting = soon(consumer)
        popped = await narrow.pop(NARROW, GROUP, 100)
        assert len(popped) == 10  # none of them was committed before the switch
        await narrow.ack(popped)
        await narrow.send(NARROW, "after")
        assert not waiting.done()
        async with guard((await narrow.pop(NARROW, GROUP, 100))[0]) as delivery:
            assert delivery.text() == "after"


@pytest.mark.slow
async def test_a_message_that_cannot_be_sent_back_because_of_the_switch_is_not_delivered_again(
    narrow: Any, guard: Any
) -> None:
    await narrow.send(NARROW, ["a", "b"])
    flow = popmq.FlowControl(count=0)  # pulls no further, so only its send-back can tell it of the switch
    async with narrow.pull_consume(NARROW, GROUP, flow=flow) as consumer:
        kept = await next_of(consumer)
        await switched(narrow, "POP")
        waiting = soon(consumer)
        kept.release()
        await eventually(partial(has_no_queues, consumer))
        (first, second) = await narrow.pop(NARROW, GROUP, 100)
        assert sorted([first.text(), second.text()]) == ["a", "b"]
        await narrow.ack([first, second])
        waiting.cancel()


async def test_a_consumer_that_missed_a_switch_forth_and_back_begins_where_the_group_stands(
    narrow: Any, guard: Any, advance: Any
) -> None:
    """Messages popped meanwhile are finished; a commit of an older pulled offset would deliver them again."""
    await narrow.send(NARROW, [f"m{number}" for number in range(4)])
    async with narrow.pull_consume(NARROW, GROUP) as consumer:
        await take(consumer, guard, 1)
        await switched(narrow, "POP")
        await narrow.ack(await narrow.pop(NARROW, GROUP, 100))
        await switched(narrow, "PULL")
        await narrow.send(NARROW, "new")
        seen: list[str] = []
        while "new" not in seen:
            waiting = soon(consumer)
            await eventually(partial(later, advance, waiting))  # one that saw the switch looks again after 20 s
            seen.append((await handle(guard, await waiting)).text())
    assert (await committed(narrow, NARROW)) == {0: 5}
    assert "m0" not in seen


@pytest.mark.embedded("the time at which a topic was made")
async def test_a_loop_reads_a_topic_created_again_from_its_first_message(
    narrow: Any, connect: Connect, wire: LossyWire, late: threading.Event, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks for its share of the queues after the topic is there again: a topic that is gone ends it."""
    await narrow.send(NARROW, ["a", "b", "c"])
    flow = popmq.FlowControl(count=0)  # it holds messages, and asks for no more: it misses that the topic was gone
    async with connect(wire.endpoint).pull_consume(NARROW, GROUP, flow=flow, start="latest") as consumer:
        waiting = soon(consumer)
        await eventually(partial(pulling, consumer))
        await narrow.send(NARROW, ["d", "e"])
        kept = await waiting
        wire.plan["QueryAssignment"] = [holding(late)]
        await narrow.topics.delete(NARROW)
        await narrow.topics.create(NARROW, queues=1)
        await narrow.send(NARROW, [f"new{number}" for number in range(8)])
        late.set()
        kept.release()
        await eventually(partial(told, caplog, "created again"))
        assert await take(consumer, guard, 8) == [f"new{number}" for number in range(8)]
    assert (await committed(narrow, NARROW)) == {0: 8}
