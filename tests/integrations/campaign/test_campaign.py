"""Workers and the broker are killed while tasks run: none is lost, none runs early, each has its result."""

import pytest

from tests.conftest import WHOLE
from tests.integrations.campaign.campaign import Plan, run

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.process]

PLAN = Plan(kills=1000, broker_kills=20, seconds=240.0) if WHOLE else Plan(kills=12, broker_kills=2, seconds=6.0)


@pytest.mark.parametrize("framework", ["dramatiq", "taskiq", "django"])
def test_no_task_is_lost_or_early_and_no_result_is_missing(framework: str) -> None:
    counts = run(framework, "popmq", PLAN)
    print(counts.row())
    assert counts.sent > 0
    assert counts.kills >= PLAN.kills
    assert (counts.lost, counts.early, counts.twice, counts.missing) == (0, 0, 0, 0), counts.details
