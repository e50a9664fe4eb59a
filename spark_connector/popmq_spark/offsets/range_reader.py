"""The batch reader: `spark.read.format("popmq")` reads ranges of offsets, and leases nothing.

Spark makes a plan for every action: the ends are asked for again, so that two actions on one DataFrame may see
different messages unless `endingOffsets` says where to end. With the option `pushFilters`, conditions of the query
narrow what the broker sends:

    tag = 'a', tag IN ('a', 'b')          a tag filter
    queue_id = 3, queue_id IN (1, 2)      only these queues
    queue_offset >= 7, < 9, = 8, …        only these offsets
    store_ts >= …, < …, = …               from the first message stored then, up to the first one stored after
    key = 'k'                             other keys are dropped before rows are made

Spark checks every condition again, so that none of them has to be exact.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

import popmq
from popmq_spark.clients import connect
from popmq_spark.offsets.offsets_options import OffsetsOptions
from popmq_spark.offsets.range_part import RangePart, read_ranges
from popmq_spark.positions import LATEST, clamped
from popmq_spark.queue_ends import Ends, check_readable, created_of, ends_of, place_in, topics_of
from popmq_spark.ranges import Positions, Ranges, Span, parts_of

_OFFSET_MAX = (1 << 63) - 1
#: Of the contract: what a tag filter may have.
TAGS_MAX, FILTER_BYTES_MAX = 256, 16 << 10
_TAG = re.compile(r"[^\s|\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Wanted:
    """The rows that the conditions of a query select: `None` = any. Offsets and times are `[from, to)`."""

    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    offsets: tuple[int, int] = (0, _OFFSET_MAX)
    since: datetime | None = None
    until: datetime | None = None

    def and_(self, condition: Filter) -> "Wanted":
        """Narrowed by one condition, if it is one of those that the broker, or the task, can apply."""
        name = ".".join(getattr(condition, "attribute", ()))
        if isinstance(condition, EqualTo):
            return self._one_of(name, {condition.value})
        if isinstance(condition, In):
            return self._one_of(name, {value for value in condition.value if value is not None})
        if isinstance(condition, GreaterThan | GreaterThanOrEqual):
            return self._from(name, condition.value, isinstance(condition, GreaterThan))
        if isinstance(condition, LessThan | LessThanOrEqual):
            return self._to(name, condition.value, isinstance(condition, LessThanOrEqual))
        return self

    def _one_of(self, name: str, values: set[Any]) -> "Wanted":
        """Several conditions on one column hold together: selects the values that all of them allow."""
        if name == "tag":
            return replace(self, tags=_both(self.tags, values))
        if name == "key":
            return replace(self, keys=_both(self.keys, values))
        if name == "queue_id":
            return replace(self, queues=_both(self.queues, values))
        if not values:
            return self
        return self._from(name, min(values), False)._to(name, max(values), True)

    def _from(self, name: str, value: Any, beyond: bool) -> "Wanted":
        """From a value on, or from `beyond` it. For a time both are the same, as one millisecond may hold many."""
        if name == "queue_offset":
            return replace(self, offsets=(max(self.offsets[0], value + beyond), self.offsets[1]))
        if name == "store_ts":
            moment = clamped(value)
            return replace(self, since=moment if self.since is None else max(self.since, moment))
        return self

    def _to(self, name: str, value: Any, included: bool) -> "Wanted":
        """Up to a value, `included` or not."""
        if name == "queue_offset":
            return replace(self, offsets=(self.offsets[0], min(self.offsets[1], value + included)))
        if name == "store_ts":
            # The broker stores milliseconds: the next one is after every message of this one.
            moment = clamped(value) + timedelta(milliseconds=1)
            return replace(self, until=moment if self.until is None else min(self.until, moment))
        return self


def _both(known: frozenset[Any] | None, values: set[Any]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & values


class RangeReader(DataSourceReader):
    """One read. Spark makes one in the planner, calls `partitions()` there, and pickles it for `read`."""

    def __init__(self, options: OffsetsOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted()

    def partitions(self) -> list[RangePart]:
        """Tasks for the messages that exist now. Errors: TopicNotFound, OptionError, Unavailable; as `check_readable`.

        At least one: for an empty list Spark makes a partition of its own, which says nothing.
        """
        options, wanted = self._options, self._wanted
        with connect(options.broker, options.broker_unavailable_timeout) as client:
            ends = ends_of(client, topics_of(client, options.wanted))
            check_readable(client, ends, options.tag, options.sql)
            spans, created = tuple(self._spans(client, ends)), created_of(ends)
        rows = sum(span.end - span.start for span in spans)
        parts = parts_of(rows, options.min_partitions, options.max_records_per_partition, options.max_partitions)
        tag = options.tag
        if wanted.tags is not None and tag is None and options.sql is None:
            tag = _filter_of(wanted.tags)
        shares = [*Ranges(spans, parts).shares()] or [()]
        return [self._part(share, tag, created) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in an executor."""
        assert isinstance(partition, RangePart)
        return read_ranges(partition)

    def _part(self, spans: tuple[Span, ...], tag: str | None, created: Mapping[str, int]) -> RangePart:
        options = self._options
        return RangePart(
            broker=options.broker,
            spans=spans,
            tag=tag,
            sql=options.sql,
            patience=options.broker_unavailable_timeout,
            fail_on_data_loss=options.fail_on_data_loss,
            schema=self._schema,
            keys=self._wanted.keys,
            decode=options.decode,
            created=created,
        )

    def _spans(self, client: popmq.Client, ends: Ends) -> Iterator[Span]:
        """The range of each queue that the options and the conditions leave."""
        options, wanted = self._options, self._wanted
        starts = [place_in(client, options.starting_offsets, ends)]
        stops = [place_in(client, options.ending_offsets, ends, LATEST)]
        if wanted.since is not None:
            starts.append(place_in(client, wanted.since, ends))
        if wanted.until is not None:
            stops.append(place_in(client, wanted.until, ends))
        for topic, queues in ends.items():
            for queue in sorted(queues):
                start = max(wanted.offsets[0], *(_at(place, topic, queue) for place in starts))
                end = min(wanted.offsets[1], *(_at(place, topic, queue) for place in stops))
                if start < end and (wanted.queues is None or queue in wanted.queues):
                    yield Span(topic, queue, start, end)


def _at(place: Positions, topic: str, queue: int) -> int:
    return place[topic][queue]


def _filter_of(tags: Collection[str]) -> str | None:
    """The filter of these tags; None if the broker would refuse or misread it: it has no quotes, and is bounded."""
    text = " || ".join(sorted(tags))
    plain = all(_TAG.fullmatch(tag) and tag != "*" for tag in tags)
    return text if plain and 0 < len(tags) <= TAGS_MAX and len(text.encode()) <= FILTER_BYTES_MAX else None


class PushingRangeReader(RangeReader):
    """A class of its own: Spark refuses a reader that has `pushFilters` unless a setting of the session allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows what is read. Returns all filters: Spark checks them again."""
        for condition in filters:
            self._wanted = self._wanted.and_(condition)
        return filters


def reader_of(options: OffsetsOptions, schema: pa.Schema) -> RangeReader:
    """The reader for these options."""
    return (PushingRangeReader if options.push_filters else RangeReader)(options, schema)
