"""Calls that wait for results: no wake is lost, and nothing is left of a call that has ended."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract.commands import GetResults
from popmq_server.embedded.loop.parked_results import ParkedResults
from popmq_server.embedded.operations import ResultsPiece, SomeResults
from tests.engine.event_loop import turns


class Engine:
    """Looks for results in a dict; `looks`: the ids of each. `before_answer` runs when a look has been made."""

    def __init__(self) -> None:
        self.results: dict[str, bytes] = {}
        self.looks: list[tuple[str, ...]] = []
        self.before_answer: Callable[[], None] | None = None

    async def run(self, piece: ResultsPiece) -> SomeResults:
        self.looks.append(piece.message_ids)
        rows = [(self.results[each], 1, each) for each in piece.message_ids[:2] if each in self.results]
        if self.before_answer is not None:
            self.before_answer()
        return SomeResults(rows, min(2, len(piece.message_ids)), False)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def parked(engine: Engine) -> ParkedResults:
    stand_in: Any = engine
    return ParkedResults(FakeClock(), stand_in)


def store(engine: Engine, parked: ParkedResults, *ids: str) -> None:
    engine.results |= {each: each.upper().encode() for each in ids}
    parked.wake([("g", each) for each in ids])


def asking(*ids: str, **fields: Any) -> GetResults:
    return GetResults("g", ids, **{"wait_ms": 1000, "results_min": len(ids), **fields})


async def test_a_result_that_is_stored_right_after_the_look_is_not_missed(
    engine: Engine, parked: ParkedResults
) -> None:
    def once() -> None:
        engine.before_answer = None
        store(engine, parked, "a")

    engine.before_answer = once
    assert (await parked.get(asking("a"))).rows == [(b"A", 1, "a")]
    assert engine.looks == [("a",), ("a",)]


async def test_a_woken_call_looks_only_for_what_came(engine: Engine, parked: ParkedResults) -> None:
    call = asyncio.create_task(parked.get(asking("a", "b", "c")))
    await turns(9)
    store(engine, parked, "b", "other")
    await turns(9)
    store(engine, parked, "a", "c")
    assert {row[2] for row in (await call).rows} == {"a", "b", "c"}
    assert engine.looks[:3] == [("a", "b", "c"), ("c",), ("b",)]
    assert {*engine.looks[3]} == {"a", "c"}


async def test_a_call_has_the_last_of_two_results_of_an_id(engine: Engine, parked: ParkedResults) -> None:
    engine.results["a"] = b"first"
    call = asyncio.create_task(parked.get(asking("a", "b")))
    await turns(9)
    engine.results |= {"a": b"second", "b": b"B"}
    parked.wake([("g", "a"), ("g", "b")])
    assert sorted((await call).rows) == [(b"B", 1, "b"), (b"second", 1, "a")]


@pytest.mark.parametrize("how", ["answered", "cancelled", "closed"])
async def test_nothing_is_left_of_a_call_that_has_ended(engine: Engine, parked: ParkedResults, how: str) -> None:
    call = asyncio.create_task(parked.get(asking("a", "b")))
    await turns(9)
    if how == "answered":
        store(engine, parked, "a", "b")
    elif how == "cancelled":
        call.cancel()
    else:
        parked.waiters.close()
    await asyncio.wait([call])
    assert (parked._calls, parked._ids, parked.waiters.count) == ({}, 0, 0)


async def test_a_call_without_a_wait_enters_nothing(engine: Engine, parked: ParkedResults) -> None:
    engine.before_answer = lambda: parked._calls.__setitem__(("never", "entered"), []) if parked._calls else None
    assert (await parked.get(asking("a", wait_ms=0))).rows == []
    assert parked._calls == {}
