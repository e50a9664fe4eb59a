"""Broken invariants of the running transactions: who met one, the log line, and the count for the metrics.

    a command meets one           it gets INTERNAL, the batch runs again without it      logged here
    a job, or an item of it       it is postponed                                        logged by timetable.report
    the end of a transaction      the batch runs in parts, until one command is alone    logged here
    a start                       it is refused: fsck/at_start.py

See docs/decisions/0068-invariants.md.
"""

import logging

from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.state.jobs import JobFailed
from popmq_server.embedded.writer.batch import Batch, TimesWork, TooManyPoisoned, nothing
from popmq_server.errors import Refused

log = logging.getLogger("popmq.invariants")


class Breaches:
    """The broken invariants since the last committed transaction. Used by the thread that runs it."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def note(self, broken: BrokenInvariant, what: str) -> Refused:
        """Counts and logs one; returns what its caller gets."""
        self._names.append(broken.invariant.name)
        log.critical("%s met this, and changed nothing: %s", what, broken, exc_info=broken)
        return broken.refusal()

    def note_job(self, failure: JobFailed) -> None:
        """Counts one that a job met, which the timetable logs."""
        if isinstance(failure.__cause__, BrokenInvariant):
            self._names.append(failure.__cause__.invariant.name)

    def note_end(self, broken: BrokenInvariant, batch: Batch, order: list[int], time: TimesWork) -> None:
        """After one that is of no single command, such as in the write of all messages of a topic: answers the command
        if it is alone. Raises TooManyPoisoned if it is not: the batch then runs in parts.
        """
        if time is not nothing or len(order) != 1:
            raise TooManyPoisoned from broken
        index = order.pop()
        batch.results[index] = self.note(broken, f"a {type(batch.commands[index]).__name__} command")

    def take(self) -> list[str]:
        """The names of those since the last call."""
        names, self._names = self._names, []
        return names
