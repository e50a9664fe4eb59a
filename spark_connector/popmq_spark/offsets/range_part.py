"""Reads one task's ranges: pulls them by offset, without a group, and gives them to Spark as Arrow batches.

Runs in an executor, perhaps several times and beside itself: the offsets are in the `RangePart`, so every run gets the
same rows as long as retention keeps them. The broker stores nothing about it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import popmq
from popmq.pull import PulledColumns
from popmq_spark.clients import client_of
from popmq_spark.columns import fields_of, to_batches
from popmq_spark.options import BrokerOptions
from popmq_spark.queue_ends import lose
from popmq_spark.ranges import Span

#: Rows and bytes of one Pull: larger answers cost memory and gain nothing. The broker counts bodies that it does not
#: send, since it reads them: without bodies an answer may therefore cover more bytes.
PULL_ROWS, PULL_BYTES, PULL_BYTES_WITHOUT_BODY = 4_000, 4 << 20, 8 << 20

#: Pulls that a task has under way at a time, where no filter makes their ends unknown.
AHEAD = 4
#: The queue is shorter than the range: its topic is another one of its name, or the broker has lost its end.
_SHORTER = ("OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY", "NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE")


@dataclass(frozen=True)
class RangePart(InputPartition):
    """The data that `read` needs. Spark pickles it into the task."""

    broker: BrokerOptions
    spans: tuple[Span, ...]  # read one after the other
    tag: str | None  # of the plan, not of the options: a batch is read again through its own filter
    sql: str | None
    patience: float  # seconds for which a request is repeated
    fail_on_data_loss: bool
    schema: pa.Schema
    keys: frozenset[str] | None = None  # drops other keys before rows are made
    decode: bool = True
    created: Mapping[str, int] = field(default_factory=dict)  # of the plan: topic → ms since 1970


def read_ranges(part: RangePart) -> Iterator[pa.RecordBatch]:
    """The rows of the spans, one batch for each Pull that found any; the next ones run while Spark takes its rows.

    Errors: DataLoss; of popmq.errors InvalidFilter, and Unavailable after brokerUnavailableTimeout.
    """
    threads = ThreadPoolExecutor(AHEAD, "popmq-ahead")
    try:
        for piece, page in _Pages(part, lambda piece: threads.submit(_pull, part, piece)):
            if len(page.columns):
                yield from to_batches(page.columns, piece.topic, None, part.schema, part.keys, part.decode)
    finally:
        threads.shutdown(cancel_futures=True)


class _Pages:
    """The answers for the spans, in order, each with the piece that it is of. No span is empty.

    Offsets are dense, so a span is cut into pieces, and AHEAD of them are asked for at a time. An answer that ends
    before its piece, by its bytes or by a bound of the broker, makes the next pieces as short as it was. Behind a
    filter an answer may end anywhere: then a piece is all that is left, and asked for when the one before has arrived.
    """

    def __init__(self, part: RangePart, ask: Callable[[Span], Future[PulledColumns]]) -> None:
        self._part = part
        self._ask = ask
        self._left = deque(part.spans)
        self._asked = deque[tuple[Span, Future[PulledColumns]]]()
        self._filtered = part.tag is not None or part.sql is not None
        self._rows = PULL_ROWS  # of a piece

    def __iter__(self) -> Iterator[tuple[Span, PulledColumns]]:
        self._ask_ahead()
        while self._asked:
            piece, coming = self._asked.popleft()
            page = _arrived(self._part, piece, coming)
            at = _checked(self._part, piece, page) if page is not None else None
            if at is None:
                self._drop(piece)
            elif at < piece.end:
                rest = piece._replace(start=at)
                self._asked.appendleft((rest, self._ask(rest)))
                self._rows = max(1, at - piece.start)
            else:
                self._rows = min(PULL_ROWS, self._rows * 2)
            self._ask_ahead()
            if page is not None:
                yield piece, page

    def _ask_ahead(self) -> None:
        while self._left and len(self._asked) < (1 if self._filtered else AHEAD):
            span = self._left.popleft()
            piece = span if self._filtered else span._replace(end=min(span.end, span.start + self._rows))
            if piece.end < span.end:
                self._left.appendleft(span._replace(start=piece.end))
            self._asked.append((piece, self._ask(piece)))

    def _drop(self, gone: Span) -> None:
        """Asks for nothing more of a queue, whose loss is told already."""
        self._left = deque(each for each in self._left if each[:2] != gone[:2])
        self._asked = deque(each for each in self._asked if each[0][:2] != gone[:2])


def _arrived(part: RangePart, piece: Span, coming: Future[PulledColumns]) -> PulledColumns | None:
    """The answer; None if the topic no longer exists, which `lose` raises as an error or lets pass."""
    try:
        return coming.result()
    except popmq.errors.TopicNotFound:
        gone = f"the topic {piece.topic!r} was deleted, or created again, before {piece} was read"
        lose(part.fail_on_data_loss, gone)
        return None


def _pull(part: RangePart, piece: Span) -> PulledColumns:
    """One request, repeated by the client while the broker does not answer. Only requested columns are sent."""
    columns = fields_of(part.schema, part.decode, part.keys is not None)
    return client_of(part.broker, part.patience).pull_columns(
        piece.topic,
        piece.queue,
        piece.start,
        piece.end,
        PULL_ROWS,
        max_bytes=PULL_BYTES if "body" in columns else PULL_BYTES_WITHOUT_BODY,
        tag=part.tag,
        sql=part.sql,
        columns=columns,
        topic_created_ms=part.created.get(piece.topic, 0),
    )


def _checked(part: RangePart, piece: Span, page: PulledColumns) -> int | None:
    """Where to go on; every message of the piece up to there was read, was filtered out, or is complained of as lost.

    None: its queue has nothing more.
    """
    if page.status in _SHORTER:
        lose(
            part.fail_on_data_loss,
            f"queue {piece.queue} of topic {piece.topic!r} ends at offset {page.max_offset}, but offsets {piece.start} "
            f"to {piece.end - 1} are to be read: the topic was deleted and created again, or the broker has lost "
            "messages, as in a failover to a replica that did not have them",
        )
        return None
    end = min(page.next_offset, piece.end)
    missing = _missing(part, piece, page, end - piece.start)
    if missing:
        lose(
            part.fail_on_data_loss,
            f"{missing} messages of queue {piece.queue} of topic {piece.topic!r} between offsets {piece.start} and "
            f"{end - 1} are gone: retention or a purge dropped them, or they are damaged. Keep messages longer, or "
            "name a group: retention keeps what it has not committed",
        )
    return end


def _missing(part: RangePart, piece: Span, page: PulledColumns, examined: int) -> int:
    """How many of the examined messages no longer exist.

    Below the first offset all do not. A filter hides how many are missing elsewhere; numbers of a retry topic have
    gaps, and so has a dead-letter topic after a redrive. Messages whose ttl is over are not lost.
    """
    if page.status == "OFFSET_TOO_SMALL":
        return examined
    if part.tag is not None or part.sql is not None or piece.topic.startswith("%"):
        return 0
    return examined - len(page.columns) - page.passed_over
