"""The budget of a message: what is counted, and that exceeding it is noticed."""

from pathlib import Path

import pytest

from bench.check import LEGS, Counts, Work, budgets, count


@pytest.mark.smoke
@pytest.mark.slow  # runs 120 requests with a profiler, and as many with tracing of memory
@pytest.mark.process  # sets the profiler of all threads
async def test_no_leg_exceeds_its_budget(tmp_path: Path) -> None:
    known = budgets()
    found = await count(tmp_path / "data")
    assert {name: counts.above(known[name]) for name, counts in found.items()} == {name: [] for name in LEGS}
    assert all(counts.calls > 0.5 * known[name].calls for name, counts in found.items()), "write the budget anew"


def test_every_leg_has_a_budget() -> None:
    assert list(budgets()) == list(LEGS)


@pytest.mark.parametrize("field", Counts._fields)
def test_more_work_than_the_budget_allows_is_reported_by_name(field: str) -> None:
    budget = Counts(100.0, 4.0, 1.0, 5_000.0)
    more = budget._replace(**{field: getattr(budget, field) * 1.2})
    assert more.above(budget) == [f"{field}: {getattr(more, field):g}, budget {getattr(budget, field):g}"]
    assert budget.above(budget) == []


def test_a_count_of_nothing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="no work was counted"):
        Work().take(16)
