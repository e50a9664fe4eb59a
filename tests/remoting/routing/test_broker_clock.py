"""The broker's clock as its pops tell it."""

import pytest

from popmq_remoting.routing.broker_clock import ROUND_TRIP_MS_MAX, UNLEARNT_MS, BrokerClock

NOW_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def test_before_anything_is_learnt_pops_name_a_time_far_ahead() -> None:
    clock = BrokerClock(Clock())
    assert clock.pop_born_ms() == NOW_MS + UNLEARNT_MS
    assert clock.now_ms() == NOW_MS


def test_the_time_of_an_answer_lies_in_the_middle_of_the_way_there_and_back() -> None:
    ours = Clock()
    clock = BrokerClock(ours)
    ours.now_ms += 20
    clock.learn(NOW_MS + 60_010, asked_ms=NOW_MS)
    assert clock.ahead_ms == 60_000
    assert clock.now_ms() == NOW_MS + 60_020


def test_a_pop_is_never_too_old_for_its_broker_because_the_first_answer_came_slowly() -> None:
    for broker_took_ms in (0, ROUND_TRIP_MS_MAX):  # the broker read its clock at once, or just before it answered
        ours = Clock()
        clock = BrokerClock(ours)
        asked_ms = ours()
        ours.now_ms += ROUND_TRIP_MS_MAX
        clock.learn(asked_ms + broker_took_ms, asked_ms)
        assert clock.pop_born_ms() >= ours()


def test_the_median_of_the_last_ten_counts() -> None:
    ours = Clock()
    clock = BrokerClock(ours)
    for ahead_ms in (*[60_400] * 5, *[59_600] * 8, 60_000, 60_400):
        clock.learn(NOW_MS + ahead_ms, asked_ms=NOW_MS)
    assert clock.ahead_ms == 59_600


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 61_001, 3_600_000])
def test_a_clock_that_was_set_is_learnt_by_the_first_answer(ahead_ms: int) -> None:
    clock = BrokerClock(Clock())
    for each_ms in (*[60_000] * 10, ahead_ms):
        clock.learn(NOW_MS + each_ms, asked_ms=NOW_MS)
    assert clock.ahead_ms == ahead_ms


def test_an_answer_that_was_parked_says_nothing_about_the_clock() -> None:
    ours = Clock()
    clock = BrokerClock(ours)
    ours.now_ms += 10_000
    clock.learn(NOW_MS, asked_ms=NOW_MS)
    assert not clock.is_learnt


def test_a_broker_that_was_connected_anew_is_learnt_anew() -> None:
    clock = BrokerClock(Clock())
    clock.learn(NOW_MS + 5, asked_ms=NOW_MS)
    assert clock.is_learnt
    clock.forget()
    assert (clock.is_learnt, clock.ahead_ms) == (False, 0)
