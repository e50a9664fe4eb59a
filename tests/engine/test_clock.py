"""Steps of the wall clock move no lease; a restart takes the later of the wall clock and the time it saved (I.30)."""

from __future__ import annotations

import logging

import pytest

from popmq_server.clock import FakeClock, SystemClock
from popmq_server.core import SAVE_TIME_MS
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies


class Hands:
    """A wall clock and a monotonic one, moved by the test."""

    def __init__(self) -> None:
        self.wall_s = 1_700_000_000.0
        self.passed_ns = 5_000_000_000

    def clock(self) -> SystemClock:
        """The clock of one process."""
        return SystemClock(lambda: self.wall_s, lambda: self.passed_ns)

    def advance(self, ms: int) -> None:
        """Time passes."""
        self.wall_s += ms / 1000
        self.passed_ns += ms * 1_000_000

    def step(self, ms: int) -> None:
        """Somebody sets the wall clock."""
        self.wall_s += ms / 1000

    def reboot(self) -> None:
        """The monotonic clock begins anew."""
        self.passed_ns = 0


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def leased(hands: Hands, make_rig: MakeRig) -> Rig:
    """A message leased for a minute."""
    rig = make_rig(clock=hands.clock())
    rig.pair()
    rig.send("a")
    assert rig.pop()
    return rig


def restarted(rig: Rig, hands: Hands) -> None:
    rig.core.close()
    hands.reboot()
    rig.clock = hands.clock()
    rig._start()


@pytest.mark.parametrize("step_ms", [-HOUR, -MINUTE, MINUTE, HOUR, 100 * HOUR])
def test_a_step_of_the_wall_clock_while_running_moves_no_lease(leased: Rig, hands: Hands, step_ms: int) -> None:
    hands.step(step_ms)
    hands.advance(MINUTE - 1)
    leased.settle()
    assert leased.pop() == []
    hands.advance(1)
    leased.settle()
    assert bodies(leased.pop()) == ["a"]


def test_after_a_step_back_and_a_restart_nothing_is_early_and_nothing_lost(leased: Rig, hands: Hands) -> None:
    hands.step(-30 * MINUTE)
    restarted(leased, hands)
    hands.advance(MINUTE - SECOND)
    leased.settle()
    assert leased.pop() == []
    hands.advance(2 * SECOND)
    leased.settle()
    assert bodies(leased.pop()) == ["a"]


def test_after_a_step_ahead_and_a_restart_leases_are_over(leased: Rig, hands: Hands) -> None:
    hands.step(HOUR)
    restarted(leased, hands)
    leased.settle()
    assert bodies(leased.pop()) == ["a"]


def test_time_never_goes_back_over_restarts(hands: Hands, make_rig: MakeRig) -> None:
    rig = make_rig(clock=hands.clock())
    rig.topic()
    last = 0
    for _ in range(5):
        hands.advance(2 * SAVE_TIME_MS)
        rig.send("a")
        assert rig.now >= last
        last = rig.now
        hands.step(-10 * SECOND)
        restarted(rig, hands)
        assert rig.now >= last


def test_a_saved_time_over_an_hour_ahead_is_reported_and_not_believed(
    leased: Rig, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    hands.step(-HOUR - 2 * SECOND)
    with caplog.at_level(logging.WARNING, "popmq"):
        restarted(leased, hands)
    assert "ahead of this machine's clock" in caplog.text
    assert leased.now == int(hands.wall_s * 1000)


def test_a_saved_time_an_hour_ahead_is_believed_silently(
    leased: Rig, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    before = leased.core.state.counters[""].saved_ms
    hands.step(-HOUR)
    with caplog.at_level(logging.WARNING, "popmq"):
        restarted(leased, hands)
    assert caplog.text == ""
    assert leased.now == before


def test_the_time_is_saved_at_most_once_a_second(hands: Hands, make_rig: MakeRig) -> None:
    rig = make_rig(clock=hands.clock())
    rig.topic()
    saved = set()
    for _ in range(30):
        hands.advance(100)
        rig.send("a")
        saved.add(rig.core.state.counters[""].saved_ms)
    assert 3 <= len(saved) <= 4
    assert rig.now - max(saved) < SAVE_TIME_MS


def test_a_fake_clock_tells_those_who_follow_it_and_does_not_go_back() -> None:
    clock = FakeClock(1000)
    seen: list[int] = []
    leave = clock.subscribe(lambda: seen.append(clock.now_ms()))
    clock.advance(5)
    leave()
    clock.advance(5)
    assert (seen, clock.now_ms()) == ([1005], 1010)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
    clock.anchor(900)
    assert clock.now_ms() == 1010
