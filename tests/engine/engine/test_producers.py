"""Live producers: who is asked next, who is full, who is gone."""

import asyncio
from pathlib import Path

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract.commands import (
    Check,
    CreateTopic,
    DeleteTopic,
    Send,
    queries,
)
from popmq_server.embedded.loop import producers
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.loop.producers import (
    CHECKS_QUEUED_BYTES_MAX,
    CHECKS_QUEUED_MAX,
    CheckStream,
    Producers,
)
from popmq_server.embedded.rules.sending.transaction import CHECK_EVERY_MS, FIRST_CHECK_MS
from popmq_server.errors import Refused, unavailable
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from popmq_server.values.message import Extra
from tests.engine.rig import message


class WakeKey(Producers):
    """Counts how often it said that the topics had changed."""

    def __init__(self) -> None:
        super().__init__(self._note, lambda check: self.stored)
        self.changes = 0
        self.stored = asyncio.Future[object]()

    def _note(self) -> None:
        self.changes += 1

    def open(self, name: str, *topics: str) -> CheckStream:
        stream = CheckStream(self, name, frozenset(topics or ("t",)), 7)
        self.join(stream)
        return stream


@pytest.fixture
async def lot() -> WakeKey:
    return WakeKey()


def check(number: int, topic: str = "t", size: int = 1) -> Check:
    return Check(str(number), topic, 1, b"x" * size)


async def taken(stream: CheckStream, count: int) -> list[int]:
    checks = [await asyncio.wait_for(stream.next(), 5) for _ in range(count)]
    return [int(check.transaction) for check in checks if check is not None]


async def test_streams_of_a_topic_are_asked_in_turn(lot: WakeKey) -> None:
    first, second, other = lot.open("a"), lot.open("b", "t", "u"), lot.open("c", "u")
    lot.hand([check(number) for number in range(6)])
    assert await taken(first, 3) == [0, 2, 4]
    assert await taken(second, 3) == [1, 3, 5]
    lot.hand([check(9, "nobody")])
    assert lot.streams()[2] == ("c", ("u",), 7)
    other.end()
    assert await other.next() is None


