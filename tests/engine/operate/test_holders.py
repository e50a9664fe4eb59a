"""Why and redrive search for the CheckPoints that hold a message in bounded pieces, with other commands in between."""

from dataclasses import replace
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate import holders
from popmq_server.embedded.state import checkpoints
from tests.engine.conftest import MakeRig
from tests.engine.dead_letters import died
from tests.engine.lives import story, traced
from tests.engine.rig import HOUR, KEEP, Rig, bodies, deliveries, numbered
from tests.engine.traffic.resting import leases
from tests.engine.traffic.traffic_fifo import in_order
from tests.engine.work import calls

SMALL, LARGE = 200, 2000
PIECE = 50


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOOKS_MAX", PIECE)


def next_piece(rig: Rig, command: Any) -> tuple[Any, Any]:
    """(answer, None), or (the command's HolderSearch, the command to continue with)."""
    answer = rig.do(command)
    walk = answer if isinstance(answer, operations.HolderSearch) else getattr(answer, "walk", None)
    return (answer, None) if walk is None else (walk, replace(command, walk=walk))


def pieces(rig: Rig, command: Any) -> tuple[Any, list[int]]:
    """The answer, and how many calls each of its pieces made."""
    work, answers = list[int](), list[Any]()
    following = [command]
    while following[-1] is not None:
        work.append(calls(lambda: answers.append(next_piece(rig, following[-1]))))
        following.append(answers[-1][1])
    return answers[-1][0], work


def question(rig: Rig, message_id: str, group: str = "") -> operations.WhyPiece:
    return operations.WhyPiece(message_id, tuple(traced(rig, message_id)), group=group)


def fifo(rig: Rig, *texts: str) -> None:
    rig.do(ask.CreateTopic("f", 1, False, KEEP, type="FIFO"))
    rig.group("g")
    rig.pop(topic="f")
    rig.do(in_order(*texts))


# ── Work ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def leased_message(rig: Rig) -> Any:
    rig.pair(invisible_ms=10 * HOUR)
    rig.send("a")
    rig.pop(client_id="last")
    return question(rig, "a")


def dead_letter_of_a_locked_message_group(rig: Rig) -> Any:
    fifo(rig, "a1", "a2")
    rig.reject(rig.pop(1, topic="f"))
    assert bodies(rig.pop(1, topic="f")) == ["a2"]
    return operations.RedrivePiece("g")


