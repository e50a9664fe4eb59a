"""Deadlines: calls that end in the same moment share a timer, and an ended call leaves nothing behind."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from popmq_http2.deadlines import TICK_S, Deadlines


class Handle:
    def __init__(self, when: float, run: Callable[[], None]) -> None:
        self.when, self.run, self.cancelled = when, run, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """An event loop whose time stands still; `timers` are those that were asked for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., None], *given: Any) -> Handle:
        self.timers.append(Handle(when, lambda: callback(*given)))
        return self.timers[-1]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def call() -> Any:
    return object()


@pytest.mark.parametrize("timeout_s", [0.0, 0.0001, 0.5, 1.0, 86_400.0])
def test_a_call_ends_at_its_deadline_or_up_to_a_tick_later(loop: Loop, timeout_s: float) -> None:
    ended: list[Any] = []
    late = call()
    Deadlines(ended.append).add(late, timeout_s)
    (timer,) = loop.timers
    assert loop.now + timeout_s <= timer.when <= loop.now + timeout_s + TICK_S + 1e-9
    timer.run()
    assert ended == [late]


def test_calls_of_one_moment_share_a_timer(loop: Loop) -> None:
    ended: list[Any] = []
    deadlines, calls = Deadlines(ended.append), [call() for _ in range(100)]
    for each in calls:
        deadlines.add(each, 30.0)
    (timer,) = loop.timers
    timer.run()
    assert ended == calls
    assert len(deadlines) == 0


def test_a_call_that_has_ended_is_not_ended_again(loop: Loop) -> None:
    ended: list[Any] = []
    deadlines, calls = Deadlines(ended.append), [call(), call()]
    moments = [deadlines.add(each, 1.0) for each in calls]
    moments[0].leave(calls[0])
    loop.timers[0].run()
    assert ended == calls[1:]


@pytest.mark.mechanism("H.16")
def test_ended_calls_leave_no_timer_however_far_their_deadlines_are(loop: Loop) -> None:
    deadlines: Deadlines[Any] = Deadlines(lambda _: None)
    for number in range(100):
        each = call()
        deadlines.add(each, 86_400.0 * (number + 1)).leave(each)
    assert len(deadlines) == 0
    assert all(timer.cancelled for timer in loop.timers)
