"""Removal beside many groups: what is left of a topic, or of a group, goes in pieces that do not grow with others."""

import itertools
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.writer.housekeeping import Purging
from tests.engine.conftest import MakeRig
from tests.engine.rig import MINUTE, Rig, bodies, message, numbered, refusal
from tests.engine.work import calls, grows

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

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


def test_a_purge_and_each_of_its_pieces_cost_the_same_beside_many_groups(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 100)
    monkeypatch.setattr(purge, "POSITIONS_MAX", 100)
    few, many = (pieces(read_by(make_rig(str(groups)), groups), ask.PurgeTopic("t")) for groups in (FEW, MANY))
    assert many[0] < GROWTH_MAX * few[0]
    assert max(many[1]) < GROWTH_MAX * max(few[1])


def test_a_piece_ends_a_quarter_as_many_leases_as_it_removes_keys(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease costs some four times as much as a key."""
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 100)
    rig = read_by(make_rig(), FEW)
    for name in numbered("g", FEW):
        assert len(rig.pop(1, group=name)) == 1
    rig.do(ask.DeleteTopic("t"))
    left = [len(rig.read("ck"))]
    while list(rig.core.state.purges):
        rig.run()
        left.append(len(rig.read("ck")))
    assert [before - after for before, after in itertools.pairwise(left)][:3] == [25, 15, 0]


@pytest.fixture
def one_group_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "POSITIONS_MAX", 1)


def began(rig: Rig) -> Rig:
    """The purge of a topic that five groups have read, none of which was moved yet but the last."""
    read_by(rig, 5)
    rig.do(ask.SetFilter("t", "g0", ("tag", "red")))
    rig.do(ask.SetConsumeMode("t", "g1", "PULL", 0))
    rig.ack(rig.pop(1, group="g2"), group="g2")
    assert rig.do(ask.PurgeTopic("t")) == (2, rig.core.state.ids["t", "t"])
    assert len(rig.core.state.topic_groups[rig.core.state.ids["t", "t"]]) == 1
    return rig


def readers(rig: Rig) -> list[str]:
    state = rig.core.state
    return sorted(state.groups[group_id].name for group_id in state.topic_groups[state.ids["t", "t"]])


@pytest.mark.usefixtures("one_group_a_piece")
@pytest.mark.parametrize("again", [False, True], ids=["", "after a crash"])
def test_groups_that_are_not_moved_yet_are_moved_by_the_command_that_names_them(rig: Rig, again: bool) -> None:
    began(rig)
    if again:
        rig.crash()
    sent = tuple(message(text, tag=tag) for text, tag in (("c", "red"), ("d", "blue")))
    for number in range(2):
        rig.do(ask.Send("t", (sent[number],)))
    assert bodies(rig.pop(group="g0")) == ["c"]
    assert refusal(rig.run(ask.Pop("t", "g1"))[0]) == "WRONG_CONSUME_MODE"
    assert rig.numbers("g2").acked == 1
    assert sorted(bodies(rig.pop(group="g3"))) == ["c", "d"]
    rig.settle()
    assert readers(rig) == [f"g{number}" for number in range(5)]
    assert sorted(bodies(rig.pop(group="g4"))) == ["c", "d"]


@pytest.mark.usefixtures("one_group_a_piece")
def test_a_second_purge_waits_until_the_groups_of_the_first_are_moved(rig: Rig) -> None:
    began(rig)
    rig.send("c")
    answers = [(0, purge.NOT_BEGUN)]
    while answers[-1][1] == purge.NOT_BEGUN:
        answers.append(rig.do(operations.NextPurge("t", purge.NOT_BEGUN)))
    assert answers[-1][0] == 1
    assert len(answers) > 2
    rig.settle()
    assert readers(rig) == [f"g{number}" for number in range(5)]
    assert bodies(rig.pop(group="g4")) == []


@pytest.mark.usefixtures("one_group_a_piece")
@pytest.mark.parametrize("by_age", [False, True])
def test_retention_drops_nothing_while_groups_are_moved(rig: Rig, by_age: bool) -> None:
    began(rig)
    rig.do(ask.UpdateTopic("t", 0, (by_age, MINUTE)))
    rig.send("c")
    job = next(job for job in rig.core.timetable.jobs if isinstance(job, Purging))
    job.postpone(rig.now + 10 * MINUTE)
    for _ in range(5):
        rig.advance(MINUTE)
    assert len(rig.read("log")) == 3, "those of both topics, and the purged ones"
    rig.advance(6 * MINUTE)
    rig.advance(MINUTE)
    assert len(rig.read("log")) == (1 if by_age else 2)


@pytest.mark.usefixtures("one_group_a_piece")
@pytest.mark.parametrize("gone", [ask.DeleteTopic("t"), ask.DeleteGroup("g1")])
def test_a_topic_or_group_deleted_while_groups_are_moved_is_gone(rig: Rig, gone: Any) -> None:
    began(rig)
    rig.do(gone)
    rig.settle()
    assert not list(rig.core.state.purges)
    assert not rig.core.state.moving
    assert len(rig.read("stat")) == (1 if isinstance(gone, ask.DeleteTopic) else 5)


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
