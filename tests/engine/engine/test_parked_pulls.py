"""Parked Pulls: what wakes them and what does not, when they end, and what they have looked at."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.loop import long_poll as lots
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.loop.parked_pulls import ParkedPulls
from popmq_server.embedded.operations import Fold
from popmq_server.embedded.rules.pulling import pull as pulls
from popmq_server.embedded.store.keys import CQ_KEY
from popmq_server.errors import Refused
from tests.engine.event_loop import LOST_S, turns, whole_engine
from tests.engine.pull_steps import RETRY, texts
from tests.engine.rig import HOUR, MINUTE, SECOND, message, sending
from tests.engine.traffic.traffic import group


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedEngine]:
    """Group g pulls topic t of two queues."""
    async with whole_engine(tmp_path / "data", clock, queues=2) as broker:
        await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "PULL"))
        yield broker


def held(
    broker: EmbeddedEngine, offset: int = 0, queue: int = 0, wait_ms: int = MINUTE, **asked: Any
) -> asyncio.Task[Any]:
    asked = {"topic": "t", "group": "g", **asked}
    return asyncio.ensure_future(broker.pull(ask.Pull(queue=queue, offset=offset, **asked), wait_ms))


async def parked(broker: EmbeddedEngine, count: int, *pulls: asyncio.Task[Any]) -> None:
    """Until this number of Pulls is parked: the writer answers them on its own thread. None of `pulls` may be over."""
    async with asyncio.timeout(LOST_S):
        while broker.pulls.waiters.count != count:
            assert not any(pull.done() for pull in pulls), "a Pull was answered that was to be parked"
            await turns()


async def sent(broker: EmbeddedEngine, *bodies: str) -> ask.Sent:
    """The first request goes to queue 0, the second to queue 1, and so on."""
    answer: ask.Sent = await broker.execute(sending(*bodies))
    return answer


class Looks:
    """Counts the Pulls that reach the writer."""

    def __init__(self, broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        execute = broker.run

        async def counted(command: Any) -> Any:
            self.count += isinstance(command, ask.Pull)
            return await execute(command)

        monkeypatch.setattr(broker, "run", counted)


# ── What is parked, and what wakes ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S4.06")
@pytest.mark.slow
async def test_a_pull_of_an_empty_queue_is_parked_and_woken_by_its_first_message(broker: EmbeddedEngine) -> None:
    task = held(broker)
    await parked(broker, 1, task)
    await sent(broker, "a", "b")
    found = await task
    assert (found.status, texts(found), found.next_offset) == ("FOUND", ["a", "b"], 2)


@pytest.mark.mechanism("S4.06")
async def test_a_pull_at_the_end_is_parked_and_woken_by_the_next_message(broker: EmbeddedEngine) -> None:
    await sent(broker, "a")
    task = held(broker, 1)
    await parked(broker, 1, task)
    await sent(broker, "other queue")
    await sent(broker, "b")
    assert texts(await task) == ["b"]


@pytest.mark.mechanism("S4.13")
async def test_a_message_wakes_all_pulls_parked_on_its_queue_and_no_others(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(broker, monkeypatch)
    here = [held(broker, queue=0) for _ in range(3)]
    there = [held(broker, queue=1) for _ in range(3)]
    await parked(broker, 6)
    await sent(broker, "a")
    assert [texts(await task) for task in here] == [["a"]] * 3
    await turns(5)
    assert (looks.count, broker.pulls.waiters.count) == (9, 3), "six first looks, three that were woken"
    await sent(broker, "b")
    assert [texts(await task) for task in there] == [["b"]] * 3


@pytest.mark.mechanism("S2.37")
@pytest.mark.parametrize(
    ("offset", "queue", "status"),
    [(0, 0, "FOUND"), (2, 0, "OFFSET_OVERFLOW_BADLY"), (0, 7, "NO_MATCHED_LOGIC_QUEUE"), (3, 1, "NO_MESSAGE_IN_QUEUE")],
)
async def test_a_pull_that_need_not_wait_is_answered_at_once(
    broker: EmbeddedEngine, offset: int, queue: int, status: str
) -> None:
    await sent(broker, "a")
    async with asyncio.timeout(LOST_S):
        assert (await held(broker, offset, queue)).status == status


@pytest.mark.slow
async def test_an_offset_below_the_first_is_corrected_at_once(broker: EmbeddedEngine, clock: FakeClock) -> None:
    await broker.execute(ask.UpdateTopic("t", 0, (True, HOUR)))
    await sent(broker, "a")
    await asyncio.to_thread(clock.advance, HOUR + MINUTE)
    async with asyncio.timeout(LOST_S):
        found = await held(broker, 0)
    assert (found.status, found.next_offset) == ("OFFSET_TOO_SMALL", 1)


@pytest.mark.mechanism("S2.40")
async def test_a_pull_at_the_end_without_a_wait_is_answered_at_once(broker: EmbeddedEngine) -> None:
    assert (await held(broker, wait_ms=0)).status == "NO_MESSAGE_IN_QUEUE"


# ── When it ends ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.21")
@pytest.mark.slow
async def test_a_wait_ends_at_its_time_and_not_before(broker: EmbeddedEngine, clock: FakeClock) -> None:
    await sent(broker, "a")
    tasks = [held(broker, 1, wait_ms=wait_ms) for wait_ms in (5 * SECOND, 20 * SECOND)]
    await parked(broker, 2)
    clock.advance(5 * SECOND - 1)
    await turns(10)
    assert [task.done() for task in tasks] == [False, False]
    clock.advance(1)
    found = await tasks[0]
    assert (found.status, found.rows, found.next_offset) == ("OFFSET_OVERFLOW_ONE", [], 1)
    assert not tasks[1].done()
    clock.advance(15 * SECOND)
    assert (await tasks[1]).status == "OFFSET_OVERFLOW_ONE"


async def test_a_wake_without_messages_does_not_prolong_the_wait(broker: EmbeddedEngine, clock: FakeClock) -> None:
    """One hold for each request: its deadline is its own, however often it looks."""
    task = held(broker, filter=("tag", "x"), group="", wait_ms=10 * SECOND)
    await parked(broker, 1)
    clock.advance(9 * SECOND)
    await sent(broker, "a")
    await broker.execute(ask.UpdateTopic("t", 3, None))
    await turns(20)
    await parked(broker, 1)
    clock.advance(SECOND)
    found = await task
    assert (found.status, found.next_offset) == ("NO_MATCHED_MESSAGE", 1)


async def test_a_deleted_topic_ends_the_wait_with_its_reason(broker: EmbeddedEngine) -> None:
    tasks = [held(broker, queue=0), held(broker, queue=1), held(broker, topic=RETRY)]
    await parked(broker, 3)
    await broker.execute(ask.DeleteTopic("t"))
    async with asyncio.timeout(LOST_S):
        told = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(one, "code", "") for one in told] == ["TOPIC_NOT_FOUND"] * 3


@pytest.mark.slow
async def test_a_stop_answers_parked_pulls(broker: EmbeddedEngine) -> None:
    task = held(broker)
    await parked(broker, 1)
    broker.close_waits()
    assert (await task).status == "NO_MESSAGE_IN_QUEUE"


async def test_a_cancelled_pull_leaves_its_place(broker: EmbeddedEngine) -> None:
    task = held(broker)
    await parked(broker, 1)
    task.cancel()
    await asyncio.wait([task])
    assert broker.pulls.waiters.count == 0


async def test_the_number_of_parked_pulls_is_limited(broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lots, "WAITERS_PER_KEY_MAX", 1)
    task = held(broker)
    await parked(broker, 1)
    with pytest.raises(Refused) as refused:
        await held(broker)
    assert (refused.value.code, refused.value.message) == (
        "POLLING_FULL",
        "1 Pulls of queue '0' wait on topic 't' already",
    )
    await sent(broker, "a")
    await task


# ── Filters, holes, commits ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_a_sparse_filter_is_searched_on_while_there_is_more_and_waits_only_at_the_end(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 match in 100,000 is found without waiting a poll period; here 1 in 100, 10 a look."""
    monkeypatch.setattr(pulls, "SCAN_UNITS_MAX", 10)
    looks = Looks(broker, monkeypatch)
    others = [message(f"b{number}", tag="b") for number in range(99)]
    await broker.execute(ask.Send("t", (*others, message("a", tag="a"))))
    async with asyncio.timeout(LOST_S):
        found = await held(broker, filter=("tag", "a"), group="")
    assert (texts(found), found.next_offset, looks.count) == (["a"], 100, 10)
    task = held(broker, 0, filter=("tag", "c"), group="")
    await parked(broker, 1)
    assert looks.count == 20
    task.cancel()


