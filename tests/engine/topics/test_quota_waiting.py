"""Who waits for a token of a quota: woken at its time, one at a time, in order, and by nothing else (F.08, D.41)."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.writer import batch, core
from popmq_server.embedded.writer.lone import Lone
from popmq_server.errors import Refused
from tests.engine.event_loop import LOST_S, whole_engine
from tests.engine.rig import HOUR, KEEP, MINUTE, SECOND, bodies, deliveries, message, numbered, sending
from tests.engine.traffic.traffic import group


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedEngine]:
    """Its topic gives 2 messages a second."""
    async with whole_engine(tmp_path / "data", clock, queues=2, keep_ms=KEEP, pop_messages_per_s=2) as broker:
        await broker.pop(ask.Pop("t", "g"), 0)
        yield broker


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of every look that a Pop took."""
    times: list[int] = []
    handler = core.HANDLERS[ask.Pop]

    def counted(tx: Any, command: Any) -> Any:
        times.append(tx.now_ms)
        return handler(tx, command)

    monkeypatch.setitem(core.HANDLERS, ask.Pop, counted)
    return times


async def turn() -> None:
    """One turn of the loop."""
    await asyncio.sleep(0)


async def until(condition: Any) -> None:
    """The writer answers on its own thread, in its own time."""
    async with asyncio.timeout(LOST_S):
        while not condition():
            await turn()


async def quiet(broker: EmbeddedEngine) -> None:
    """Waits until no call is under way: woken pops have run, and a query after them was answered; several times,
    since answers may wake further pops.
    """
    for _ in range(8):
        for _ in range(4):
            await turn()
        await broker.ask(operations.StoreState())


async def later(broker: EmbeddedEngine, clock: FakeClock, ms: int) -> None:
    clock.advance(ms)
    await quiet(broker)


def waiting(broker: EmbeddedEngine, wait_ms: int = MINUTE, messages: int = 1, **asked: Any) -> asyncio.Task[ask.Popped]:
    return asyncio.ensure_future(broker.pop(ask.Pop("t", "g", max_messages=messages, **asked), wait_ms))


def body(task: asyncio.Task[ask.Popped]) -> str:
    return "".join(bodies(deliveries(task.result())))


async def test_a_pop_without_a_wait_is_refused_and_one_that_waits_gets_its_token_to_the_millisecond(
    broker: EmbeddedEngine, clock: FakeClock, looks: list[int]
) -> None:
    await broker.execute(sending(*"abcd"))
    await broker.pop(ask.Pop("t", "g"), 0)
    with pytest.raises(Refused) as refused:
        await broker.pop(ask.Pop("t", "g"), 0)
    assert (refused.value.code, refused.value.retry_after_ms) == ("RATE_LIMITED", 500)
    task = waiting(broker)
    await until(lambda: broker.quota_waiters.count == 1)
    looks.clear()
    await later(broker, clock, 499)
    assert (task.done(), looks) == (False, [])
    await later(broker, clock, 1)
    assert body(task) == "c"
    assert looks == [clock.now_ms()]


@pytest.mark.slow
async def test_sends_do_not_wake_pops_that_wait_for_quota(broker: EmbeddedEngine, looks: list[int]) -> None:
    await broker.execute(sending(*"abcd"))
    await broker.pop(ask.Pop("t", "g"), 0)
    tasks = [waiting(broker), waiting(broker, queues=(0,))]
    await until(lambda: broker.quota_waiters.count == 2)
    looks.clear()
    for number in range(100):
        await broker.execute(sending(str(number)))
    await quiet(broker)
    assert looks == []
    for task in tasks:
        task.cancel()


@pytest.mark.slow
async def test_pops_that_wait_for_quota_are_served_in_order_one_for_each_token(
    broker: EmbeddedEngine, clock: FakeClock, looks: list[int]
) -> None:
    await broker.execute(sending(*numbered("m", 100)))
    await broker.pop(ask.Pop("t", "g"), 0)
    tasks = [waiting(broker) for _ in range(50)]
    await until(lambda: broker.quota_waiters.count == 50)
    looks.clear()
    for done in range(10):
        clock.advance(500)
        await until(tasks[done].done)
        await quiet(broker)
        assert [task.done() for task in tasks] == [True] * (done + 1) + [False] * (49 - done)
    assert len(looks) == 10, "each token costs the look that takes it"
    for task in tasks:
        task.cancel()


