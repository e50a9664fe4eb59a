"""The parking lot: no wake is lost, and none is kept by somebody who has gone."""

import asyncio
import itertools
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands.numbers import CommitNumbers
from popmq_server.embedded.loop import long_poll as lots
from popmq_server.embedded.loop.broker import LOOK_MS, EmbeddedEngine
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.errors import Refused
from popmq_server.values.leased import Leased
from tests.engine.event_loop import LOST_S, turns, whole_engine
from tests.engine.rig import MINUTE, SECOND, Delivery, deliveries, sending

KEY = ("g", "t")
#: No commit takes so long.
HELD_UP_S = 15


@pytest.fixture
def lot(clock: FakeClock) -> Waiters:
    return Waiters(clock, wake_all=False)


def parked(lot: Waiters, clock: FakeClock, wait_ms: int = MINUTE, key: tuple[str, str] = KEY) -> asyncio.Task[bool]:
    return asyncio.ensure_future(lot.park(key, lot.generation(key), clock.now_ms() + wait_ms))


@pytest.mark.mechanism("S2.45", "S4.11")
async def test_a_commit_wakes_one_waiter_the_oldest(lot: Waiters, clock: FakeClock) -> None:
    tasks = [parked(lot, clock) for _ in range(3)]
    await turns()
    lot.wake({KEY})
    await turns()
    assert [task.done() for task in tasks] == [True, False, False]
    assert tasks[0].result()
    assert lot.counts() == {KEY: 2}
    lot.close()


async def test_a_send_wakes_one_waiter_of_each_group_of_the_topic(lot: Waiters, clock: FakeClock) -> None:
    keys = [("g", "t"), ("h", "t"), ("g", "u")]
    tasks = [parked(lot, clock, key=key) for key in keys for _ in range(2)]
    await turns()
    lot.wake({(None, "t")})
    await turns()
    assert [task.done() for task in tasks] == [True, False, True, False, False, False]
    lot.close()


async def test_waiters_with_wake_all_are_all_woken(clock: FakeClock) -> None:
    lot = Waiters(clock, wake_all=True)
    tasks = [parked(lot, clock) for _ in range(3)]
    await turns()
    lot.wake({KEY})
    await turns()
    assert all(task.done() and task.result() for task in tasks)


@pytest.mark.mechanism("S4.09")
@pytest.mark.parametrize("woken", [KEY, (None, "t")])
async def test_a_wake_between_the_look_and_the_parking_is_not_missed(
    lot: Waiters, clock: FakeClock, woken: tuple[str | None, str]
) -> None:
    seen = lot.generation(KEY)
    lot.wake({woken})
    assert await lot.park(KEY, seen, clock.now_ms() + MINUTE)
    assert lot.count == 0


async def test_a_cancelled_waiter_hands_its_wake_on(lot: Waiters, clock: FakeClock) -> None:
    first, second = parked(lot, clock), parked(lot, clock)
    await turns()
    lot.wake({KEY})
    first.cancel()  # in the same turn of the loop
    await turns()
    assert first.cancelled()
    assert second.done()
    assert second.result()


async def test_a_waiter_cancelled_while_it_waits_leaves_its_place(lot: Waiters, clock: FakeClock) -> None:
    first, second = parked(lot, clock), parked(lot, clock)
    await turns()
    first.cancel()
    await turns()
    assert lot.count == 1
    lot.wake({KEY})
    await turns()
    assert second.result()


@pytest.mark.mechanism("S4.07", "S4.14")
async def test_a_wait_ends_at_its_deadline_and_not_before(lot: Waiters, clock: FakeClock) -> None:
    clock.subscribe(lot.tick)
    short, long = parked(lot, clock, 5 * SECOND), parked(lot, clock, 6 * SECOND)
    await turns()
    clock.advance(5 * SECOND - 1)
    await turns()
    assert not short.done()
    clock.advance(1)
    await turns()
    assert (short.done(), long.done()) == (True, False)
    assert not short.result()
    lot.wake({KEY})
    await turns()
    assert long.result()
    assert lot.count == 0


async def test_a_wake_is_not_spent_on_one_whose_time_is_over(lot: Waiters, clock: FakeClock) -> None:
    clock.subscribe(lot.tick)
    first, second = parked(lot, clock, SECOND), parked(lot, clock)
    await turns()
    clock.advance(SECOND)
    lot.wake({KEY})  # before the first could leave
    await turns()
    assert not first.result()
    assert second.result()


async def test_a_deadline_that_has_passed_does_not_wait(lot: Waiters, clock: FakeClock) -> None:
    assert not await lot.park(KEY, lot.generation(KEY), clock.now_ms())


@pytest.mark.mechanism("S4.08", "S1.43")
async def test_places_are_limited_and_a_full_lot_leaves_no_trace(
    lot: Waiters, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lots, "WAITERS_PER_KEY_MAX", 2)
    monkeypatch.setattr(lots, "WAITERS_MAX", 3)
    tasks = [parked(lot, clock), parked(lot, clock), parked(lot, clock, key=("h", "t"))]
    await turns()
    for key in (KEY, ("new", "t")):
        with pytest.raises(Refused) as refused:
            await lot.park(key, lot.generation(key), clock.now_ms() + MINUTE)
        assert refused.value.code == "POLLING_FULL"
    assert lot.counts() == {KEY: 2, ("h", "t"): 1}
    lot.close()
    assert [await task for task in tasks] == [False] * 3
    assert lot.counts() == {}