async def test_a_full_stream_is_passed_over_and_its_topics_are_not_listened_to(lot: WakeKey) -> None:
    slow, quick = lot.open("a", "t", "only"), lot.open("b")
    assert lot.listened() == {"t", "only"}
    lot.hand([check(number) for number in range(2 * CHECKS_QUEUED_MAX + 10)])
    assert (slow.full, quick.full) == (True, True)
    assert lot.listened() == frozenset()
    assert lot.changes >= 1
    changes = lot.changes
    for _ in range(CHECKS_QUEUED_MAX // 2):
        await anext(quick)
    assert lot.listened() == {"t"}
    assert lot.changes == changes + 1, "told once, when half of its places are free"
    lot.hand([check(10_000)])
    assert 10_000 in await taken(quick, CHECKS_QUEUED_MAX // 2 + 1)


async def test_a_stream_is_full_by_bytes_too_but_takes_one_of_any_size(lot: WakeKey) -> None:
    stream = lot.open("a")
    lot.hand([check(1, size=CHECKS_QUEUED_BYTES_MAX), check(2)])
    assert stream.full
    assert await taken(stream, 1) == [1]
    assert not stream.full


async def test_a_half_message_waits_once_in_a_stream(lot: WakeKey) -> None:
    stream = lot.open("a")
    lot.hand([check(1), check(2), check(1)])
    assert await taken(stream, 2) == [1, 2]
    lot.hand([check(1)])
    assert await taken(stream, 1) == [1]


async def test_a_stream_that_left_is_asked_nothing_more_and_leaves_once(lot: WakeKey) -> None:
    first, second = lot.open("a"), lot.open("b")
    lot.hand([check(0)])
    first.close()
    first.close()
    assert lot.changes == 1
    assert await first.next() is None, "what waited in it is not handed to anybody"
    lot.hand([check(1), check(2)])
    assert await taken(second, 2) == [1, 2]
    assert not first.offer(check(3))
    second.close()
    assert lot.listened() == frozenset()
    lot.hand([check(4)])


async def test_the_end_of_a_stream_reaches_its_waiting_reader(lot: WakeKey) -> None:
    stream = lot.open("a")
    waiting = asyncio.ensure_future(stream.next())
    await asyncio.sleep(0)
    stream.end(unavailable("because"))
    stream.end()
    with pytest.raises(Refused, match="because"):
        await waiting


async def test_a_lot_that_is_closed_ends_its_streams_and_takes_no_more(lot: WakeKey) -> None:
    stream = lot.open("a")
    lot.close()
    for late in (stream.next(), asyncio.to_thread(lot.open, "b")):
        with pytest.raises(Refused, match="stopping"):
            await late


async def test_a_hello_that_was_refused_does_not_hide_what_others_listen_to(tmp_path: Path) -> None:
    """While it was under way another stream got room again for the very same topics: the writer must hear of it."""
    broker = EmbeddedEngine(Options(tmp_path / "data", sync="none"), FakeClock(), Metrics())
    for name in ("t", "n"):
        await broker.execute(CreateTopic(name, 1, False, 60_000, "TRANSACTION"))
    stream = await broker.join("a", ("t", "n"))
    await broker.execute(DeleteTopic("n"))
    broker.producers.hand([check(number) for number in range(CHECKS_QUEUED_MAX)])
    assert stream.full
    refused = asyncio.ensure_future(broker.join("b", ("t", "n")))
    await asyncio.sleep(0)
    for _ in range(CHECKS_QUEUED_MAX // 2):
        await anext(stream)
    with pytest.raises(Refused, match="'n'"):
        await refused
    await broker.ask(queries.Topics())
    listened = broker._core.state.listened
    await broker.close()
    assert listened == {"t", "n"}


def test_checks_queued_for_a_stream_are_limited() -> None:
    assert (producers.CHECKS_QUEUED_MAX, producers.CHECKS_QUEUED_BYTES_MAX) == (128, 8 << 20)


# ── A number is sent once ────────────────────────────────────────────────────────────────────────────────────────────


async def asked_again(broker: EmbeddedEngine, clock: FakeClock, ms: int) -> None:
    """Moves the clock; the check-backs of the writer have come to the streams."""
    await asyncio.to_thread(clock.advance, ms)
    await broker.ask(queries.Topics())


@pytest.mark.parametrize("streams", [1, 2])
async def test_a_check_that_is_not_counted_yet_is_not_told_again_with_its_number(tmp_path: Path, streams: int) -> None:
    """It was taken to be written; before it is counted the writer asks about the same half message once more."""
    clock = FakeClock()
    broker = EmbeddedEngine(Options(tmp_path / "data", sync="none"), clock, Metrics())
    await broker.execute(CreateTopic("t", 1, False, 60_000, "TRANSACTION"))
    await broker.execute(Send("t", (message("half")._replace(extra=Extra(transaction=True)),)))
    open_streams = [await broker.join(name, ("t",)) for name in "ab"[:streams]]
    told = []
    await asked_again(broker, clock, FIRST_CHECK_MS)
    told.append((await asyncio.wait_for(anext(open_streams[0]), 5)).number)
    await asked_again(broker, clock, CHECK_EVERY_MS)
    waiting = {stream: asyncio.ensure_future(anext(stream)) for stream in open_streams}  # the first one was written
    while len(told) < 3:
        await asked_again(broker, clock, CHECK_EVERY_MS)
        for stream in open_streams:
            if waiting[stream].done():
                told.append(waiting[stream].result().number)
                waiting[stream] = asyncio.ensure_future(anext(stream))
    for each in waiting.values():
        each.cancel()
    await broker.close()
    assert told == [1, 2, 3]


async def test_a_check_that_waits_for_two_producers_is_sent_to_one(lot: WakeKey) -> None:
    slow, quick = lot.open("a"), lot.open("b")
    lot.hand([check(1)])
    lot.hand([check(1)])
    assert await anext(quick) == check(1)
    ended = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0)
    assert not ended.done()
    quick.close()
    lot.hand([check(1)])
    assert await ended == check(1), "the stream ended before it was written"
    written = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0)
    lot.stored.set_result(None)
    await asyncio.sleep(0)
    assert lot._uncounted == {}
    written.cancel()