async def test_tokens_that_came_together_are_all_given_out(broker: EmbeddedEngine, clock: FakeClock) -> None:
    await broker.execute(sending(*numbered("m", 10)))
    await broker.pop(ask.Pop("t", "g"), 0)
    tasks = [waiting(broker) for _ in range(5)]
    await until(lambda: broker.quota_waiters.count == 5)
    await later(broker, clock, 10 * SECOND)
    assert [task.done() for task in tasks] == [True, True, False, False, False]
    for task in tasks:
        task.cancel()


async def test_a_pop_that_waits_for_quota_waits_for_messages_once_the_last_one_is_taken(
    broker: EmbeddedEngine, clock: FakeClock
) -> None:
    await broker.execute(sending(*"abc"))
    await broker.pop(ask.Pop("t", "g"), 0)
    tasks = [waiting(broker), waiting(broker), waiting(broker, queues=(0, 1))]
    await until(lambda: broker.quota_waiters.count == 3)
    await later(broker, clock, 10 * SECOND)
    assert [task.done() for task in tasks] == [True, False, False]
    await until(lambda: (broker.quota_waiters.count, broker.waiters.count, broker.watchers.count) == (0, 1, 1))
    await broker.execute(sending("d"))
    await until(lambda: tasks[1].done() or tasks[2].done())
    for task in tasks:
        task.cancel()


async def test_a_wait_that_ends_without_a_token_is_refused_with_the_time_that_is_left(
    broker: EmbeddedEngine, clock: FakeClock
) -> None:
    await broker.execute(ask.UpdateTopic("t", 0, None, (("pop_messages_per_s", 1),)))
    await broker.execute(sending("a", "b"))
    await broker.pop(ask.Pop("t", "g"), 0)
    short, exact = waiting(broker, 300), waiting(broker, 1000)
    await until(lambda: broker.quota_waiters.count == 2)
    await later(broker, clock, 300)
    refused = short.exception()
    assert isinstance(refused, Refused)
    assert (refused.code, refused.retry_after_ms) == ("RATE_LIMITED", 700)
    await later(broker, clock, 700)
    assert body(exact) == "b", "a token that comes with the last millisecond is taken"


@pytest.mark.slow
async def test_a_wait_at_the_in_flight_limit_ends_refused_or_with_what_an_ack_makes_room_for(
    broker: EmbeddedEngine, clock: FakeClock
) -> None:
    await broker.execute(ask.UpdateTopic("t", 1024, None, (("pop_messages_per_s", 0),)))
    settings = vars(group("g", 3)) | {"in_flight_max": 1}
    await broker.execute(ask.UpdateGroup("g", settings))
    await broker.execute(ask.Send("t", tuple(message(text) for text in "abc")))
    (first,) = deliveries(await broker.pop(ask.Pop("t", "g"), 0))
    with pytest.raises(Refused) as at_once:
        await broker.pop(ask.Pop("t", "g"), 0)
    short, long = waiting(broker, 300), waiting(broker)
    await until(lambda: broker.waiters.count == 2)
    await later(broker, clock, 299)
    assert not short.done()
    await later(broker, clock, 1)
    refused = short.exception()
    assert isinstance(refused, Refused)
    assert refused.code == at_once.value.code == "IN_FLIGHT_LIMIT"
    await broker.execute(ask.Ack("g", (first.handle,)))
    await until(long.done)
    assert body(long) == "b"


