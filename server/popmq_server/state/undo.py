"""What an abort takes back in memory that is not a table: ordered lines, watches, turns.

Tables (storage/table.py) keep an uncommitted layer. A structure whose order matters has none: it changes at once and
notes here how to undo each change.

    judge("bob")   line: ann, bob     note(take bob out)
    commit         keep(): the notes go           abort    take_back(): the notes run, the last one first

A group of commands may run several times before it is committed: the same changes are made and undone each time.
"""

from collections.abc import Callable
from typing import Any


class Undo:
    """The notes of one transaction. For the writer thread."""

    __slots__ = ("_steps", "changes")

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        #: Grows with every note: whoever compares it before and after knows whether anything was changed.
        self.changes = 0

    def note(self, step: Callable[..., Any], *arguments: Any) -> None:
        """`step(*arguments)` undoes what was just changed."""
        self.changes += 1
        self._steps.append((step, arguments))

    def keep(self) -> None:
        """What was changed is true."""
        self._steps.clear()

    def take_back(self) -> None:
        """What was changed is not true: everything is as it was before the transaction."""
        while self._steps:
            step, arguments = self._steps.pop()
            step(*arguments)
