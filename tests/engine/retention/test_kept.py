"""Live records that outlive their chunk: found at the same cost each, in bounded pieces, and never half of them."""

import gc
import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.retention import kept, retention
from popmq_server.embedded.rules.retention.chunks import Chunk
from popmq_server.embedded.rules.retention.kept import Keeping
from popmq_server.embedded.store.table import Undo
from popmq_server.values.ids import TopicId
from popmq_server.values.records import Topic
from tests.engine.rig import HOUR, MINUTE, Delivery, Rig, bodies, message, numbered
from tests.engine.traffic.traffic_fifo import in_order
from tests.engine.work import calls

#: Chunks are held and copied here: these tests make them by sending one by one.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")


def held(rig: Rig, count: int, how: str = "retry", held_of: str = "a") -> list[Delivery]:
    """Chunks of five messages, of which those that end with one of `held_of` are held, hours past their time."""
    rig.topic("t", keep_ms=HOUR)
    rig.group("g")
    for number in range(count):
        rig.send(*(f"{number}-{letter}" for letter in "abcde"))
    rows = [row for _ in range(count) for row in rig.pop(5, invisible_ms=12 * HOUR)]
    stay = [row for row in rows if row.body[-1] in held_of]
    rig.ack([row for row in rows if row.body[-1] not in held_of])
    if how == "retry":
        rig.release(stay, delay_ms=0)
    rig.advance(MINUTE)
    rig.skip(3 * HOUR)
    return stay


def pieces(rig: Rig) -> list[int]:
    """The work of each piece of periodic work."""
    found = []
    while rig.due:
        found.append(calls(lambda: rig.run()))
    return found


def behind_a_stopped_message_group(rig: Rig, count: int) -> None:
    """Chunks of five messages, one of which waits after the first message, which has stopped its message group."""
    rig.do(ask.CreateTopic("t", 1, False, HOUR, type="FIFO"))
    rig.group("g", max_attempts=1, stop_on_failure=True)
    rig.pop()
    for number in range(count):
        rig.do(in_order(*(f"{letter}{number}" for letter in "abcde"), topic="t"))
        rows = rig.pop(5)
        rig.release([row for row in rows if row.body[0] == "a"], delay_ms=0)
        rig.ack([row for row in rows if row.body[0] != "a"])
    rig.advance(MINUTE)
    rig.skip(3 * HOUR)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["retry", "leased", "behind a stopped message group"])
