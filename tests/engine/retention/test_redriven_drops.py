"""Dead letters that were redriven and are dropped by age: no group loses them, however many groups have to be moved."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.retention import floors, retention
from popmq_server.embedded.rules.retention.retention import Retention
from tests.engine.conftest import MakeRig
from tests.engine.dead_letters import DEAD, died, piece
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, numbered
from tests.engine.work import calls, calls_of_pieces

pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")


@pytest.fixture
def few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece moves some five groups; that of retention moves none after a drop."""
    monkeypatch.setattr(floors, "POSITIONS_MAX", 200)
    monkeypatch.setattr(retention, "LOOKS_MAX", 20)


def unread(rig: Rig, groups: int, letters: int = 5) -> Rig:
    """Dead letters in one chunk, kept for an hour, of which two were redriven; no group has read them."""
    rig.pair()
    for name in numbered("h", groups):
        rig.group(name)
        rig.pop(topic=DEAD, group=name)
    rig.do(ask.UpdateTopic(DEAD, 0, (True, HOUR)))
    died(rig, *numbered("m", letters))
    piece(rig, offsets=(1, 3))
    rig.ack(rig.pop(2))
    return rig


def redriven(rig: Rig) -> int:
    """The redriven dead letters that the broker counts."""
    return rig.core.state.topic_stat[rig.core.state.ids["t", DEAD]].redriven


def until_dropped(rig: Rig, letters: int = 3) -> None:
    """Runs due work until so many dead letters that were not redriven are dropped."""
    before = rig.numbers().dead
    rig.skip(HOUR + 2 * MINUTE)
    while rig.numbers().dead > before - letters:
        assert rig.due
        rig.commit()


@pytest.mark.usefixtures("few_moves")
def test_each_piece_that_drops_redriven_dead_letters_costs_the_same_however_many_groups_have_not_read_them(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = calls_of_pieces(monkeypatch, Retention)
    go_on = floors.go_on
    monkeypatch.setattr(floors, "go_on", lambda *given: counts.append(calls(lambda: go_on(*given))))

    def pieces(groups: int) -> list[int]:
        rig = unread(make_rig(str(groups)), groups)
        counts.clear()
        rig.advance(HOUR + 2 * MINUTE)
        assert [rig.numbers(f"h{number}", DEAD).dropped for number in (0, groups - 1)] == [3, 3]
        return list(counts)

    few, many = pieces(40), pieces(400)
    assert max(many) < 1.1 * max(few)
    assert len(many) > 5 * len(few)


@pytest.mark.usefixtures("few_moves")
@pytest.mark.parametrize("again", [False, True], ids=["", "after a crash"])
def test_a_group_that_is_moved_late_does_not_lose_what_was_redriven(rig: Rig, again: bool) -> None:
    unread(rig, 20)
    until_dropped(rig)
    assert (len(rig.read("gone")), redriven(rig)) == (2, 0)
    assert 0 in rig.core.state.poff.values(), "the last groups were not moved yet"
    if again:
        rig.crash()
    assert rig.numbers("h19", DEAD).dropped == 3
    died(rig, "late")
    assert bodies(rig.pop(topic=DEAD, group="h18")) == ["late"]
    rig.settle()
    assert [rig.numbers(f"h{number}", DEAD).dropped for number in range(20)] == [3] * 20
    assert (rig.read("gone"), rig.numbers().dead) == ([], 1)


@pytest.mark.usefixtures("few_moves")
def test_no_more_of_a_topic_is_dropped_while_groups_have_to_be_moved(rig: Rig) -> None:
    """Else a piece would read the marks of all that was dropped meanwhile."""
    unread(rig, 100)
    died(rig, "a", "b")
    piece(rig, offsets=(5,))
    rig.ack(rig.pop(2))
    until_dropped(rig, 2)
    while 0 in rig.core.state.poff.values():
        assert rig.numbers().dead == 1
        rig.commit()
    rig.settle()
    assert [rig.numbers(f"h{number}", DEAD).dropped for number in range(100)] == [4] * 100
    assert rig.read("gone") == []


def test_a_piece_pays_for_the_marks_of_the_dead_letters_that_it_drops(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread(rig, 1, letters=20)
    died(rig, "a", "b")
    piece(rig, offsets=(20,))
    rig.ack(rig.pop(2))
    monkeypatch.setattr(retention, "LOOKS_MAX", 30)
    monkeypatch.setattr(retention, "MARKS_PER_LOOK", 1)
    until_dropped(rig, 18)
    assert rig.numbers().dead == 1
    rig.settle()
    assert rig.numbers().dead == 0
