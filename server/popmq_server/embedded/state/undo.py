"""Undo log for state in memory that is not a table: ready message groups and lite topics, watches, turns of sends.

Tables (table.py) have an uncommitted layer. Ordered structures have none: they change at once and note here how to undo
each change.

    judge("bob")   ready: ann, bob    note(remove bob)
    commit         keep(): drops the notes        abort    take_back(): runs the notes, the last one first

A batch may run several times before it is committed: the same changes are made and undone each time.
"""

from collections.abc import Callable
from typing import Any


class Undo:
    """The notes of one transaction. For the writer thread."""

    __slots__ = ("_steps", "changes")

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        #: Number of notes so far: comparing it before and after shows whether anything changed.
        self.changes = 0

    def note(self, step: Callable[..., Any], *arguments: Any) -> None:
        """Notes that `step(*arguments)` undoes the last change."""
        self.changes += 1
        self._steps.append((step, arguments))

    def keep(self) -> None:
        """After a commit: drops the notes."""
        self._steps.clear()

    def take_back(self) -> None:
        """After an abort: runs the notes, which restores the state before the transaction."""
        while self._steps:
            step, arguments = self._steps.pop()
            step(*arguments)