def test_ten_times_as_many_held_messages_cost_ten_times_as_much_in_pieces_that_are_no_longer(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(retention, "LOOKS_MAX", 100)
    small, large = make_rig("small"), make_rig("large")
    for rig, count in ((small, 100), (large, 1000)):
        held(rig, count, how) if how in ("retry", "leased") else behind_a_stopped_message_group(rig, count)
    few, many = pieces(small), pieces(large)
    assert (len(small.read("kept")), len(large.read("kept"))) == (100, 1000)
    assert sum(many) < 12 * sum(few)
    assert max(many) < 1.5 * max(few)


def test_a_chunk_whose_messages_all_wait_is_kept_whole(rig: Rig) -> None:
    rig.do(ask.CreateTopic("f", 1, False, HOUR, type="FIFO"))
    rig.group("g", max_attempts=1, stop_on_failure=True)
    rig.pop(topic="f")
    rig.do(in_order(*numbered("a", 500)))
    rig.release(rig.pop(1, topic="f"), delay_ms=0)
    rig.pop(topic="f")
    for _ in range(4):
        rig.advance(HOUR)
    assert (len(rig.read("log")), rig.read("kept")) == (1, [])
    assert rig.numbers("g", "f").waiting == 500


@pytest.mark.slow
@pytest.mark.parametrize("move", ["release", "extend", "pop", "ack", "pop and release"])
def test_messages_that_move_while_the_search_goes_on_stay_readable(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, move: str
) -> None:
    """In pauses of the search messages move from leases to the retry topic and back, before and after its position."""
    monkeypatch.setattr(retention, "LOOKS_MAX", 15)
    stay = held(rig, 30, "leased" if move in ("release", "extend", "ack") else "retry", "ab")
    done, turn = 0, 0
    while rig.due and turn < 400:
        rig.run()
        turn += 1
        if turn % 3:
            continue
        if move == "release" and stay:
            rig.release([stay.pop()], delay_ms=0)
        elif move == "extend":
            rig.extend([stay[turn // 3 % len(stay)]], 2 * HOUR)
        elif move == "ack" and stay:
            done += len(rig.ack([stay.pop(0)]))
        elif move.startswith("pop"):
            rows = rig.pop(1, invisible_ms=12 * HOUR)
            if "release" in move:
                rig.release(rows, delay_ms=0)
    assert rig.findings() == []
    for _ in range(14):
        rig.advance(HOUR)
        assert rig.findings() == []
    expected = {f"{number}-{letter}" for number in range(30) for letter in "ab"}
    rows = rig.pop(100)
    assert len(rows) == 60 - done
    assert {*bodies(rows)} <= expected


def test_a_message_that_a_search_missed_is_copied_by_the_next_search(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOOKS_MAX", 4)
    held(rig, 30)
    while rig.core.state.searched == set():
        rig.run()
    rows = rig.pop(1, invisible_ms=HOUR)
    rig.settle()
    assert len(rig.read("kept")) == 29
    rig.release(rows, delay_ms=0)
    rig.advance(HOUR)
    assert len(rig.read("kept")) == 30


@pytest.mark.slow
def test_one_search_remembers_a_bounded_number_of_pointers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "POINTERS_MAX", 4)
    held(rig, 10)
    rig.settle()
    assert len(rig.read("kept")) == 4
    rig.advance(HOUR)
    assert len(rig.read("kept")) == 8
    rig.advance(HOUR)
    assert len(rig.read("kept")) == 10


@pytest.mark.parametrize("how", ["retry", "leased"])
def test_long_records_are_copied_in_more_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A piece is bounded in bytes too: without that a piece of twelve looks would copy three."""
    monkeypatch.setattr(retention, "LOOKS_MAX", 12)
    rig.topic("t", keep_ms=HOUR)
    rig.group("g")
    for number in range(8):
        rig.send(*(f"{number}-{letter}" + 50_000 * "." for letter in "abc"))
    stay = [row for number in range(8) for row in rig.pop(3, invisible_ms=12 * HOUR) if not _acked(rig, row)]
    if how == "retry":
        rig.release(stay, delay_ms=0)
    rig.advance(MINUTE)
    rig.skip(3 * HOUR)
    copied = [0]
    while rig.due:
        rig.run()
        copied.append(len(rig.read("kept")))
    assert copied[-1] == 8
    assert max(after - before for before, after in itertools.pairwise(copied)) == 1


def _acked(rig: Rig, row: Delivery) -> bool:
    """Acks a message whose dead letter is not the first of its chunk; returns whether it did."""
    if row.body[2] != "a":
        rig.ack([row])
    return row.body[2] != "a"


def searching(monkeypatch: pytest.MonkeyPatch, chunks: int) -> tuple[Keeping, Any]:
    """A search that noted `chunks` chunks with one pointer each, all of which are dropped before it copies them."""
    monkeypatch.setattr(kept, "POINTERS_MAX", chunks)
    monkeypatch.setattr(kept, "pins", lambda _, __: (0, 1))
    state, stored = SimpleNamespace(topic_groups={1: (1,)}, searched=set(), undo=Undo()), [b"chunk"]
    kv = SimpleNamespace(get=lambda *_: stored[0] if stored else None, scan=lambda *_: iter(()))
    tx, keeping = SimpleNamespace(now_ms=10 * HOUR, state=state, kv=kv), Keeping()
    topic = Topic(TopicId(1), "t", 1, False, HOUR, 0)
    for place in range(chunks):
        keeping.note(tx, topic, Chunk(100 * place, 0, 100, ((0, place, 5),)))  # type: ignore[arg-type]
    stored.clear()
    return keeping, tx


@pytest.mark.slow
def test_the_last_chunks_of_a_long_search_are_found_as_fast_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio of CPU times, the least of several pieces each: each look for the next one once began at the first."""
    keeping, tx = searching(monkeypatch, 100_000)
    keeping.run(tx, 10)
    pieces = []
    for _ in range(190):
        began = time.thread_time_ns()
        assert keeping.run(tx, 500) == 0
        pieces.append(time.thread_time_ns() - began)
    assert min(pieces[-10:]) < 5 * min(pieces[:10])


def test_the_memory_of_a_search_adds_no_work_for_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = len(gc.get_objects())
    searched = searching(monkeypatch, 5000)
    assert len(gc.get_objects()) - before < 1000
    assert len(searched) == 2


def test_a_message_that_was_dropped_out_of_its_chunk_is_still_passed_over_by_its_tag(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, True, HOUR))
    rig.group("g")
    rig.group("slow")
    rig.pop()
    rig.pop(group="slow", filter=("tag", "r"))
    rig.do(ask.Send("t", tuple(message(text, tag=tag) for text, tag in zip("abcdef", "rbrbrb", strict=True)), "", 0, 1))
    rig.ack(rig.pop(invisible_ms=12 * HOUR)[1:])
    for _ in range(4):
        rig.advance(HOUR)
    assert (rig.read("log"), len(rig.read("kept"))) == ([], 1)
    assert bodies(rig.pop(group="slow")) == ["a"]
    assert (rig.numbers("slow").filtered, rig.numbers("slow").dropped, rig.findings()) == (3, 2, [])
