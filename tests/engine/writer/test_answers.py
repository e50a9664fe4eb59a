"""The answers of one commit batch are bounded in bytes for all requests; a request that is put off loses nothing."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.writer import batch, coalescing
from popmq_server.embedded.writer.batch import NEXT_BATCH
from tests.engine.event_loop import LOST_S, turns, whole_engine
from tests.engine.faults import Fault, failing
from tests.engine.rig import MINUTE, Rig, message, refusal, sealing

MIB = 1 << 20
BOUND, BOUND_OF_PIECES = 4 * MIB, 2 * MIB
COUNT = 20


def bounded(monkeypatch: pytest.MonkeyPatch, answers: int, pieces: int) -> None:
    for module in (batch, coalescing):
        monkeypatch.setattr(module, "ANSWER_BYTES_MAX", answers)
    monkeypatch.setattr(batch, "PIECES_BYTES_MAX", pieces)


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, BOUND, BOUND_OF_PIECES)


def large(number: int, message_id: str = "") -> ask.Send:
    entry = message("x" * MIB, message_id or str(number))
    return ask.Send("t", (entry,), "", 0, len(entry.data))


@pytest.fixture
def filled(rig: Rig) -> Rig:
    """Twenty messages of 1 MiB; group g pops, group p pulls, owner o holds each of them by a token."""
    rig.topic(queues=1)
    rig.group("g")
    rig.group("p")
    rig.group("o")
    rig.do(ask.SetConsumeMode("t", "p", "PULL"))
    rig.attach("o", group="o", topic="t")
    for number in range(COUNT):
        rig.do(large(number))
    for number in range(COUNT):
        rig.do(sealing(number + 1, group="o", max_messages=1))
    return rig


ASKED: dict[str, Callable[[int], Any]] = {
    "pop": lambda _: ask.Pop("t", "g", max_messages=1),
    "replay": lambda _: ask.Pop("t", "g", max_messages=1, client_id="c", attempt_id="a"),
    "token": lambda number: sealing(number + 1, group="o"),
    "pull": lambda number: ask.Pull("t", "p", 0, number, max_messages=1),
    "peek": lambda _: operations.PeekPiece("t", "g", 1, 3 * MIB),
    "look up": lambda number: operations.LookUpPiece("t", str(number), "", 1, 3 * MIB),
    "browse": lambda number: queries.Browse("t", 0, number, 1, 3 * MIB),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ASKED)
def test_one_commit_batch_answers_a_bounded_number_of_bytes_and_later_ones_the_rest(filled: Rig, kind: str) -> None:
    left = [ASKED[kind](number) for number in range(COUNT)]
    bound = BOUND_OF_PIECES if kind in ("pull", "browse") else BOUND
    groups = 0
    while left:
        results = filled.run(*left)
        given = [answer for answer in results if answer is not NEXT_BATCH]
        assert all(len(answer.rows) == 1 for answer in given)
        assert bound <= sum(len(answer.rows[0][0]) for answer in given) <= bound + MIB + 1000 or len(given) == len(left)
        left = [command for command, answer in zip(left, results, strict=True) if answer is NEXT_BATCH]
        groups += 1
    assert groups == COUNT // (bound // MIB)


@pytest.mark.slow
def test_all_kinds_of_answers_share_one_bound_of_bytes(filled: Rig) -> None:
    results = filled.run(*(make(number) for number in range(4) for make in ASKED.values()))
    assert sum(result is not NEXT_BATCH for result in results) == 4


@pytest.mark.slow
def test_a_postponed_pop_has_leased_nothing(filled: Rig) -> None:
    filled.run(*(ask.Pop("t", "g", max_messages=1) for _ in range(COUNT)))
    assert filled.numbers("g").in_flight == 4


@pytest.mark.slow
def test_commands_without_messages_in_their_answer_are_not_postponed(filled: Rig) -> None:
    pops = [ask.Pop("t", "g", max_messages=8) for _ in range(COUNT)]
    *_, offsets, ack = filled.run(*pops, ask.QueryOffsets("t", "p"), ask.Ack("g", ()))
    assert offsets[0].max_offset == COUNT
    assert ack.results == []


@pytest.mark.slow
def test_one_answer_is_always_given_whatever_its_size(filled: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch, 1, 1)
    first, second = filled.run(ask.Pop("t", "g", max_messages=1), ask.Pop("t", "g", max_messages=1))
    assert (len(first.rows), second) == (1, NEXT_BATCH)


@pytest.mark.slow
def test_the_bound_is_that_of_the_group_also_where_its_commands_commit_apart(filled: Rig) -> None:
    """Beside one that cannot be written to a full disk each is tried alone."""
    with failing(filled.store, Fault.FULL):
        reset, *peeks = filled.run(ask.ResetOffsets("t", "g", ("LATEST", 0)), *map(ASKED["peek"], range(COUNT)))
    assert refusal(reset) == "UNAVAILABLE"
    assert sum(result is not NEXT_BATCH for result in peeks) == 4


# ── Through the writer ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedEngine]:
    async with whole_engine(tmp_path / "data", clock) as broker:
        yield broker


@pytest.mark.slow
async def test_simultaneous_pops_of_large_messages_are_answered_in_order(broker: EmbeddedEngine) -> None:
    """No pop gets an empty answer while there are messages, and no client has to ask again."""
    for number in range(COUNT):
        await broker.execute(large(number))
    pops = [broker.pop(ask.Pop("t", "g", max_messages=1), 0) for _ in range(COUNT)]
    popped = await asyncio.gather(*pops)
    assert [answer.rows[0][3] for answer in popped] == list(range(COUNT))


async def test_postponed_pulls_keep_their_wake(broker: EmbeddedEngine) -> None:
    """One message wakes all Pops that wait for its queue, and one commit batch has no room for all answers."""
    held = [asyncio.ensure_future(broker.pull(ask.Pull("t", "", 0, 0), MINUTE)) for _ in range(COUNT)]
    async with asyncio.timeout(LOST_S):
        while broker.pulls.waiters.count != COUNT:
            await turns()
        await broker.execute(large(1))
        pulled = await asyncio.gather(*held)
    assert [len(answer.rows) for answer in pulled] == [1] * COUNT


@pytest.mark.slow
async def test_a_broker_that_stops_answers_postponed_requests(broker: EmbeddedEngine) -> None:
    for number in range(COUNT):
        await broker.execute(large(number))
    asked = [asyncio.ensure_future(broker.run(operations.PeekPiece("t", "g", 1, 3 * MIB))) for _ in range(COUNT)]
    await asyncio.sleep(0)
    await asyncio.to_thread(broker._writer.stop)
    assert [len(answer.rows) for answer in await asyncio.gather(*asked)] == [1] * COUNT


# ── Why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_lives_of_many_large_messages_of_one_id_are_reported_without_holding_their_bytes(rig: Rig) -> None:
    rig.pair()
    for number in range(COUNT):
        rig.do(large(number, "same"))
    found = tuple(rig.do(operations.Trace("same")).found)
    assert len(found) == COUNT
    tracemalloc.start()
    lives = rig.do(operations.WhyPiece("same", found))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(lives) == COUNT
    assert peak < 4 * MIB
