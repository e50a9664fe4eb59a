"""A batch begins when a turn of the event loop brought no further command. The turns are the tests' own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from popmq_server import commands as ask
from popmq_server.writer.writer import GATHER_BYTES_MAX, GATHER_TURNS_MAX, Gathering
from tests.engine.rig import MINUTE, sending
from tests.engine.writer.test_writer import Office


def turns_of(arrivals: Iterable[int], size: int = 0) -> int:
    """Turns until a batch may begin, where so many commands of `size` bytes arrive in each turn."""
    gathering, turns = Gathering(), 0
    for turns, count in enumerate(arrivals):
        calls = [gathering.arrived(size) for _ in range(count)]
        assert sum(calls) == (turns == 0)
        assert not gathering.done
        if not gathering.turned():
            break
    assert gathering.done
    return turns + 1


def test_one_command_waits_for_one_turn_without_another() -> None:
    assert turns_of([1, 0, 1]) == 2


@pytest.mark.parametrize("turns", [2, 3, GATHER_TURNS_MAX - 1])
def test_commands_of_turns_in_a_row_are_gathered(turns: int) -> None:
    assert turns_of([3] * turns + [0]) == turns + 1


def test_a_loop_that_always_brings_commands_delays_a_batch_by_a_bounded_number_of_turns() -> None:
    assert turns_of([1] * 100) == GATHER_TURNS_MAX + 1


def test_a_batch_with_enough_bytes_begins_after_its_turn() -> None:
    assert turns_of([1] * 100, GATHER_BYTES_MAX) == 1
    assert turns_of([1] * 100, GATHER_BYTES_MAX // 3 + 1) == 3


def test_the_next_batch_is_gathered_like_the_first() -> None:
    gathering = Gathering()
    for _ in range(2):
        assert gathering.arrived(GATHER_BYTES_MAX - 1)
        assert gathering.turned()
        assert not gathering.turned()
        gathering.taken(all_=True)
        assert not gathering.done


def test_commands_that_a_full_batch_left_need_no_turn() -> None:
    gathering = Gathering()
    gathering.arrived(0)
    while gathering.turned():
        pass
    gathering.taken(all_=False)
    assert gathering.done


class Loop:
    """An event loop that turns when a test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def office(tmp_path: Path, loop: Loop) -> Iterator[Office]:
    office = Office(tmp_path / "data", loop.soon)
    office.writer.start()
    yield office
    office.close()


def begins(office: Office) -> Any:
    with office.writer._lock:
        return office.writer._begins()


def test_sends_of_two_turns_share_a_commit(office: Office, loop: Loop) -> None:
    office.writer.submit(sending("a"), "a")
    loop.turn()
    assert not begins(office)
    office.writer.submit(sending("b"), "b")
    loop.turn()
    assert not begins(office)
    loop.turn()
    assert loop.calls == []
    office.answer("b")
    assert office.groups == [["a", "b"]]


def test_a_due_job_takes_what_waits_along(office: Office, loop: Loop) -> None:
    """Their turn comes to an end later, and then there is nothing to begin."""
    office.writer.submit(ask.Pop("t", "g", invisible_ms=MINUTE), "pop")
    office.clock.advance(MINUTE)
    office.answer("pop")
    loop.turn()
    loop.turn()
    assert loop.calls == []
    assert not begins(office)


def test_a_writer_that_stops_answers_what_is_being_gathered(office: Office) -> None:
    office.writer.submit(sending("a"), "a")
    office.writer.stop()
    assert office.groups == [["a"]]