@pytest.mark.slow
@pytest.mark.parametrize("made", [leased_message, dead_letter_of_a_locked_message_group])
def test_a_piece_costs_the_same_whatever_others_lease(make_rig: MakeRig, made: Any) -> None:
    most, count = [], []
    for name, resting in (("small", SMALL), ("large", LARGE)):
        rig = leases(make_rig(name), resting)
        _, work = pieces(rig, made(rig))
        most.append(max(work))
        count.append(len(work))
    assert most[1] < 1.1 * most[0]
    assert [number - 1 for number in count] == [SMALL // PIECE, LARGE // PIECE]


@pytest.mark.slow
def test_a_piece_costs_the_same_however_many_leases_the_group_has_in_the_topic(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOOKS_MAX", SMALL)
    monkeypatch.setattr(holders, "DECODED_MAX", PIECE)
    most = []
    for name, count in (("small", SMALL), ("large", LARGE)):
        rig = leases(make_rig(name), count, topic="t", group="g")
        rig.restart()  # what was put last is in memory: of few leases that would be all of them
        answer, work = pieces(rig, question(rig, "0.7"))
        assert answer[0].groups[0].state == "leased"
        assert len(work) > count / PIECE
        most.append(max(work))
    assert most[1] < 1.1 * most[0]


@pytest.mark.slow
def test_why_and_redrive_do_not_search_leases_for_finished_or_locked_messages(make_rig: MakeRig) -> None:
    rig = leases(make_rig(), SMALL)
    rig.pair()
    rig.send("a")
    rig.ack(rig.pop())
    died(rig, "b")
    fifo(rig, "c1", "d1")
    rig.reject(rig.pop(1, topic="f"))
    assert bodies(rig.pop(topic="f")) == ["d1"], "another message group is locked"
    for command in (question(rig, "a"), question(rig, "b"), operations.RedrivePiece("g")):
        assert len(pieces(rig, command)[1]) == 1


# ── What happens between two pieces ──────────────────────────────────────────────────────────────────────────────────


def test_why_reports_a_lease_that_changes_during_the_search_in_its_final_state(rig: Rig) -> None:
    rig.pair(invisible_ms=10 * HOUR)
    rig.send(*numbered("m", 3 * PIECE), "a", "b", "c")
    rows = [rig.pop(1)[0] for _ in range(3 * PIECE + 1)]
    told = {}
    for name, meanwhile in (("a", lambda: rig.ack(rows[-1:])), ("b", lambda: rig.pop(1, client_id="late"))):
        walk, rest = next_piece(rig, question(rig, name))
        assert isinstance(walk, operations.HolderSearch)
        walk, rest = next_piece(rig, rest)
        assert isinstance(walk, operations.HolderSearch)
        meanwhile()
        told[name] = pieces(rig, rest)[0][0].groups[0]
    assert (told["a"].state, told["b"].state) == ("acked", "leased")
    assert "late" in told["b"].explanation


@pytest.mark.slow
def test_why_leaves_out_a_lease_that_ended_after_the_search_passed_it(rig: Rig) -> None:
    rig.pair(invisible_ms=10 * HOUR)
    rig.send("a", *numbered("m", PIECE))
    rows = [rig.pop(1)[0] for _ in range(PIECE + 1)]
    walk, rest = next_piece(rig, question(rig, "a"))
    assert walk.found == (rows[0].lease.ck_id,)
    rig.ack(rows[:1])
    (life,), _ = next_piece(rig, rest)
    assert life.groups[0].state == "acked"


def test_a_message_that_is_leased_during_the_search_is_not_redriven_as_well(rig: Rig) -> None:
    leases(rig, 2 * PIECE)
    fifo(rig, "a1", "a2", "b1", "c1")
    rows = rig.pop(topic="f")
    rig.reject(rows[:1])  # a1 died, a2 locks its message group
    rig.reject(rows[2:3])  # b1 died: its message group is free
    rig.do(ask.ResetOffsets("f", "g", offsets={0: 0}))
    rig.settle()
    assert bodies(rig.pop(1, topic="f")) == ["a1"]
    walk, rest = next_piece(rig, operations.RedrivePiece("g"))
    assert isinstance(walk, operations.HolderSearch)
    assert bodies(rig.pop(topic="f")) == ["b1", "c1"], "leased while redrive searches"
    assert pieces(rig, rest)[0].topics == {"f": 2}
    assert rig.read("bare") == [], "both messages come anyway, no copy was needed"
    assert rig.numbers("g", "f").dead == 0


def test_a_message_whose_lease_ends_during_the_search_is_redriven(rig: Rig) -> None:
    leases(rig, 2 * PIECE)
    fifo(rig, "a1", "a2")
    (first,) = rig.pop(1, topic="f")
    rig.reject([first])
    rig.do(ask.ResetOffsets("f", "g", offsets={0: 0}))
    (again,) = rig.pop(1, topic="f")
    assert again.body == "a1"
    _, rest = next_piece(rig, operations.RedrivePiece("g"))
    rig.ack([again])
    assert pieces(rig, rest)[0].topics == {"f": 1}
    assert bodies(rig.pop(1, topic="f")) == ["a1"]


@pytest.mark.slow
def test_dead_letters_that_came_into_a_piece_while_it_searched_are_searched_too(rig: Rig) -> None:
    """Another redrive moves those that this one has looked at: this piece then reaches farther."""
    leases(rig, 2 * PIECE)
    fifo(rig, "a1", "b1")
    for _ in range(2):
        rig.reject(rig.pop(topic="f"))
        rig.do(ask.ResetOffsets("f", "g", offsets={0: 0}))
        rig.settle()
    assert bodies(rig.pop(topic="f")) == ["a1", "b1"]
    walk, rest = next_piece(rig, operations.RedrivePiece("g", (0,)))
    farther, work = pieces(rig, replace(rest, offsets=(0, 1)))
    assert len(walk.places) == 1
    assert farther.topics == {"f": 2}
    assert len(work) > 2, "it began again"
    assert rig.read("bare") == []


def test_why_finds_the_lease_of_a_token_when_all_its_messages_are_acked(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.attach(lease_ms=HOUR)
    rig.ack(deliveries(rig.seal(1)))
    assert story(rig, "a") == ["sent", "popped", "acked"]


@pytest.mark.slow
def test_a_lease_that_ends_in_the_same_commit_as_a_piece_harms_nothing(rig: Rig) -> None:
    rig.pair(invisible_ms=10 * HOUR)
    rig.send("a", *numbered("m", 2 * PIECE))
    rows = [rig.pop(1)[0] for _ in range(2 * PIECE + 1)]
    command = question(rig, "a")
    ended = ask.Ack("g", tuple(row.handle for row in rows[1 : 2 * PIECE]))
    _, walk = rig.run(ended, command)
    lives, _ = pieces(rig, replace(command, walk=walk))
    assert lives[0].groups[0].state == "leased"
