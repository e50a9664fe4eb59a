"""Bugs that are put in on purpose, each at a seam where two parts run at the same time. The simulator must find them.

They replace a method of the product while a run lasts. What each one forgets is a line of the product that looks as if
it could be left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from popmq_server.clock import wait_until
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.loop.long_poll import Key, Waiters
from popmq_server.embedded.writer.batch import Committed
from popmq_server.embedded.writer.writer import IDLE_S, Writer


def _sleeps_on(writer: Writer[Any]) -> Any:
    """Gathering: what arrived while a batch ran is not looked at before the thread sleeps."""
    with writer._event:
        writer._busy = False
        while True:
            if writer._stopping:
                return writer._take() if any(writer._lanes) else None
            writer._event.notify_all()
            writer._asleep = True
            wait_until(writer._event, writer._clock, writer._wake_ms(), IDLE_S)
            writer._asleep = False
            if writer._begins() or writer._due():
                break
        writer._busy = True
        return writer._take()


def _loses_batch(writer: Writer[Any], batch: Any) -> None:
    """Gathering: after a failed commit only the first caller of its batch is told."""
    tickets = [ticket for _, ticket in batch]
    real, delivered = writer._deliver, []

    def deliver(given: Any, committed: Committed) -> None:
        delivered.append(given)
        failed = committed.results and isinstance(committed.results[0], BaseException)
        first = failed and len(given) == len(tickets) > 1
        real(given[:1] if first else given, committed._replace(results=committed.results[:1]) if first else committed)

    writer._deliver = deliver
    try:
        _RUN(writer, batch)
    finally:
        writer._deliver = real


async def _swallows(lot: Waiters, key: Key, seen: tuple[int, int], deadline_ms: int) -> bool:
    """Cancelled pops: one that is cancelled while it is being woken keeps the wake."""
    if lot.generation(key) != seen:
        return True
    if lot._closed or deadline_ms <= lot._clock.now_ms():
        return False
    parked = lot._parked_at(key)
    number, future = next(lot._numbers), asyncio.get_running_loop().create_future()
    parked[number] = future
    lot._count(key, 1)
    lot._push(deadline_ms, number, future)
    try:
        return bool(await future)
    finally:
        lot._leave(key, number)


_RUN = Writer._run

#: name → class, method, the method with the bug.
BUGS: dict[str, tuple[type, str, Any]] = {
    "gathering: a command that came during a batch waits for the next one": (Writer, "_next_batch", _sleeps_on),
    "gathering: a failed batch answers its first caller only": (Writer, "_run", _loses_batch),
    "cancelled pops: the messages stay leased": (EmbeddedEngine, "_unheard", lambda *_: None),
    "cancelled pops: the wake is not handed on": (Waiters, "park", _swallows),
    "long polls: a message that comes before a pop has parked wakes nobody": (
        Waiters,
        "generation",
        lambda *_: (0, 0),
    ),
    "stop: the parked are not answered": (Waiters, "close", lambda _: None),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Puts a bug in."""
    where, method, bug = BUGS[name]
    with mock.patch.object(where, method, bug):
        yield
