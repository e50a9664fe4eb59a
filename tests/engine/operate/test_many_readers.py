"""Removal beside many groups: what is left of a topic, or of a group, goes in pieces that do not grow with others."""

from __future__ import annotations

from typing import Any

import pytest

from popmq_server import commands as ask
from popmq_server.operate import purge
from tests.engine.conftest import MakeRig
from tests.engine.rig import Rig, numbered
from tests.engine.work import calls, grows

FEW, MANY = 40, 400
GROWTH_MAX = 1.1


def read_by(rig: Rig, groups: int) -> Rig:
    """Topic t that many groups read, and topic u that group alone reads."""
    rig.topic("t", 2)
    rig.topic("u")
    for name in ("alone", *numbered("g", groups)):
        rig.group(name)
        rig.do(ask.Available("u" if name == "alone" else "t", name))
    rig.send("a", "b")
    rig.send("c", topic="u")
    rig.settle()
    return rig


def pieces(rig: Rig, command: Any) -> tuple[int, list[int]]:
    """The calls of a command, and those of each piece of the removal that follows."""
    first, found = calls(lambda: rig.do(command)), list[int]()
    while list(rig.core.state.purges):
        found.append(calls(lambda: rig.core.run([])))
    return first, found


def test_a_group_is_changed_at_the_same_cost_beside_many_groups(make_rig: MakeRig) -> None:
    change = ask.UpdateGroup("g7", {"in_flight_max": 5})
    few, many = (read_by(make_rig(str(groups)), groups) for groups in (FEW, MANY))
    assert grows(lambda: few.do(change), lambda: many.do(change)) < GROWTH_MAX


@pytest.mark.parametrize(
    "command", [ask.DeleteTopic("t"), ask.DeleteTopic("u"), ask.DeleteGroup("g7"), ask.DeleteGroup("alone")]
)
def test_a_delete_and_each_piece_of_its_removal_cost_the_same_beside_many_groups(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 100)
    few, many = (pieces(read_by(make_rig(str(groups)), groups), command) for groups in (FEW, MANY))
    assert many[0] < GROWTH_MAX * few[0]
    assert max(many[1]) < GROWTH_MAX * max(few[1])
    assert len(many[1]) <= 10 * len(few[1])
