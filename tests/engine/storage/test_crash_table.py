"""What a crash leaves, line by line: before the commit nothing, after it everything."""

import pytest

from popmq_server.contract import commands as ask
from tests.engine.faults import killed_before_answer, killed_before_commit
from tests.engine.rig import MINUTE, SECOND, Delivery, Rig, bodies, deliveries, refusals, sending


@pytest.fixture
def leased(rig: Rig) -> list[Delivery]:
    rig.pair()
    rig.send("a", "b")
    return rig.pop(invisible_ms=MINUTE)


@pytest.mark.mechanism("S2.20")
def test_a_send_killed_before_its_commit_is_absent_and_its_repetition_is_no_duplicate(rig: Rig) -> None:
    rig.pair()
    killed_before_commit(rig, sending("a", producer="p", number=1))
    assert rig.pop() == []
    assert not rig.send("a", producer="p", number=1).duplicate
    assert bodies(rig.pop()) == ["a"]


@pytest.mark.mechanism("S2.14")
def test_a_send_killed_before_its_answer_is_there_and_its_repetition_is_a_duplicate(rig: Rig) -> None:
    rig.pair()
    killed_before_answer(rig, sending("a", "b", producer="p", number=1))
    repeated = rig.send("a", "b", producer="p", number=1)
    assert repeated == ask.Sent(0, 0, True)
    assert bodies(rig.pop()) == ["a", "b"]


def test_a_pop_killed_before_its_commit_took_nothing(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    killed_before_commit(rig, ask.Pop("t", "g"))
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 1)]


@pytest.mark.mechanism("I.06")
@pytest.mark.slow
def test_a_pop_killed_before_its_answer_comes_back_after_the_invisible_time_as_the_second_attempt(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    killed_before_answer(rig, ask.Pop("t", "g", invisible_ms=10 * SECOND))
    rig.advance(10 * SECOND - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2)]


def test_a_pop_killed_before_its_answer_is_answered_at_once_under_its_attempt_id(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    asked = ask.Pop("t", "g", client_id="c", attempt_id="1")
    killed_before_answer(rig, asked)
    again = rig.do(asked)
    assert again.replay
    assert [(row.body, row.attempt) for row in deliveries(again)] == [("a", 1), ("b", 1)]
    assert rig.ack(deliveries(again)) == [None, None]


def test_an_ack_killed_before_its_commit_changed_nothing(rig: Rig, leased: list[Delivery]) -> None:
    killed_before_commit(rig, ask.Ack("g", (leased[0].handle,)))
    assert rig.ack(leased[:1]) == [None]


@pytest.mark.mechanism("D.28", "I.02")
def test_an_ack_killed_before_its_answer_stays_acked_and_its_repetition_is_reported(
    rig: Rig, leased: list[Delivery]
) -> None:
    killed_before_answer(rig, ask.Ack("g", (leased[0].handle,)))
    assert refusals(rig.ack(leased)) == ["HANDLE_LAPSED", ""]
    rig.advance(MINUTE)
    assert rig.pop() == []


def test_a_release_killed_before_its_answer_is_a_retry_once(rig: Rig, leased: list[Delivery]) -> None:
    killed_before_answer(rig, ask.ChangeInvisibleTime("g", (ask.Change(leased[0].handle, "release"),)))
    assert refusals(rig.release(leased[:1])) == ["HANDLE_LAPSED"]
    assert bodies(rig.pop()) == ["a"]
    assert rig.pop() == []


def test_a_reject_killed_before_its_answer_is_one_dead_letter(rig: Rig, leased: list[Delivery]) -> None:
    killed_before_answer(rig, ask.ChangeInvisibleTime("g", (ask.Change(leased[0].handle, "reject"),)))
    assert refusals(rig.reject(leased[:1])) == ["HANDLE_LAPSED"]
    assert [letter.message_id for letter in rig.dead()] == ["a"]


@pytest.mark.mechanism("D.04")
@pytest.mark.slow
def test_a_revive_killed_before_its_commit_happens_again(rig: Rig, leased: list[Delivery]) -> None:
    rig.skip(MINUTE)
    killed_before_commit(rig)
    assert leased
    rig.settle()
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2), ("b", 2)]


def test_a_revive_killed_before_its_wake_is_found_by_the_next_pop(rig: Rig, leased: list[Delivery]) -> None:
    rig.skip(MINUTE)
    killed_before_answer(rig)
    assert bodies(rig.pop()) == bodies(leased)


def test_a_sealed_pop_killed_before_its_answer_is_the_same_set_afterwards(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rig.attach()
    first = rig.seal(1, max_messages=2)
    rig.crash()
    again = rig.seal(1, max_messages=2)
    assert (again.rows, again.ck_id, again.nonce, again.sealed) == (first.rows, first.ck_id, first.nonce, first.sealed)
    assert again.replay


def test_an_empty_sealed_pop_stays_empty_after_a_crash(rig: Rig) -> None:
    rig.pair()
    rig.attach()
    assert rig.seal(1).sealed == (0, True, 0, 0)
    rig.crash()
    rig.send("a")
    again = rig.seal(1)
    assert (again.rows, again.sealed, again.replay) == ([], (0, True, 0, 0), True)


def test_an_ack_up_to_killed_before_its_answer_is_finished_and_says_so(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.attach()
    rig.seal(1)
    killed_before_answer(rig, ask.AckUpTo("g", "o", 1, 1))
    assert rig.do(ask.AckUpTo("g", "o", 1, 1))[:2] == (0, 1)
    assert rig.numbers().acked == 1
