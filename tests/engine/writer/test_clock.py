"""Steps of the wall clock move no lease; a restart takes the later of the wall clock and the time it saved."""

import logging

import pytest

from popmq_server.clock import FakeClock
from popmq_server.embedded.writer.core import SAVE_TIME_MS
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies
from tests.engine.wall_clock import WallClock, restarted


@pytest.fixture
def wall_clock() -> WallClock:
    return WallClock()


@pytest.fixture
def leased(wall_clock: WallClock, make_rig: MakeRig) -> Rig:
    """A message leased for a minute."""
    rig = make_rig(clock=wall_clock.clock())
    rig.pair()
    rig.send("a")
    assert rig.pop()
    return rig


@pytest.mark.mechanism("D.21")
@pytest.mark.parametrize("step_ms", [-HOUR, -MINUTE, MINUTE, HOUR, 100 * HOUR])
def test_a_step_of_the_wall_clock_while_running_moves_no_lease(
    leased: Rig, wall_clock: WallClock, step_ms: int
) -> None:
    wall_clock.step(step_ms)
    wall_clock.advance(MINUTE - 1)
    leased.settle()
    assert leased.pop() == []
    wall_clock.advance(1)
    leased.settle()
    assert bodies(leased.pop()) == ["a"]


@pytest.mark.parametrize(("step_ms", "said"), [(8 * HOUR, "28800 s ahead of"), (-8 * HOUR, "28800 s behind")])
def test_a_step_of_the_wall_clock_is_logged_once_until_the_clocks_agree(
    leased: Rig, wall_clock: WallClock, step_ms: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> int:
        with caplog.at_level(logging.WARNING, "popmq.clock"):
            for _ in range(3):
                wall_clock.advance(MINUTE)
                leased.settle()
        return caplog.text.count(said)

    wall_clock.step(MINUTE - SECOND)
    assert logged() == 0
    wall_clock.step(step_ms - MINUTE + SECOND)
    assert logged() == 1
    wall_clock.step(-step_ms)
    assert logged() == 1
    wall_clock.step(step_ms)
    assert logged() == 2


@pytest.mark.mechanism("I.30")
def test_a_lease_ends_in_time_after_the_clock_steps_back_and_a_restart(leased: Rig, wall_clock: WallClock) -> None:
    wall_clock.step(-30 * MINUTE)
    restarted(leased, wall_clock)
    wall_clock.advance(MINUTE - SECOND)
    leased.settle()
    assert leased.pop() == []
    wall_clock.advance(2 * SECOND)
    leased.settle()
    assert bodies(leased.pop()) == ["a"]


def test_a_lease_is_over_after_the_clock_steps_ahead_and_a_restart(leased: Rig, wall_clock: WallClock) -> None:
    wall_clock.step(HOUR)
    restarted(leased, wall_clock)
    leased.settle()
    assert bodies(leased.pop()) == ["a"]


def test_time_never_goes_back_over_restarts(wall_clock: WallClock, make_rig: MakeRig) -> None:
    rig = make_rig(clock=wall_clock.clock())
    rig.topic()
    last = 0
    for _ in range(5):
        wall_clock.advance(2 * SAVE_TIME_MS)
        rig.send("a")
        assert rig.now >= last
        last = rig.now
        wall_clock.step(-10 * SECOND)
        restarted(rig, wall_clock)
        assert rig.now >= last


def test_a_saved_time_over_an_hour_ahead_is_reported_and_not_believed(
    leased: Rig, wall_clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    wall_clock.step(-HOUR - 2 * SECOND)
    with caplog.at_level(logging.WARNING, "popmq"):
        restarted(leased, wall_clock)
    assert "ahead of this machine's clock" in caplog.text
    assert leased.now == int(wall_clock.wall_s * 1000)


def test_a_saved_time_an_hour_ahead_is_believed_silently(
    leased: Rig, wall_clock: WallClock, caplog: pytest.LogCaptureFixture
) -> None:
    before = leased.core.state.counters[""].saved_ms
    wall_clock.step(-HOUR)
    with caplog.at_level(logging.WARNING, "popmq"):
        restarted(leased, wall_clock)
    assert caplog.text == ""
    assert leased.now == before


def test_the_time_is_saved_at_most_once_a_second(wall_clock: WallClock, make_rig: MakeRig) -> None:
    rig = make_rig(clock=wall_clock.clock())
    rig.topic()
    saved = set()
    for _ in range(30):
        wall_clock.advance(100)
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
