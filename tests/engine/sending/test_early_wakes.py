"""A Send wakes those who wait for it before its commit, so that one commit stores and leases its messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands.numbers import CommitNumbers
from popmq_server.embedded.loop import long_poll as lots
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused
from popmq_server.values.records import Topic
from tests.engine.event_loop import LOST_S, turns, whole_engine
from tests.engine.rig import MINUTE, Rig, deliveries, message, sending
from tests.engine.traffic.traffic import group


def bodies_in(popped: ask.Popped) -> list[str]:
    return [row.body for row in deliveries(popped)]


class Counted:
    """An engine, and how many commands each of its batches had."""

    def __init__(self, broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.batches: list[int] = []
        count = broker.metrics.committed

        def counted(told: CommitNumbers) -> None:
            self.batches.append(told.commands)
            count(told)

        monkeypatch.setattr(broker.metrics, "committed", counted)

    def waits(self, group: str = "g", **asked: Any) -> "asyncio.Future[ask.Popped]":
        return asyncio.ensure_future(self.broker.pop(ask.Pop("t", group, **asked), MINUTE))

    async def parked(self, count: int) -> None:
        """Until so many Pops wait; then forgets the batches."""
        async with asyncio.timeout(LOST_S):
            while self.broker.waiters.count != count:
                await turns()
        await turns(20)
        self.batches.clear()

    async def send(self, *texts: str, tag: str = "") -> list[int]:
        """Returns the number of commands of each batch that this made."""
        self.batches.clear()
        await self.broker.execute(ask.Send("t", tuple(message(text, tag=tag) for text in texts)))
        return list(self.batches)


@pytest.fixture
async def engine(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counted]:
    async with whole_engine(tmp_path / "data", clock) as broker:
        yield Counted(broker, monkeypatch)


async def test_one_commit_stores_a_message_and_leases_it_to_who_waits(engine: Counted) -> None:
    waiting = engine.waits()
    await engine.parked(1)
    assert await engine.send("a") == [2]
    assert bodies_in(await waiting) == ["a"]
    assert engine.batches == [2]


async def test_each_group_that_waits_gets_its_messages_in_that_commit(engine: Counted) -> None:
    await engine.broker.execute(group("h", 3))
    both = engine.waits("g"), engine.waits("h")
    await engine.parked(2)
    assert await engine.send("a") == [3]
    assert [bodies_in(popped) for popped in await asyncio.gather(*both)] == [["a"], ["a"]]


async def test_a_message_that_one_took_wakes_nobody_else_of_its_group(engine: Counted) -> None:
    first, *others = (engine.waits() for _ in range(3))
    await engine.parked(3)
    await engine.send("a")
    assert bodies_in(await first) == ["a"]
    await turns(20)
    assert engine.batches == [2]
    assert engine.broker.waiters.count == 2
    assert not any(other.done() for other in others)


async def test_what_one_leaves_the_others_get(engine: Counted) -> None:
    waiting = [engine.waits(max_messages=1) for _ in range(3)]
    await engine.parked(3)
    await engine.send("a", "b", "c")
    async with asyncio.timeout(LOST_S):
        assert sorted(text for popped in await asyncio.gather(*waiting) for text in bodies_in(popped)) == [
            "a",
            "b",
            "c",
        ]


async def test_sends_that_come_together_wake_one_of_a_group(engine: Counted) -> None:
    waiting = [engine.waits() for _ in range(3)]
    await engine.parked(3)
    await asyncio.gather(engine.send("a"), engine.send("b"))
    assert engine.batches[0] == 3, "both sends and one Pop"
    async with asyncio.timeout(LOST_S):
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert sorted(bodies_in(await waiting[0])) == ["a", "b"]


async def test_who_was_woken_for_nothing_looks_after_commits_until_one_of_its_group_finds_something(
    engine: Counted,
) -> None:
    """As with a filter that few messages match: a send is not answered later for such looks."""
    waiting = engine.waits(filter=("tag", "red"))
    await engine.parked(1)
    assert (await engine.send("a", tag="blue"))[0] == 2
    await engine.parked(1)
    assert (await engine.send("b", tag="blue"))[0] == 1
    await engine.parked(1)
    assert (await engine.send("c", tag="red"))[0] == 1
    assert bodies_in(await waiting) == ["c"]
    waiting = engine.waits(filter=("tag", "red"))
    await engine.parked(1)
    assert await engine.send("d", tag="red") == [2]
    assert bodies_in(await waiting) == ["d"]


async def test_a_send_is_not_answered_later_for_the_looks_of_many_groups(clock: FakeClock) -> None:
    lot = Waiters(clock, wake_all=False)
    keys = [(f"g{number}", "t") for number in range(lots.EARLY_GROUPS_MAX + 1)]
    tasks = [asyncio.ensure_future(lot.park(key, lot.generation(key), clock.now_ms() + MINUTE)) for key in keys]
    await turns()
    assert not lot.wake_early("t")
    tasks[0].cancel()
    await turns()
    assert lot.wake_early("t")
    await asyncio.gather(*tasks[1:])


async def test_who_leaves_when_it_is_woken_early_hands_the_wake_on(engine: Counted) -> None:
    first, second = engine.waits(), engine.waits()
    await engine.parked(2)
    sent = asyncio.ensure_future(engine.broker.execute(sending("a")))
    await turns(1)
    first.cancel()
    async with asyncio.timeout(LOST_S):
        assert bodies_in(await second) == ["a"]
        await sent
    assert first.cancelled()


async def test_a_send_that_is_refused_leaves_those_who_wait_waiting(engine: Counted) -> None:
    waiting = engine.waits()
    await engine.parked(1)
    with pytest.raises(Refused, match="of type NORMAL"):
        await engine.broker.execute(ask.Send("t", (message("a"),), types=frozenset({"FIFO"})))
    await engine.parked(1)
    assert not waiting.done()
    await engine.send("b")
    assert bodies_in(await waiting) == ["b"]


def test_a_pop_has_served_its_group_if_it_took_all_of_all_queues(rig: Rig) -> None:
    rig.pair(queues=2)
    assert rig.commit(sending("a"), ask.Pop("t", "g")).served == {("g", "t")}
    assert not rig.commit(sending("b", "c"), ask.Pop("t", "g", max_messages=1)).served
    assert not rig.commit(ask.Pop("t", "g", queues=(0, 1))).served
    assert not rig.commit(sending("d"), ask.Pop("t", "g"), ask.Pop("t", "g", max_messages=1)).results[2].rows


@pytest.mark.parametrize(
    "comes", [lambda tx, topic: tx.came(topic, 0), lambda tx, topic: tx.wake(None, topic.topic_id)]
)
def test_what_comes_behind_a_pop_in_its_commit_wakes_its_group(rig: Rig, comes: Callable[[Tx, Topic], None]) -> None:
    """As a redrive of what no producer ended, which is in the lane of pops."""
    topic = rig.topic("t")
    tx = Tx(rig.core.state, rig.store, rig.now)
    try:
        tx.serve("g", "t")
        comes(tx, topic)
        assert ((None, "t") in tx.woken, tx.served) == (True, None)
    finally:
        tx.abort()
