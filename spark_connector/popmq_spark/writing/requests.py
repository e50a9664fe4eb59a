"""Cuts the rows of a task into requests: one topic each, in order within the topic, within bounds of rows and bytes.

    Arrow batch ──▶ pieces ──▶ encoded, by topic ──▶ waiting, by topic ──▶ requests

Rows of several topics are gathered side by side: a request of one row for each change of topic would be slow.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from popmq import EncodedMessages
from popmq_spark.rows import ROW_BYTES, Row, encoded, rows

#: Bytes of the rows of one request; the broker takes 16 MiB.
REQUEST_BYTES_MAX = 8 << 20
#: Bytes of the rows that a task holds for all its topics; beyond, those of the largest ones are sent.
WAITING_BYTES_MAX = 32 << 20
#: Rows that are encoded together: one that is not plain slows down these only.
PIECE_ROWS = 1000


@dataclass
class Request:
    """Rows of one topic. `bad`: those that cannot be messages. `size`: bytes of all, not too few."""

    topic: str
    parts: list[EncodedMessages] = field(default_factory=list)
    bad: list[Row] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def messages(self) -> EncodedMessages:
        """All rows that are messages, in order."""
        return EncodedMessages.joined(self.parts)


def requests(batches: Iterator[pa.RecordBatch], topic: str, rows_max: int) -> Iterator[Request]:
    """The rows of a task; `topic`: of those that name none."""
    waiting = _Waiting(rows_max)
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS):
            piece = batch.slice(start, PIECE_ROWS)
            for name, messages, bad in _encoded(piece, topic) or _row_by_row(piece, topic):
                yield from waiting.add_bad(name, bad)
                yield from waiting.add(name, messages)
                yield from waiting.trim()
    yield from waiting.rest()


def _encoded(piece: pa.RecordBatch, topic: str) -> list[tuple[str, EncodedMessages, list[Row]]]:
    """(topic, messages, no bad rows) of a piece that has plain rows only; else nothing."""
    found = encoded(piece, topic)
    if found is None:
        return []
    topics, messages = found
    if len({*topics}) == 1:
        return [(topics[0], messages, [])]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(topics):
        places.setdefault(name, []).append(place)
    return [(name, messages.take(its), []) for name, its in places.items()]


def _row_by_row(piece: pa.RecordBatch, topic: str) -> Iterator[tuple[str, EncodedMessages, list[Row]]]:
    """(topic, messages, bad rows) of a piece of any rows."""
    by_topic: dict[str, list[Row]] = {}
    for row in rows(piece, topic):
        by_topic.setdefault(row.topic, []).append(row)
    for name, found in by_topic.items():
        messages = EncodedMessages.of(row.message for row in found if row.message is not None)
        yield name, messages, [row for row in found if row.message is None]


class _Waiting:
    """The rows that wait for others of their topic."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._requests: dict[str, Request] = {}
        self._held = 0

    def add(self, topic: str, messages: EncodedMessages) -> Iterator[Request]:
        """Adds messages of a topic; yields the requests that become full."""
        ends = [0, *accumulate(size + ROW_BYTES for size in messages.sizes())]
        start = 0
        while start < len(messages):
            request = self._requests.setdefault(topic, Request(topic))
            fitting = bisect_right(ends, ends[start] + REQUEST_BYTES_MAX - request.size) - 1
            end = min(fitting, start + self._rows_max - request.rows)
            end = max(end, start if request.rows else start + 1)  # a row above the bound is a request of its own
            request.parts.append(messages[start:end])
            self._count(request, end - start, ends[end] - ends[start])
            if end < len(messages) or request.rows == self._rows_max:
                yield self._close(topic)
            start = end

    def add_bad(self, topic: str, bad: list[Row]) -> Iterator[Request]:
        """Adds rows that cannot be messages; they count as the others do."""
        for row in bad:
            request = self._requests.setdefault(topic, Request(topic))
            request.bad.append(row)
            self._count(request, 1, ROW_BYTES + len(row.body or b""))
            if request.rows == self._rows_max or request.size >= REQUEST_BYTES_MAX:
                yield self._close(topic)

    def trim(self) -> Iterator[Request]:
        """The requests of the largest topics, while all rows together are too large.

        Half of them at once, so that few rows cause a sort.
        """
        if self._held > WAITING_BYTES_MAX:
            for request in sorted(self._requests.values(), key=lambda request: -request.size):
                if self._held <= WAITING_BYTES_MAX // 2:
                    break
                yield self._close(request.topic)

    def rest(self) -> Iterator[Request]:
        """All requests that are left."""
        yield from self._requests.values()

    def _count(self, request: Request, rows: int, size: int) -> None:
        request.rows += rows
        request.size += size
        self._held += size

    def _close(self, topic: str) -> Request:
        request = self._requests.pop(topic)
        self._held -= request.size
        return request
