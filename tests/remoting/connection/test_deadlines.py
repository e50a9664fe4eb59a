"""Deadlines that share timers: none comes late, and ended calls leave nothing."""

from __future__ import annotations

import asyncio

from popmq_remoting.connection.deadlines import Deadlines
from tests.remoting.jumping import jumping, passed


@jumping
async def test_each_call_ends_within_a_64th_of_a_second_before_its_deadline() -> None:
    loop = asyncio.get_running_loop()
    ended: dict[int, float] = {}

    def over(number: int) -> None:
        ended[number] = loop.time()

    deadlines = Deadlines(loop, over)
    began_s = loop.time()
    until = {number: began_s + number * 0.0037 for number in range(1, 200)}
    for number, until_s in until.items():
        deadlines.add(number, began_s, until_s)
    assert len(deadlines) < 60
    await passed(1.0)
    assert ended.keys() == until.keys()
    # A step of real time passes between two looks at the clock.
    assert all(until[number] - 0.016 <= ended[number] <= until[number] + 0.05 for number in until)
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
