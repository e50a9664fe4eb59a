"""What the campaigns believe of owners is found out when it is a lie: one sound story, one change at a time."""

from typing import Any

import pytest

from popmq_verify.judging import sealed
from popmq_verify.judging.facts import Survey
from popmq_verify.load.history import History, Operation
from popmq_verify.load.reader import GROUP, TOPIC

ROWS: list[list[Any]] = [["m0", 0, 0], ["m1", 0, 1], ["m2", 1, 0]]


def operation(kind: str, asked: dict[str, Any], told: dict[str, Any] | None) -> Operation:
    return Operation(kind, "reader", 0, asked, 1, "unknown" if told is None else "ok", told or {})


def token(epoch: int, rows: list[list[Any]] | None, torn: int = 0, end: bool = True) -> Operation:
    told = None if rows is None else {"rows": rows, "end": end, "torn": torn}
    return operation("token", {"generation": 1, "epoch": epoch, "part": 0, "chunk": 0}, told)


def attach(generation: int, acked_epoch: int) -> Operation:
    return operation("attach", {}, {"generation": generation, "acked_epoch": acked_epoch})


def ack(epoch: int) -> Operation:
    return operation("ack_upto", {"generation": 1, "epoch": epoch}, {"acked_epoch": epoch})


@pytest.fixture
def story() -> list[Operation]:
    """Two epochs that hold the topic; the first is read twice, and one answer was lost."""
    first = [attach(1, 0), token(1, None), token(1, ROWS[:2]), attach(2, 0), token(1, ROWS[:2]), ack(1)]
    return [*first, attach(3, 1), token(2, ROWS[2:]), ack(2)]


@pytest.fixture
def survey() -> Survey:
    stored = {message_id: [(queue, offset)] for message_id, queue, offset in ROWS}
    numbers = dict.fromkeys(("ready", "in_flight", "retry", "backoff", "dead"), 0)
    return Survey(stored={TOPIC: stored}, stats={(GROUP, TOPIC): {**numbers, "acked": 3}})


def test_a_sound_story_has_no_findings(story: list[Operation], survey: Survey) -> None:
    assert sealed.check(History(story), survey) == []


@pytest.mark.parametrize(
    ("place", "lie"),
    [
        pytest.param(4, token(1, ROWS[:1]), id="a token that lost a row"),
        pytest.param(4, token(1, ROWS[1::-1]), id="a token in another order"),
        pytest.param(4, token(1, ROWS[:2], end=False), id="a token that was at its end, and is no more"),
        pytest.param(4, token(1, ROWS[:2], torn=1), id="a torn token"),
        pytest.param(7, token(2, ROWS[1:]), id="a message in two epochs"),
        pytest.param(7, token(2, []), id="a message in no epoch"),
        pytest.param(7, token(2, [["ghost", 1, 1], *ROWS[2:]]), id="a message that was never stored"),
        pytest.param(3, attach(1, 0), id="a generation given out twice"),
        pytest.param(6, attach(3, 0), id="an acked epoch that was forgotten"),
    ],
)
def test_a_lie_about_an_owner_is_found(story: list[Operation], survey: Survey, place: int, lie: Operation) -> None:
    story[place] = lie
    assert sealed.check(History(story), survey)


@pytest.mark.parametrize(("number", "value"), [("acked", 2), ("in_flight", 1), ("retry", 1)])
def test_numbers_of_an_owners_group_that_do_not_add_up_are_found(
    story: list[Operation], survey: Survey, number: str, value: int
) -> None:
    survey.stats[GROUP, TOPIC][number] = value
    assert sealed.check(History(story), survey)


def test_an_answered_message_that_is_gone_and_in_no_epoch_is_found(story: list[Operation], survey: Survey) -> None:
    survey.dropping = True
    story.append(operation("send", {"topic": TOPIC, "ids": ["m9"]}, {"results": [[1, 9]]}))
    assert sealed.check(History(story), survey)
