"""Where a group begins whose mode is set for a topic before it reads it."""

import pytest

from popmq_server.contract import commands as ask
from tests.engine.pull_steps import committed, pull, texts
from tests.engine.rig import Rig, refusal


@pytest.mark.mechanism("S1.04")
@pytest.mark.parametrize(
    ("start", "first"),
    [(("EARLIEST", 0), "m0"), (("LATEST", 0), "new"), (None, "m0")],
    ids=["earliest", "latest", "unset"],
)
def test_a_switch_says_where_a_group_begins_that_is_new_in_the_topic(
    rig: Rig, start: tuple[str, int] | None, first: str
) -> None:
    rig.topic()
    rig.group()
    rig.send("m0", "m1")
    rig.do(ask.SetConsumeMode("t", "g", "PULL", start=start))
    rig.send("new")
    assert texts(pull(rig, committed(rig)[0]))[0] == first


def test_a_start_is_refused_for_a_group_that_has_its_position_and_changes_nothing(rig: Rig) -> None:
    rig.pair()
    rig.send("m0")
    commit = rig.commit(ask.SetConsumeMode("t", "g", "PULL", 3, ("LATEST", 0)))
    refused = commit.results[0]
    assert (refusal(refused), refused.field, commit.wrote) == ("INVALID_FIELD", "start", False)
    assert "popmq offsets reset t g" in refused.action
    assert (rig.numbers().mode, committed(rig)) == ("POP", [0])