async def test_a_pull_with_a_sparse_filter_and_no_wait_gets_one_look(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulls, "SCAN_UNITS_MAX", 10)
    await broker.execute(ask.Send("t", tuple(message(f"b{number}", tag="b") for number in range(99))))
    found = await held(broker, filter=("tag", "a"), group="", wait_ms=0)
    assert (found.status, found.next_offset) == ("NO_MATCHED_MESSAGE", 10)


@pytest.mark.usefixtures("a_chunk_a_commit")
async def test_a_hole_is_stepped_over_while_the_request_waits(broker: EmbeddedEngine, clock: FakeClock) -> None:
    for number in range(4):
        await sent(broker, f"m{number}")  # m0 and m2 in queue 0
    key = CQ_KEY.pack(broker._core.state.ids["t", "t"], 0, 0)
    await broker.execute(Fold())
    kv = broker.store.begin()
    raw = bytes(kv.get("cq", key) or b"")
    kv.delete("cq", key)
    kv.commit()
    assert texts(await held(broker)) == ["m2"]
    assert (await held(broker, wait_ms=0)).status == "OFFSET_FOUND_NULL"
    await broker.execute(Fold())
    kv = broker.store.begin()
    kv.put("cq", key, raw)
    kv.commit()


@pytest.mark.mechanism("S2.42")
@pytest.mark.slow
async def test_the_offset_that_a_pull_carries_is_committed_once_when_it_arrives(broker: EmbeddedEngine) -> None:
    """The offset is not committed again when the pull is woken, which would undo later commits."""
    await sent(broker, "a", "b", "c")
    task = held(broker, 3, commit_offset=1)
    await parked(broker, 1)
    assert (await broker.execute(ask.QueryOffsets("t", "g")))[0].committed == 1
    await broker.execute(ask.UpdateOffsets("t", "g", {0: 3}))
    await sent(broker, "other queue")
    await sent(broker, "d")
    found = await task
    assert (texts(found), found.acked) == (["d"], 1)
    assert (await broker.execute(ask.QueryOffsets("t", "g")))[0].committed == 3


