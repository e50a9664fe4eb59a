"""Bulk reads in pieces: pulls and pages that are browsed, between which commands of others run."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.loop import aside, listings, parked_pulls
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.rules.inspect.search import FoundPiece
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from tests.engine.event_loop import LOST_S, whole_engine
from tests.engine.pull_steps import texts
from tests.engine.rig import HOUR, sending


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[EmbeddedEngine]:
    """Group g pulls topic t of one queue."""
    async with whole_engine(tmp_path / "data", clock) as broker:
        await broker.set_consume_mode(ask.SetConsumeMode("t", "g", "PULL"))
        yield broker


async def sent(broker: EmbeddedEngine, *bodies: str) -> ask.Sent:
    answer: ask.Sent = await broker.execute(sending(*bodies))
    return answer


def pieces(broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> list[ask.Pull]:
    """The Pulls that reach the writer, as they come."""
    seen, execute = list[ask.Pull](), broker.run

    async def noted(command: ask.Pull) -> Any:
        if isinstance(command, ask.Pull):
            seen.append(command)
        return await execute(command)

    monkeypatch.setattr(broker, "run", noted)
    return seen


async def test_commands_of_others_run_between_the_pieces_of_a_bulk_pull(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that reads 4 MiB takes the writer for milliseconds, and everybody waits for a commit."""
    monkeypatch.setattr(parked_pulls, "PIECE_MESSAGES", 2)
    await sent(broker, *"abcdefgh")
    read = pieces(broker, monkeypatch)
    reading = asyncio.ensure_future(broker.pull(ask.Pull("t", "g", 0, 0, 7), 0))
    other = asyncio.ensure_future(sent(broker, "z"))
    over = [done async for done in in_order(reading, other)]
    assert over == [other, reading]
    assert texts(await reading) == [*"abcdefg"]
    assert len(read) == 4


async def in_order(*tasks: asyncio.Task[Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """The tasks, as they are over."""
    left = set(tasks)
    while left:
        over, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        (one,) = over
        yield one


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
@pytest.mark.parametrize("piece_bytes", [1, 100, 250, 10_000])
async def test_pieces_answer_as_one_read(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch, piece: int, piece_bytes: int
) -> None:
    bodies = [letter * size for letter, size in zip("abcdefghij", [1, 300, 2, 90, 1, 1, 400, 1, 50, 3], strict=True)]
    await sent(broker, *bodies)
    asked = [
        ask.Pull("t", "", 0, offset, max_messages, max_bytes, end_offset=end)
        for offset in (0, 4, 10)
        for max_messages in (1, 4, 32)
        for max_bytes in (1, 150, 500, 10_000)
        for end in (0, 7)
        if not end or offset < end
    ]
    whole = [await broker.execute(command) for command in asked]
    monkeypatch.setattr(parked_pulls, "PIECE_MESSAGES", piece)
    monkeypatch.setattr(parked_pulls, "PIECE_BYTES", piece_bytes)
    for command, expected in zip(asked, whole, strict=True):
        found = await broker.pull(command, 0)
        assert (found.status, found.rows, found.next_offset, found.more) == (
            expected.status,
            expected.rows,
            expected.next_offset,
            expected.more,
        ), command


async def test_a_pull_returns_what_it_has_when_its_quota_ends_between_two_pieces(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_pulls, "PIECE_MESSAGES", 2)
    await sent(broker, *"abcdefgh")
    execute, looks = broker.run, []

    async def refuses(command: Any) -> Any:
        looks.append(command)
        if len(looks) == 3:
            raise Refused("RATE_LIMITED", "the quota is used up")
        return await execute(command)

    monkeypatch.setattr(broker, "run", refuses)
    pulled = await broker.pull(ask.Pull("t", "g", 0, 0, 7), 0)
    assert (texts(pulled), pulled.next_offset) == ([*"abcd"], 4)


async def test_a_page_that_is_browsed_in_pieces_is_the_same(
    broker: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sent(broker, *[letter * size for letter, size in zip("abcdef", [1, 300, 2, 90, 1, 1], strict=True)])
    asked = [queries.Browse("t", 0, 1, most, size) for most in (1, 3, 9) for size in (1, 150, 400, 9999)]
    whole = [await broker.run(query) for query in asked]
    monkeypatch.setattr(listings, "PIECE_MESSAGES", 2)
    monkeypatch.setattr(listings, "PIECE_BYTES", 100)
    for query, expected in zip(asked, whole, strict=True):
        assert (await broker.ask(query))[:4] == expected[:4], query


async def test_a_search_between_two_pieces_ends_as_unavailable_when_the_broker_closes(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, let_go, close = threading.Event(), threading.Event(), aside.Aside.close

    def piece(*_: Any) -> FoundPiece:
        running.set()
        assert let_go.wait(LOST_S)
        return FoundPiece([], 1, 1)

    def closed(reads: aside.Aside) -> Coroutine[object, object, None]:
        let_go.set()
        return close(reads)

    monkeypatch.setattr(aside, "_piece", piece)
    monkeypatch.setattr(aside.Aside, "close", closed)
    broker = EmbeddedEngine(Options(tmp_path / "data", max_size=1 << 28), clock, Metrics())
    await broker.execute(ask.CreateTopic("t", 1, False, HOUR))
    searching = asyncio.create_task(broker.ask(ask.Search("t", False, "x", 10, 1_000)))
    await asyncio.to_thread(running.wait)
    await broker.close()
    with pytest.raises(Refused, match="the broker is stopping") as refused:
        await searching
    assert refused.value.code == "UNAVAILABLE"
