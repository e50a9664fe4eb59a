"""Walks in pieces, for jobs: over the rows of a table, and over all topics."""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U32
from popmq_server.embedded.store.row_formats import RowReader
from popmq_server.errors import UnreadableRow
from popmq_server.values.records import Topic

log = logging.getLogger("popmq.store")

T = TypeVar("T")
#: Rows that are reported, each once; a store with more of them is reported enough.
_TOLD_MAX = 100


class RowWalk(Generic[T]):
    """A walk that steps over rows which cannot be read, so that one does not stop it forever.

    `place`: the key at which the next piece begins; empty for the first row.
    """

    def __init__(self, table: str, rows_max: int, read: Callable[[memoryview], T]) -> None:
        """`rows_max`: of one piece. `read`: reads a value; it may raise RowReader.ERRORS."""
        self.place = b""
        self._table = table
        self._rows_max = rows_max
        self._read = read
        self._told: set[bytes] = set()

    def piece(self, tx: Tx) -> list[tuple[bytes, T]]:
        """The next rows, without those that cannot be read; after the last one the walk begins again."""
        rows: list[tuple[bytes, T]] = []
        tx.state.undo.save(self, "place")
        at, left = self.place, self._rows_max
        while left:
            try:
                for key, raw in tx.kv.scan(self._table, b"", at):
                    if not left:
                        break
                    at, left = key + b"\0", left - 1
                    rows.append((key, self._read(raw)))
            except UnreadableRow as error:
                self._tell(error)
                at, left = error.key + b"\0", left - 1
            except RowReader.ERRORS as error:
                self._tell(UnreadableRow(self._table, at[:-1], str(error)))
            else:
                at = b"" if left else at
                break
        self.place = at
        return rows

    def _tell(self, error: UnreadableRow) -> None:
        if error.key not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(error.key)
            log.error("%s; until then it is left out", error)


#: Topics of one piece: some milliseconds.
LOOKS_MAX = 500


class TopicRound:
    """A walk over all topics but lite topics, by name; it remembers in `place` where the next piece begins.

    A list of all topics would take a command 20 ms with 10,000 of them. A round begins again after a restart.
    """

    def __init__(self) -> None:
        self.place = b"t"

    def piece(self, tx: Tx) -> list[Topic]:
        """The next topics; `more` says whether others follow. A topic that is created meanwhile may be missed."""
        tx.state.undo.save(self, "place")
        found, at, self.place = list[Topic](), self.place, b"t"
        for seen, (key, value) in enumerate(tx.kv.scan("name", b"t", at)):
            if seen == LOOKS_MAX:
                self.place = key
                break
            if (topic := tx.state.topics.get(U32.unpack(value)[0])) is not None:
                found.append(topic)
        return found

    @property
    def more(self) -> bool:
        """Whether the round is not complete."""
        return self.place != b"t"

    def back_to(self, topic: Topic) -> None:
        """Makes the next piece begin at a topic of this one."""
        self.place = b"t" + topic.name.encode()
