"""Handlers that run for long: their time limit, and where they stand.

coroutine function        past its limit it is cancelled
function in a thread      past its limit its message is released, and its thread is left behind, since nothing ends a
                          thread from outside. Its slot goes on in another thread, until as many are left behind as
                          the handler has concurrency; then the slot waits for one of them to end
"""

import asyncio
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from popmq._async.concurrency import finished
from popmq._given.reason import clip, handlers_traceback
from popmq._worker.handlers import Handler
from popmq._worker.threads import CallingThread
from popmq.message import Delivery
from popmq_http2.elapsed import monotonic

#: Modules whose frames are between the event loop and a handler.
_OURS = ("popmq._worker.", "popmq.worker.", "asyncio.", "threading.")


class TimedOut(Exception):
    """A handler passed its time limit. `reason`: this, and where it stood."""

    def __init__(self, seconds: float, stood: str) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.reason = clip(f"{self}\n{stood}".rstrip())


async def within(handler: Handler, arguments: tuple[Any, ...], thread: CallingThread | None) -> Any:
    """What the function returns within the time limit of its handler. Raises TimedOut, and what it raises."""
    assert handler.timeout is not None
    try:
        async with asyncio.timeout(handler.timeout) as limit:
            made = handler.function(*arguments) if thread is None else thread.call(handler.function, *arguments)
            return await finished(await made)
    except TimeoutError as error:
        if not limit.expired():
            raise  # of its own
        stood = _of_cancelled(error) if thread is None else "".join(_of_frame(thread.frame()))
        raise TimedOut(handler.timeout, stood) from error


def _of_cancelled(error: TimeoutError) -> str:
    """Where a coroutine was cancelled."""
    return "" if error.__cause__ is None else "".join(traceback.format_tb(handlers_traceback(error.__cause__)))


@dataclass(frozen=True, slots=True)
class Running:
    """A handler at work on a delivery, in a task, perhaps with a thread. `since`: on the monotonic clock.

    `loop`: the thread of the event loop.
    """

    handler: Handler
    delivery: Delivery
    task: "asyncio.Task[None] | None"
    thread: CallingThread | None
    since: float
    loop: int

    @property
    def stack(self) -> list[str]:
        """Where it stands, outermost call first."""
        if self.thread is not None and self.thread.is_busy:
            return _of_frame(self.thread.frame())
        return [] if self.task is None else _of_coroutine(self.task.get_coro(), self.loop)


def report(running: Iterable[Running], now: float | None = None) -> str:
    """Each handler that runs, the one that runs longest first: its message, how long, and its stack."""
    now = monotonic() if now is None else now
    rows = sorted(running, key=lambda each: each.since)
    lines = [f"{len(rows)} handler{'' if len(rows) == 1 else 's'} at work\n"]
    for each in rows:
        about = f"message {each.delivery.message_id!r} of {each.delivery.topic}, attempt {each.delivery.attempt}"
        lines.append(f"{each.handler.name}: {about}, for {now - each.since:.1f} s\n")
        lines += each.stack or ["  it has not begun, or has just ended\n"]
    return "".join(lines)


def _of_frame(frame: FrameType | None) -> list[str]:
    found = [] if frame is None else list(traceback.walk_stack(frame))
    return _shown(reversed(found))


def _of_coroutine(coroutine: Any, loop: int) -> list[str]:
    """The frames of a coroutine and of what it awaits; of one that runs now, all frames of its thread."""
    found = list[tuple[FrameType, int]]()
    while coroutine is not None:
        frame = next(
            (each for name in ("cr_frame", "gi_frame", "ag_frame") if (each := getattr(coroutine, name, None))), None
        )
        if frame is not None:
            found.append((frame, frame.f_lineno))
        awaited = next(
            (getattr(coroutine, name) for name in ("cr_await", "gi_yieldfrom", "ag_await") if hasattr(coroutine, name)),
            None,
        )
        if awaited is None and getattr(coroutine, "cr_running", False):
            return _of_frame(sys._current_frames().get(loop))
        coroutine = awaited
    return _shown(found)


def _shown(frames: Iterable[tuple[FrameType, int]]) -> list[str]:
    """Lines of a traceback, without our own frames and those of the event loop."""
    mine = [(frame, line) for frame, line in frames if not f"{frame.f_globals.get('__name__', '')}.".startswith(_OURS)]
    return traceback.StackSummary.extract(iter(mine)).format()