@pytest.mark.slow
async def test_many_entries_that_a_pull_of_a_retry_topic_commits_are_all_done_when_it_is_answered(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.pulling.offsets.ENTRIES_MAX", 2)
    await sent(broker, *"abcde")
    back = tuple(ask.SentBack(0, offset, delay_ms=0) for offset in range(5))
    await broker.execute(ask.SendBack("t", "g", back))
    end = (await broker.execute(ask.QueryOffsets(RETRY)))[0].max_offset
    found = await held(broker, end, topic=RETRY, commit_offset=end, wait_ms=0)
    assert (found.acked, (await broker.execute(ask.QueryOffsets(RETRY)))[0].min_offset) == (5, end)


# ── Retry topics ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_pull_of_a_retry_topic_is_woken_by_what_comes_into_it_and_by_no_send(
    broker: EmbeddedEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(broker, monkeypatch)
    await sent(broker, "a", "b")
    task = held(broker, topic=RETRY)
    await parked(broker, 1)
    await sent(broker, "c")
    await turns(20)
    assert looks.count == 1
    await broker.execute(ask.SendBack("t", "g", (ask.SentBack(0, 1, delay_ms=0),)))
    assert texts(await task) == ["b"]
    await broker.execute(ask.SendBack("t", "g", (ask.SentBack(0, 0, delay_ms=MINUTE),)))
    end = (await broker.execute(ask.QueryOffsets(RETRY)))[0].max_offset
    task = held(broker, end, topic=RETRY, wait_ms=HOUR)
    await parked(broker, 1)
    await asyncio.to_thread(clock.advance, MINUTE)
    assert texts(await task) == ["a"]


# ── A switch of the consume mode ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_a_switch_to_pop_ends_every_parked_pull_of_the_group_and_no_others(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ended pull gets a message sent afterwards: a pop gets it."""
    await broker.execute(group("h", 3))
    await broker.set_consume_mode(ask.SetConsumeMode("t", "h", "PULL"))
    ended = [held(broker, queue=0), held(broker, queue=1), held(broker, topic=RETRY)]
    others = [held(broker, queue=0, group="h"), held(broker, queue=1, group="")]
    await parked(broker, 5)
    await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "POP"))
    async with asyncio.timeout(LOST_S):
        refused = await asyncio.gather(*ended, return_exceptions=True)
    assert [one.code for one in refused if isinstance(one, Refused)] == ["WRONG_CONSUME_MODE"] * 3
    await parked(broker, 2)
    await sent(broker, "a")
    await sent(broker, "b")
    assert [texts(await one) for one in others] == [["a"], ["b"]]
    assert len((await broker.pop(ask.Pop("t", "g"), 0)).rows) == 2


