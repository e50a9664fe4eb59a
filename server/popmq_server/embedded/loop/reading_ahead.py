"""Reads messages ahead for groups with fair keys, in pieces between other commands.

    Pop ──▶ Leased.behind ──▶ go_on ──▶ ReadAhead ──▶ more ──▶ ReadAhead …       one piece at a time for each group

It begins with a Pop that found messages it had not read, and ends when all are read or there is no room for more.
"""

from asyncio import Future
from collections.abc import Callable

from popmq_server.contract.operations import Command
from popmq_server.embedded.operations import ReadAhead


class ReadingAhead:
    """The groups that read ahead now. `submit` gives a command to the writer and returns the future of its answer."""

    def __init__(self, submit: Callable[[Command[object]], "Future[object]"]) -> None:
        self._submit = submit
        self._running: set[tuple[str, str]] = set()

    def go_on(self, topic: str, group: str) -> None:
        """Reads ahead for a group, unless it does already."""
        if (topic, group) not in self._running:
            self._running.add((topic, group))
            self._piece(topic, group)

    def _piece(self, topic: str, group: str) -> None:
        def read(done: "Future[object]") -> None:
            if not done.cancelled() and done.exception() is None and done.result():
                self._piece(topic, group)
            else:
                self._running.discard((topic, group))

        self._submit(ReadAhead(topic, group)).add_done_callback(read)
