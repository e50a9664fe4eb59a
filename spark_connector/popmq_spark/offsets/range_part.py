"""Reads one task's ranges: pulls them by offset, without a group, and gives them to Spark as Arrow batches.

Runs in an executor, perhaps several times and beside itself: the offsets are in the `RangePart`, so every run gets the
same rows as long as retention keeps them. The broker stores nothing about it.
"""

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

#: The queue is shorter than the range: its topic was deleted, and another one of its name was created.
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
    """The rows of the spans, one batch for each Pull that found any; the next one runs while Spark takes its rows.

    Errors: DataLoss; of popmq.errors InvalidFilter, and Unavailable after brokerUnavailableTimeout.
    """
    with ThreadPoolExecutor(1, "popmq-ahead") as ahead:
        for span, columns in _pages(part, lambda span, at: ahead.submit(_pull, part, span, at)):
            if len(columns):
                yield from to_batches(columns, span.topic, None, part.schema, part.keys, part.decode)


def _pages(part: RangePart, ask: Callable[[Span, int], Future[PulledColumns]]) -> Iterator[tuple[Span, popmq.Columns]]:
    """The answers for the spans, in order.

    Each is asked for when the one before has arrived: only its `next_offset` says where it begins, since a filter or a
    bound in bytes may end an answer anywhere. No span is empty.
    """
    if not part.spans:
        return
    coming = ask(part.spans[0], part.spans[0].start)
    for span, following in zip(part.spans, (*part.spans[1:], None), strict=True):
        at = span.start
        while at < span.end:
            page = _arrived(part, span, coming)
            at = _checked(part, span, at, page) if page is not None else span.end
            if at < span.end:
                coming = ask(span, at)
            elif following is not None:
                coming = ask(following, following.start)
            if page is not None:
                yield span, page.columns


def _arrived(part: RangePart, span: Span, coming: Future[PulledColumns]) -> PulledColumns | None:
    """The answer; None if the topic no longer exists, which `lose` raises as an error or lets pass."""
    try:
        return coming.result()
    except popmq.errors.TopicNotFound:
        gone = f"the topic {span.topic!r} was deleted, or created again, before {span} was read"
        lose(part.fail_on_data_loss, gone)
        return None


def _pull(part: RangePart, span: Span, at: int) -> PulledColumns:
    """One request, repeated by the client while the broker does not answer. Only requested columns are sent."""
    columns = fields_of(part.schema, part.decode, part.keys is not None)
    return client_of(part.broker, part.patience).pull_columns(
        span.topic,
        span.queue,
        at,
        span.end,
        PULL_ROWS,
        max_bytes=PULL_BYTES if "body" in columns else PULL_BYTES_WITHOUT_BODY,
        tag=part.tag,
        sql=part.sql,
        columns=columns,
        topic_created_ms=part.created.get(span.topic, 0),
    )


def _checked(part: RangePart, span: Span, at: int, page: PulledColumns) -> int:
    """Where to go on; every message from `at` up to there was read, was filtered out, or is complained of as lost."""
    if page.status in _SHORTER:
        lose(
            part.fail_on_data_loss,
            f"queue {span.queue} of topic {span.topic!r} ends at offset {page.max_offset}, but offsets {at} to "
            f"{span.end - 1} are to be read: the topic was deleted and created again",
        )
        return span.end
    end = min(page.next_offset, span.end)
    missing = _missing(part, span, page, end - at)
    if missing:
        lose(
            part.fail_on_data_loss,
            f"{missing} messages of queue {span.queue} of topic {span.topic!r} between offsets {at} and {end - 1} "
            "are gone: retention or a purge dropped them, or they are damaged. Keep messages longer, or name a group: "
            "retention keeps what it has not committed",
        )
    return end


def _missing(part: RangePart, span: Span, page: PulledColumns, examined: int) -> int:
    """How many of the examined messages no longer exist.

    Below the first offset all do not. A filter hides how many are missing elsewhere; numbers of a retry topic have
    gaps, and so has a dead-letter topic after a redrive.
    """
    if page.status == "OFFSET_TOO_SMALL":
        return examined
    if part.tag is not None or part.sql is not None or span.topic.startswith("%"):
        return 0
    return examined - len(page.columns)
