"""Bugs that are put in on purpose, each at a seam where two parts run at the same time. The simulator must find them.

They replace a method of the product while a run lasts. What each one forgets is a line of the product that looks as if
it could be left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from popmq_server.clock import wait_until
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.loop.long_poll import Waiters
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


#: name → class, method, the method with the bug.
BUGS: dict[str, tuple[type, str, Any]] = {
    "gathering: a command that came during a batch waits for the next one": (Writer, "_next_batch", _sleeps_on),
    "cancelled pops: the messages stay leased": (EmbeddedEngine, "_unheard", lambda *_: None),
    "long polls: a message wakes none of the parked": (Waiters, "_wake_key", lambda *_: None),
    "stop: the parked are not answered": (Waiters, "close", lambda _: None),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Puts a bug in."""
    where, method, bug = BUGS[name]
    with mock.patch.object(where, method, bug):
        yield