async def test_a_token_that_comes_while_the_answer_is_on_its_way_is_not_waited_for(
    broker: EmbeddedEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.execute(sending(*"abc"))
    await broker.pop(ask.Pop("t", "g"), 0)
    execute = broker.run

    async def slow(command: Any) -> Any:
        answer = await execute(command)
        clock._now_ms += SECOND  # nobody is woken: the next alarm would be the first to notice
        return answer

    monkeypatch.setattr(broker, "run", slow)
    async with asyncio.timeout(5):
        assert bodies(deliveries(await broker.pop(ask.Pop("t", "g"), MINUTE))) == ["c"]


async def test_a_changed_quota_wakes_all_pops_that_wait_for_it(broker: EmbeddedEngine) -> None:
    await broker.execute(sending(*numbered("m", 20)))
    await broker.pop(ask.Pop("t", "g"), 0)
    tasks = [waiting(broker) for _ in range(10)]
    await until(lambda: broker.quota_waiters.count == 10)
    await broker.execute(ask.UpdateTopic("t", 0, None, (("pop_messages_per_s", 0),)))
    await until(lambda: all(task.done() for task in tasks))
    assert sorted(map(body, tasks)) == sorted(f"m{number}" for number in range(2, 12))


@pytest.mark.parametrize("code", ["WRONG_CONSUME_MODE", "TOPIC_NOT_FOUND"])
async def test_a_pop_that_waits_for_quota_is_refused_at_once_on_a_switch_and_when_its_topic_is_deleted(
    broker: EmbeddedEngine, clock: FakeClock, code: str
) -> None:
    await broker.execute(sending(*"abc"))
    await broker.pop(ask.Pop("t", "g"), 0)
    tasks = [waiting(broker), waiting(broker)]
    await until(lambda: broker.quota_waiters.count == 2)
    if code == "TOPIC_NOT_FOUND":
        await broker.execute(ask.DeleteTopic("t"))
        await later(broker, clock, 500)
    else:
        await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "PULL"))
        await until(lambda: all(task.done() for task in tasks))
    assert [task.exception().code for task in tasks] == [code] * 2  # type: ignore[union-attr]


@pytest.mark.slow
async def test_a_waiter_that_leaves_when_its_token_comes_hands_it_on(broker: EmbeddedEngine, clock: FakeClock) -> None:
    await broker.execute(sending(*numbered("m", 40)))
    await broker.pop(ask.Pop("t", "g"), 0)
    chance, left = random.Random(5), 0
    tasks = [waiting(broker, HOUR) for _ in range(30)]
    await until(lambda: broker.quota_waiters.count == 30)
    for _ in range(100):
        clock.advance(500)
        if chance.random() < 0.5:
            for _ in range(chance.randrange(6)):
                await turn()
            if open_ones := [task for task in tasks if not task.done()]:
                left += open_ones[0].cancel()
        await quiet(broker)
    assert all(task.done() for task in tasks), "somebody waits, and nobody wakes him"
    got = [body(task) for task in tasks if not task.cancelled()]
    assert len(set(got)) == len(got) == 30 - left
    assert left > 3


@pytest.mark.slow
async def test_parked_pops_under_a_quota_do_not_delay_an_ack(
    broker: EmbeddedEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack that comes with a thousand woken Pops is in the first commit."""
    await broker.execute(sending(*numbered("m", 10)))
    (row, *_) = deliveries(await broker.pop(ask.Pop("t", "g"), 0))
    tasks = [waiting(broker) for _ in range(1000)]
    await until(lambda: broker.quota_waiters.count == 1000)
    groups: list[list[Any]] = []
    run = core.Core.run

    def noted(self: core.Core, commands: list[Any]) -> batch.Committed:
        groups.append(commands)
        return run(self, commands)

    monkeypatch.setattr(core.Core, "run", noted)
    monkeypatch.setattr(
        Lone, "run", lambda *_: None
    )  # the ack, if it is first, is a batch for the writer thread as well
    clock.advance(500)
    await broker.execute(ask.Ack("g", (row.handle,)))
    assert any(isinstance(command, ask.Ack) for group in groups[:2] for command in group)
    assert sum(isinstance(command, ask.Pop) for group in groups for command in group) <= 2
    for task in tasks:
        task.cancel()
