"""Holds the writer before its next commit, so that a test decides which commands share it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from popmq_server.embedded.writer.batch import Committed
from popmq_server.embedded.writer.core import Core
from popmq_server.embedded.writer.lone import Lone
from popmq_server.embedded.writer.writer import Writer
from tests.wire.stubs import CALL_S


class Gate:
    """A gate before each commit. `groups`: the commands of each commit since the gate was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[list[Any]] = []
        self._open = threading.Event()
        self._open.set()
        self._changed = threading.Condition()
        self._submitted = self._entered = 0
        run, submit = Core.run, Writer.submit

        def gated(core: Core, commands: list[Any]) -> Committed:
            self._count(entered=1)
            assert self._open.wait(CALL_S), "the gate was never opened"
            self.groups.append(commands)
            return run(core, commands)

        def counted(writer: Writer[Any], command: Any, ticket: Any) -> None:
            submit(writer, command, ticket)
            self._count(submitted=1)

        monkeypatch.setattr(Core, "run", gated)
        monkeypatch.setattr(Lone, "run", lambda *_: None)  # with a journal too, each command enters the writer thread
        monkeypatch.setattr(Writer, "submit", counted)

    def _count(self, submitted: int = 0, entered: int = 0) -> None:
        with self._changed:
            self._submitted += submitted
            self._entered += entered
            self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Holds the next commit until the block ends."""
        with self._changed:
            self._submitted = self._entered = 0
        self.groups.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def wait_for(self, count: int) -> None:
        """Returns once `count` commands have come since the gate was closed, and the writer stands before it.

        So what comes after `wait_for(1)` is not in the commit batch of the first.
        """
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._entered and self._submitted >= count, CALL_S)
            assert arrived, f"{self._submitted} of {count} commands"
