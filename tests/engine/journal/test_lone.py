"""Commands that wait alone: which of them run on the event loop's thread, and what happens if they cannot end there."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.embedded.loop.broker import EmbeddedEngine, Ticket
from popmq_server.embedded.state.space import Room, Space
from popmq_server.embedded.store.journal import folding
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.store.journal.file import Journal
from popmq_server.embedded.store.lmdb import DiskFault
from popmq_server.embedded.writer import batch, lone
from popmq_server.embedded.writer.writer import Writer
from popmq_server.errors import CommitFailed, NoRoom, Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from popmq_server.values.limits import KEEP_MS_MAX
from tests.engine.event_loop import turns
from tests.engine.rig import MINUTE, SECOND, deliveries, numbered, sending
from tests.engine.traffic.traffic import group


class Engine:
    """An engine with a journal, and the threads that committed its batches."""

    def __init__(self, folder: Path, sync: str = "none") -> None:
        self.clock = FakeClock()
        options = Options(folder, max_size=1 << 30, sync=sync, journal="on")
        self.broker = EmbeddedEngine(options, self.clock, Metrics())
        self.threads: list[bool] = []

    async def here(self, *commands: Any) -> list[bool]:
        """Runs commands at once; for each commit whether it was on this thread."""
        await asyncio.to_thread(asleep, self.broker._writer)
        self.threads.clear()
        await asyncio.gather(*(self.broker.execute(command) for command in commands))
        return list(self.threads)

    def journal(self) -> Journal:
        folding = self.broker.store.folding
        assert folding is not None
        assert folding.journal is not None
        return folding.journal

    async def bodies(self) -> int:
        """How many messages there are."""
        return len((await self.broker.ask(ask.queries.Browse("t", 0, 0, 100, 1 << 20))).rows)


def asleep(writer: Writer[Ticket]) -> None:
    """Waits until the writer thread sleeps."""
    with writer._event:
        assert writer._event.wait_for(lambda: writer._asleep, 30)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not make a disk slow."""
    monkeypatch.setattr(lone, "LONGEST_S", 60.0)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine with topic t and group g, and with changes that are unfolded."""
    engine = Engine(tmp_path / "data")
    commit, loop_thread = JournaledTransaction.commit, threading.get_ident()

    def committed(transaction: JournaledTransaction) -> None:
        engine.threads.append(threading.get_ident() == loop_thread)
        commit(transaction)

    monkeypatch.setattr(JournaledTransaction, "commit", committed)
    await engine.broker.execute(ask.CreateTopic("t", 1, False, KEEP_MS_MAX))
    await engine.broker.execute(group("g", 3))
    yield engine
    await engine.broker.close()


async def test_a_lone_send_pop_and_ack_run_on_the_loops_thread(engine: Engine) -> None:
    assert await engine.here(sending("a")) == [True]
    popped = await engine.broker.execute(ask.Pop("t", "g"))
    assert engine.threads == [True, True]
    assert await engine.here(ask.Ack("g", (deliveries(popped)[0].handle,))) == [True]


async def test_a_lone_send_and_the_pop_that_waits_for_it_run_on_the_loops_thread_in_one_commit(engine: Engine) -> None:
    for text in "ab":
        waiting = asyncio.ensure_future(engine.broker.pop(ask.Pop("t", "g"), MINUTE))
        while not engine.broker.waiters.count:
            await turns()
        assert await engine.here(sending(text)) == [True]
        assert [row.body for row in deliveries(await waiting)] == [text]
        assert engine.threads == [True]


@pytest.mark.parametrize("others", [0, 1])
async def test_a_lone_command_is_answered_in_the_turn_of_the_loop_in_which_nothing_else_is_to_run(
    engine: Engine, others: int
) -> None:
    await asyncio.to_thread(asleep, engine.broker._writer)
    engine.broker._ready = range(others)
    steps = iter(engine.broker.execute(sending("a")).__await__())
    if others:
        assert next(steps) is not None, "it is queued, and waits"
    else:
        with pytest.raises(StopIteration):
            next(steps)
    engine.broker._ready = (None,)
    assert await engine.bodies() == 1


async def test_a_command_that_comes_again_as_a_look_that_was_cut_short_does_runs_on_the_writers_thread(
    engine: Engine,
) -> None:
    """A Pop that looks through a million messages, piece by piece, would let the loop read no request meanwhile."""
    await engine.here(sending("before"))
    again = ask.Pop("t", "g", max_messages=1)
    await engine.here(sending("another"))
    assert await engine.here(again) == [True]
    assert await engine.here(again) == [False]


async def test_what_is_no_small_send_pop_or_ack_runs_on_the_writers_thread(engine: Engine) -> None:
    assert await engine.here(sending("x" * 70_000)) == [False]
    assert await engine.here(ask.CreateTopic("u", 1, False, KEEP_MS_MAX)) == [False]


async def test_few_commands_that_wait_together_run_on_the_loops_thread_as_one_batch(engine: Engine) -> None:
    assert await engine.here(*map(sending, numbered("m", lone.COMMANDS_MAX))) == [True]
    assert await engine.bodies() == lone.COMMANDS_MAX
    popped = await engine.broker.execute(ask.Pop("t", "g", max_messages=3))
    acks = [ask.Ack("g", (row.handle,)) for row in deliveries(popped)]
    assert await engine.here(ask.Pop("t", "g"), sending("last"), *acks) == [True]


@pytest.mark.parametrize(
    "commands",
    [
        [*map(sending, numbered("m", lone.COMMANDS_MAX + 1))],
        [sending("x" * 40_000), sending("x" * 40_000)],
        [ask.Pop("t", "g", max_messages=100), ask.Pop("t", "g", max_messages=100)],
    ],
)
async def test_many_commands_and_large_ones_run_on_the_writers_thread(engine: Engine, commands: list[Any]) -> None:
    await engine.here(*map(sending, numbered("n", 60)))
    await engine.here(*map(sending, numbered("o", 60)))
    assert await engine.here(*commands) == [False]


async def test_beside_a_disk_that_takes_its_time_only_lone_commands_run_on_the_loops_thread(engine: Engine) -> None:
    """Else the loop reads requests during a sync."""
    await engine.here(sending("a"))
    journal: Any = engine.journal()
    journal.sync_s = lone.OVERLAP_S * 1.01
    assert await engine.here(sending("b"), sending("c")) == [False]
    assert await engine.here(sending("d")) == [True]
    journal.sync_s = lone.OVERLAP_S
    assert await engine.here(sending("e"), sending("f")) == [True]


async def test_a_sync_of_the_journal_tells_how_long_it_took(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "synced", sync="full")
    await engine.broker.execute(ask.CreateTopic("t", 1, False, KEEP_MS_MAX))
    await engine.broker.execute(sending("a"))
    assert 0 < engine.journal().sync_s < 60
    await engine.broker.close()


async def test_what_a_batch_on_the_loops_thread_may_not_answer_any_more_is_answered_by_the_next(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.here(sending("a"), sending("b"))
    monkeypatch.setattr(batch, "PIECES_BYTES_MAX", 1)
    monkeypatch.setattr(batch, "ANSWER_BYTES_MAX", 1)
    pops = [engine.broker.execute(ask.Pop("t", "g", max_messages=1, client_id=client)) for client in "xy"]
    await asyncio.to_thread(asleep, engine.broker._writer)
    engine.threads.clear()
    got = await asyncio.gather(*pops)
    assert sorted(row.body for popped in got for row in deliveries(popped)) == ["a", "b"]
    assert engine.threads[0], "the first of them"
    assert len(engine.threads) == 2


async def test_the_first_batch_after_a_fold_runs_on_the_thread_that_will_fold(engine: Engine) -> None:
    await asyncio.to_thread(engine.clock.advance, SECOND)
    assert await engine.here(sending("a")) == [False]
    assert await engine.here(sending("b")) == [True]


async def test_after_a_fold_a_start_finds_no_record_of_a_batch_that_failed(engine: Engine) -> None:
    await engine.here(sending("a"))
    engine.journal().unsure = True
    await asyncio.to_thread(engine.clock.advance, SECOND)
    assert not engine.journal().unsure


async def test_after_a_slow_batch_the_loop_waits_for_no_disk_for_a_while(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone, "LONGEST_S", 0.0)
    assert await engine.here(sending("a")) == [True]
    assert await engine.here(sending("b")) == [False]


async def test_a_command_that_needs_a_fold_is_handed_over_and_has_one_effect(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "JOURNALED_BYTES_MAX", 10)
    assert await engine.here(sending("a")) == [True, False]
    assert await engine.bodies() == 1


async def test_where_room_is_short_the_commit_that_frees_pages_is_a_fold_of_the_writers_thread(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of the journal frees none. What began on the loop's thread must not stay open."""
    await engine.here(sending("a"))
    measured = Space.room

    def short(space: Space, *given: Any, **named: Any) -> Room:
        measured(space, *given, **named)
        return Room((1 << 28,) * 4, (0,) * 4, lambda: NoRoom("full"))

    monkeypatch.setattr(Space, "recovers", property(lambda _: True))
    monkeypatch.setattr(Space, "room", short)
    assert await engine.here(sending("b")) == [True, False, False]
    assert await engine.bodies() == 2
    assert not engine.broker.store.unfolded, "the look at the messages began with another fold, and wrote nothing"


