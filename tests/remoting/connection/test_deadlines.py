"""Deadlines that share timers: none comes late, and ended calls leave nothing."""

from __future__ import annotations

import asyncio

from popmq_remoting.connection.deadlines import Deadlines
from tests.remoting.jumping import jumping, passed


@jumping
async def test_each_call_ends_within_a_64th_of_a_second_before_its_deadline_and_not_at_once() -> None:
    loop = asyncio.get_running_loop()
    ended: list[int] = []
    deadlines = Deadlines(loop, ended.append)
    now_s = 1_000.01
    until = {number: now_s + number * 0.0037 for number in range(1, 200)}
    moments = {number: deadlines.add(number, now_s, until_s) for number, until_s in until.items()}
    assert len(deadlines) < 60
    assert all(now_s < moments[number] <= until[number] for number in until)
    assert all(until[number] - moments[number] < 1 / 64 for number in until)
    await passed(2_000.0)
    assert sorted(ended) == list(until)
    assert len(deadlines) == 0


@jumping
async def test_ended_calls_leave_no_timer_however_far_their_deadlines_are() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop, lambda number: None)
    now_s = loop.time()
    moments = {number: deadlines.add(number, now_s, now_s + 3_600.0) for number in range(100)}
    assert len(deadlines) == 1
    for number, moment_s in moments.items():
        deadlines.remove(number, moment_s)
        deadlines.remove(number, moment_s)
    assert len(deadlines) == 0