# ── With the writer's thread ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedEngine]:
    async with whole_engine(tmp_path / "data", clock, queues=2) as broker:
        yield broker


async def all_parked(broker: EmbeddedEngine, count: int) -> None:
    """Until so many Pops are parked: the writer answers them on its own thread, in its own time."""
    async with asyncio.timeout(LOST_S):
        while broker.waiters.count != count:
            await turns()


async def test_a_look_that_is_cut_short_goes_on_until_its_time_is_over_and_then_hands_its_wake_on(
    broker: EmbeddedEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `wait_ms` 0 that time is LOOK_MS. The rest is looked at by the next waiter."""
    looks: list[int] = []

    async def cut_short(command: ask.Pop) -> Leased:
        looks.append(clock.now_ms())
        clock.advance(SECOND)
        return Leased([], 0, 0, 0, 0, 5, again=True)

    other = parked(broker.waiters, clock)
    await turns()
    monkeypatch.setattr(broker, "run", cut_short)
    answer = await broker.pop(ask.Pop("t", "g"), 0)
    assert (answer.rest, len(looks)) == (5, LOOK_MS // SECOND)
    assert await other


async def test_a_look_that_is_cancelled_hands_its_wake_on(
    broker: EmbeddedEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(command: ask.Pop) -> Leased:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    other = parked(broker.waiters, clock)
    monkeypatch.setattr(broker, "run", never)
    looking = asyncio.ensure_future(broker.pop(ask.Pop("t", "g"), MINUTE))
    await turns()
    looking.cancel()
    assert await other


class Got(list[tuple[str, int]]):
    """The messages that all consumers got; a waiter for more sleeps until they come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def add(self, rows: list[Delivery]) -> None:
        self.extend((row.body, row.attempt) for row in rows)
        self.came.set()
        self.came = asyncio.Event()

    async def more_than(self, count: int) -> None:
        while len(self) <= count:
            await self.came.wait()


class Consumer:
    """Pops a few at a time and acks. One that is impatient sometimes cancels a pop, and comes back when it likes."""

    def __init__(self, broker: EmbeddedEngine, chance: random.Random, got: Got, messages: int, patient: bool) -> None:
        self.broker = broker
        self.chance = chance
        self.got = got
        self.messages = messages
        self.patient = patient
        self.away = False
        self.pop: asyncio.Future[ask.Popped] | None = None

    async def run(self) -> None:
        while len(self.got) < self.messages:
            rows = deliveries(await self.popped())
            self.got.add(rows)
            await self.broker.execute(ask.Ack("g", tuple(row.handle for row in rows)))
        self.broker.close_waits()

    async def popped(self) -> ask.Popped:
        """Pops again until the pop is not cancelled."""
        while True:
            asked = ask.Pop("t", "g", max_messages=1 + self.chance.randrange(3))
            self.pop = asyncio.ensure_future(self.broker.pop(asked, MINUTE))
            await turns(self.chance.randrange(10))
            if self.chance.random() < 0.1:
                self.leave()
            await asyncio.wait([self.pop])
            if not self.pop.cancelled():
                return self.pop.result()
            self.away = True
            await self.got.more_than(min(len(self.got), self.messages - 1))
            self.away = False

    def leave(self) -> None:
        if self.pop is not None and not self.patient:
            self.pop.cancel()


@pytest.mark.mechanism("I.17", "S1.07")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_thousands_of_parked_pops_and_sends_lose_no_wake(broker: EmbeddedEngine, seed: int) -> None:
    """The fake clock stands still, so that only a wake ends a wait. No later message wakes anybody for one before it:
    it is sent when those before it were got. Before every second one all others are parked, so nobody comes upon it.
    """
    chance, messages = random.Random(seed), 300
    got = Got()
    consumers = [Consumer(broker, chance, got, messages, place < 5) for place in range(20)]

    async def produce() -> None:
        for number in range(messages):
            while number % 2 and broker.waiters.count + sum(one.away for one in consumers) < len(consumers):
                await turns(1)
            await broker.execute(sending(f"m{number}"))
            chance.choice(consumers).leave()  # it may be the one that this message has just woken
            await got.more_than(number)
            await turns(chance.randrange(8))

    async with asyncio.timeout(LOST_S):
        await asyncio.gather(produce(), *(consumer.run() for consumer in consumers))
    assert sorted(got) == sorted((f"m{number}", 1) for number in range(messages))


@pytest.mark.mechanism("S1.42", "S1.02")
async def test_a_burst_wakes_as_many_as_it_feeds(broker: EmbeddedEngine) -> None:
    pops = [asyncio.ensure_future(broker.pop(ask.Pop("t", "g", max_messages=1), MINUTE)) for _ in range(10)]
    await all_parked(broker, 10)
    await broker.execute(sending(*"abcdefg"))
    async with asyncio.timeout(LOST_S):
        for fed in itertools.islice(asyncio.as_completed(pops), 7):
            await fed
    await all_parked(broker, 3)
    assert sum(pop.done() for pop in pops) == 7


@pytest.mark.mechanism("D.54")
async def test_a_parked_pop_gets_messages_of_a_lease_at_its_deadline(broker: EmbeddedEngine, clock: FakeClock) -> None:
    await broker.execute(sending("a"))
    await broker.pop(ask.Pop("t", "g", invisible_ms=10 * SECOND), 0)
    waiting = asyncio.ensure_future(broker.pop(ask.Pop("t", "g"), MINUTE))
    await all_parked(broker, 1)
    clock.advance(10 * SECOND - 1)
    await turns(10)
    assert not waiting.done()
    clock.advance(1)
    async with asyncio.timeout(LOST_S):
        assert [row.attempt for row in deliveries(await waiting)] == [2]


@pytest.mark.mechanism("S4.18")
async def test_the_writer_commits_on_while_the_loop_has_not_answered_yet(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop delivers answers and wakes. It is blocked here, and the writer does not wait for it."""
    committed, count = threading.Semaphore(0), broker.metrics.committed

    def counted(told: CommitNumbers) -> None:
        count(told)
        committed.release()

    monkeypatch.setattr(broker.metrics, "committed", counted)
    for text in "abc":
        broker._submit(sending(text))
        while broker._writer._gathering._goes_on:  # as the event loop does at the end of its turns
            broker._writer.turned()
        assert committed.acquire(timeout=HELD_UP_S)


async def test_a_refused_waiter_does_not_keep_the_wake_from_the_others(
    broker: EmbeddedEngine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is all but full refuses pops. Whoever parks meanwhile is refused, not left to wait."""
    await broker.execute(sending("a"))
    await broker.pop(ask.Pop("t", "g", invisible_ms=SECOND), 0)
    pops = [asyncio.ensure_future(broker.pop(ask.Pop("t", "g"), MINUTE)) for _ in range(3)]
    await all_parked(broker, 3)
    monkeypatch.setattr(broker.store, "disk_free", lambda: 0)
    monkeypatch.setattr(broker._core.space, "_turn", 0)
    clock.advance(SECOND)
    async with asyncio.timeout(LOST_S):
        told = await asyncio.gather(*pops, return_exceptions=True)
    assert [getattr(one, "code", "") for one in told] == ["STORAGE_FULL"] * 3


async def test_a_waiter_that_is_answered_with_its_earlier_answer_does_not_keep_the_wake_from_the_others(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a client repeats an attempt while its first call still waits, and is woken by a commit."""
    monkeypatch.setattr(Waiters, "wake_early", lambda *_: False)
    asked = [ask.Pop("t", "g", client_id=client, attempt_id=client) for client in "ccd"]
    pops = []
    for count, each in enumerate(asked, 1):
        pops.append(asyncio.ensure_future(broker.pop(each, MINUTE)))
        await all_parked(broker, count)
    async with asyncio.timeout(LOST_S):
        await broker.execute(sending("a"))
        await pops[0]
        await broker.execute(sending("b"))
        told = await asyncio.gather(*pops)
    assert [[row.body for row in deliveries(one)] for one in told] == [["a"], ["a"], ["b"]]


# ── What those leave behind who have gone ────────────────────────────────────────────────────────────────────────────


async def test_clients_that_came_once_leave_nothing_in_the_lot(lot: Waiters, clock: FakeClock) -> None:
    """Each client of lite topics parks under a key of its own."""
    for number in range(500):
        key = ("g", f"chat\0client{number}")
        task = parked(lot, clock, key=key)
        await turns()
        if number % 2:
            task.cancel()
        else:
            lot.wake({key})
        await turns()
    assert (lot.counts(), lot.by_topic, lot.count) == ({}, {}, 0)


async def test_waits_that_were_woken_do_not_stand_in_the_heap_until_their_deadline(
    lot: Waiters, clock: FakeClock
) -> None:
    for wait_ms in (MINUTE, 10 * MINUTE) * 1000:
        task = parked(lot, clock, wait_ms)
        await turns()
        lot.wake({KEY})
        await turns()
        assert task.result()
    assert len(lot._deadlines) <= lots.OVER_MIN
    late = parked(lot, clock)
    await turns()
    clock.advance(MINUTE)
    lot.tick()
    await turns()
    assert late.result() is False, "who still waits keeps its deadline"


async def test_forgotten_generations_lose_no_wake(
    lot: Waiters, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came between the look and the parking is not missed, though generations were forgotten meanwhile."""
    monkeypatch.setattr(lots, "GENERATIONS_MAX", 3)
    seen = lot.generation(("g", "never"))
    for number in range(20):
        lot.wake({(None, f"t{number}"), ("g", f"u{number}")})
    assert len(lot._generations) + len(lot._topic_generations) <= 3 + 2
    assert await lot.park(("g", "never"), seen, clock.now_ms() + MINUTE), "it looks once more"