async def test_what_a_batch_on_the_loops_thread_makes_due_wakes_the_writers_thread_in_time(engine: Engine) -> None:
    await engine.here(sending("a"))
    await asyncio.to_thread(asleep, engine.broker._writer)
    assert await engine.here(ask.Pop("t", "g", invisible_ms=100)) == [True]
    writer, due_ms = engine.broker._writer, engine.clock.now_ms() + 100

    def will_wake() -> bool:
        with writer._event:
            return writer._event.wait_for(lambda: writer._asleep and writer._until_ms == due_ms, 5)

    assert await asyncio.to_thread(will_wake)


async def test_while_a_sync_lasts_that_took_too_long_no_batch_runs_on_the_loops_thread(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone, "REST_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", _slow_elsewhere(Journal.append))
        assert await engine.here(sending("a")) == [True, False]
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "stands", True)
        assert await engine.here(sending("b")) == [False]
    assert await engine.here(sending("c")) == [True]


async def test_a_disk_that_stands_still_stops_neither_the_loop_nor_loses_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, stands, goes_on = Engine(tmp_path / "data", "full"), threading.Event(), threading.Event()
    await engine.broker.execute(ask.CreateTopic("t", 1, False, KEEP_MS_MAX))
    fdatasync, writer = os.fdatasync, engine.broker._writer

    def stalls(file: int) -> None:
        stands.set()
        assert goes_on.wait(30)
        fdatasync(file)

    await asyncio.to_thread(asleep, writer)
    monkeypatch.setattr(os, "fdatasync", stalls)
    monkeypatch.setattr(folding, "ELSEWHERE_S", 0.01)
    running = asyncio.create_task(engine.broker.execute(sending("a")))
    assert await asyncio.to_thread(stands.wait, 30)
    assert not running.done()
    goes_on.set()
    await running
    assert await engine.bodies() == 1
    await engine.broker.close()


