"""PurgeTopic beside other commands: in one commit with them, again and again, while calls wait."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.rules.operate import purge
from tests.engine.event_loop import LOST_S, whole_engine
from tests.engine.rig import HOUR, KEEP, MINUTE, Rig, bodies, deliveries, refusal, sending
from tests.engine.traffic.traffic import emptied

# ── In one commit with others ────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_sent_in_the_commit_of_a_purge_is_not_purged(rig: Rig) -> None:
    rig.pair()
    rig.send("old")
    first, dropped, second = rig.run(sending("a"), ask.PurgeTopic("t"), sending("b"))
    assert (dropped, first.first, second.first) == ((1, 0), 1, 2)
    assert bodies(rig.pop()) == ["a", "b"]


def test_a_message_dead_lettered_in_the_commit_of_a_purge_is_purged_too(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    (row,) = rig.pop()
    reject = ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "reject"),))
    rig.skip(5 * MINUTE)  # so that housekeeping has its turn in the same commit
    assert rig.run(reject, ask.PurgeTopic("%DLQ%g"), ask.DeleteTopic("t"))[1] == (1, 0)
    rig.settle()
    assert rig.dead() == []
    assert rig.read("log") == []


def test_a_topic_is_purged_again_and_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 1)
    rig.pair()
    for number in range(5):
        rig.send(f"m{number}", "x")
        rig.pop(1)
        assert emptied(rig) == 2
    assert emptied(rig) == 0
    rig.send("last")
    assert [(row.body, row.offset) for row in rig.pop()] == [("last", 10)]
    rig.settle()
    assert len(rig.read("log")) == 1


def test_a_full_topic_takes_messages_again_at_once(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, KEEP, bytes_max=1 << 20))
    rig.group()
    rig.pop()
    big = "x" * 400_000
    rig.send(big)
    assert refusal(rig.run(sending(big))[0]) == "STORAGE_FULL"
    emptied(rig)
    rig.send(big)
    assert len(rig.pop()) == 1


def test_a_topic_that_is_not_there_cannot_be_purged(rig: Rig) -> None:
    result = rig.run(ask.PurgeTopic("nobody"))[0]
    assert (refusal(result), result.field) == ("TOPIC_NOT_FOUND", "name")


# ── Who waits ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedEngine]:
    async with whole_engine(tmp_path / "data", clock, kind="DELAY", pop_messages_per_s=1) as broker:
        yield broker


async def settled(broker: EmbeddedEngine, lots: int) -> None:
    async with asyncio.timeout(LOST_S):
        while (
            broker.waiters.count + broker.watchers.count + broker.quota_waiters.count + broker.pulls.waiters.count
            != lots
        ):
            await broker.ask(operations.StoreState())


async def test_parked_pops_wait_on_through_a_purge_and_get_the_next_message(
    broker: EmbeddedEngine, clock: FakeClock
) -> None:
    await broker.execute(sending("a", "b"))
    await broker.pop(ask.Pop("t", "g"), 0)  # takes the token of this second: the next ones wait for one
    pops = [asyncio.ensure_future(broker.pop(ask.Pop("t", "g", queues=named), HOUR)) for named in ((), (0,))]
    pull = asyncio.ensure_future(broker.pull(ask.Pull("t", "", 0, 2), HOUR))
    await settled(broker, 3)
    await broker.execute(ask.PurgeTopic("t"))
    await settled(broker, 3)
    assert not any(task.done() for task in (*pops, pull))
    await broker.execute(sending("c"))
    async with asyncio.timeout(LOST_S):
        done, _ = await asyncio.wait(pops, return_when=asyncio.FIRST_COMPLETED)
        assert [bodies(deliveries(task.result())) for task in done] == [["c"]]
        assert [row[3] for row in (await pull).rows] == [2]
    for task in pops:
        task.cancel()
    await asyncio.wait(pops)