# ── No wake is lost ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_between_the_look_and_the_parking_is_not_missed(clock: FakeClock) -> None:
    looks = []

    async def execute(command: ask.Pull) -> ask.Pulled:
        looks.append(command.offset)
        if len(looks) == 1:
            parking.wake([("0", "t")], set())
            return ask.Pulled("OFFSET_OVERFLOW_ONE", [], 1, 0, 1)
        return ask.Pulled("FOUND", [(b"", 0, 0, 1, 1)], 2, 0, 2)

    engine: Any = SimpleNamespace(run=execute)
    parking = ParkedPulls(clock, engine)
    async with asyncio.timeout(LOST_S):
        assert (await parking.pull(ask.Pull("t", "g", 0, 1), MINUTE)).status == "FOUND"
    assert looks == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_readers_of_all_queues_miss_nothing_and_wait_for_nothing(broker: EmbeddedEngine, seed: int) -> None:
    """The fake clock stands still, so that only a wake ends a wait."""
    chance, messages = random.Random(seed), 1500

    async def produce() -> None:
        for number in range(messages):
            await sent(broker, f"m{number}")
            await turns(chance.randrange(8))

    async def read(queue: int, got: list[str]) -> None:
        offset = 0
        while len(got) < messages // 2:
            found = await held(broker, offset, queue, max_messages=1 + chance.randrange(3), group="")
            assert found.status == "FOUND"
            got += texts(found)
            offset = found.next_offset

    readers = [(number % 2, list[str]()) for number in range(6)]
    async with asyncio.timeout(LOST_S):
        await asyncio.gather(produce(), *(read(queue, got) for queue, got in readers))
    for queue, got in readers:
        assert got == [f"m{number}" for number in range(queue, messages, 2)]


async def test_a_switch_to_pull_refuses_parked_pops(broker: EmbeddedEngine) -> None:
    """Every parked pop, though a commit otherwise wakes one."""
    await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "POP"))
    pops = [asyncio.ensure_future(broker.pop(ask.Pop("t", "g"), MINUTE)) for _ in range(5)]
    async with asyncio.timeout(LOST_S):
        while broker.waiters.count != 5:
            await turns()
        await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "PULL"))
        told = await asyncio.gather(*pops, return_exceptions=True)
    assert Counter(getattr(one, "code", "") for one in told) == {"WRONG_CONSUME_MODE": 5}


async def test_a_switch_to_pop_lets_pops_get_messages_that_were_sent_back(broker: EmbeddedEngine) -> None:
    await sent(broker, "a")
    await broker.execute(ask.UpdateOffsets("t", "g", {0: 1}))
    await broker.execute(ask.SendBack("t", "g", (ask.SentBack(0, 0, delay_ms=0),)))
    await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "POP"))
    assert len((await broker.pop(ask.Pop("t", "g"), 0)).rows) == 1