async def test_after_a_sync_that_took_too_long_the_loop_waits_for_no_disk_for_a_while(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", _slow_elsewhere(Journal.append))
        assert await engine.here(sending("a")) == [True, False]
    assert await engine.here(sending("b")) == [False]
    assert await engine.bodies() == 2


def _slow_elsewhere(append: Callable[..., bool]) -> Callable[..., bool]:
    """Gives up each sync that may be given up."""
    return lambda journal, changes, within_s: within_s is None and append(journal, changes)


@pytest.mark.parametrize(
    "error", [DiskFault("Input/output error", full=False), CommitFailed("the data folder is not there any more")]
)
async def test_a_commit_that_fails_on_the_loops_thread_ends_the_broker_and_is_not_answered_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    engine = Engine(tmp_path / "data")
    await engine.broker.execute(ask.CreateTopic("t", 1, False, KEEP_MS_MAX))
    await engine.broker.execute(sending("a"))
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", mock.Mock(side_effect=error))
        with pytest.raises(Refused, match="a commit failed, and the broker stops"):
            await engine.broker.execute(sending("b"))
    assert isinstance(await engine.broker.failed, CommitFailed)
    await engine.broker.close()
    again = Engine(tmp_path / "data")
    assert await again.bodies() == 1
    await again.broker.close()
