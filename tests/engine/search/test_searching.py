"""The long search itself: it counts what it does, tells what it finds, and does the same again."""

import io

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from rich.console import Console

from tests.engine.search import searching
from tests.engine.search.searching import STEPS_OF_AN_EXAMPLE, run, search

seen: list[int] = []


@pytest.fixture(autouse=True)
def _few_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "EXAMPLES", 3)


class Sound(RuleBasedStateMachine):
    """Nothing to find."""

    @rule(number=st.integers(0, 1000))
    def step(self, number: int) -> None:
        seen.append(number)


class Broken(RuleBasedStateMachine):
    """Fails at its second step of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    @rule(number=st.integers(0, 1000))
    def step(self, number: int) -> None:
        self.times += number > 10
        assert self.times < 2


@pytest.mark.slow
def test_a_seed_makes_the_same_steps_again_and_another_one_others() -> None:
    runs = []
    for number in (5, 5, 6):
        seen.clear()
        steps, finding = search(Sound, number)
        assert (steps, finding) == (len(seen), "")
        assert steps >= STEPS_OF_AN_EXAMPLE
        runs.append(list(seen))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.slow
def test_a_finding_ends_the_search_and_is_reported_with_its_steps_and_how_to_repeat_it() -> None:
    told = io.StringIO()
    assert not run(Console(file=told, width=200), [Sound, Broken, Sound], steps=10**9, number=7)
    assert "state.step(number=11)" in told.getvalue()
    assert "searching 1 7 Broken" in told.getvalue()


@pytest.mark.slow
def test_a_search_without_a_finding_ends_when_its_steps_are_done() -> None:
    told = io.StringIO()
    assert run(Console(file=told, width=200), [Sound], steps=1, number=1)
    assert "FAIL" not in told.getvalue()
