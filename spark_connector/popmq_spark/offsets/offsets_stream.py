"""The streaming reader of `mode=offsets`: plans ranges of offsets in the driver, and lets tasks pull them.

Spark's own log holds the ranges, and from the first one on nothing else decides what is read. So nothing has to be
acked, no lease expires, and two drivers on one checkpoint do no more harm than with any other source. A group's
offsets are committed after Spark's log: operators see the lag, retention waits, and a new query of the group begins
there. In the order of Spark's calls (stream.py):

    latestOffset(start)      `start` is in Spark's commit log: a group's offsets are committed here
      → offsets/N            the ranges are durable
    partitions(start, end)   → read() × parts, as often as Spark likes: the same offsets
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

import popmq
from popmq_spark.offsets.offsets_options import OffsetsOptions
from popmq_spark.offsets.range_part import RangePart, read_ranges
from popmq_spark.options import OptionError
from popmq_spark.positions import LATEST, Place
from popmq_spark.queue_ends import (
    Ends,
    check_readable,
    created_of,
    ends_of,
    is_wanted,
    lose,
    mean_size,
    place_in,
    topics_of,
)
from popmq_spark.ranges import Positions, Ranges, Span, admitted, parts_of
from popmq_spark.triggered import TriggeredReader

_log = logging.getLogger("popmq_spark")

#: How long the size of a topic's messages is used that was estimated by a look at some of them.
LOOKED_AT_SECONDS = 60.0
#: By so much a stream's start may be ahead of this machine's clock: the broker has a clock of its own.
AHEAD = timedelta(minutes=1)
#: Topic and queue → messages.
Backlog = dict[tuple[str, int], int]


class OffsetsStreamReader(TriggeredReader[OffsetsOptions]):
    """One query's reader."""

    def __init__(self, options: OffsetsOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._bound: Positions | None = None  # of a run with availableNow
        self._joined: set[str] = set()  # topics that the group is known to pull
        self._committed: Positions = {}  # by this process
        self._told: set[str] = set()  # losses that are logged already
        self._is_back = False  # the last look found a queue that ends before the query's position
        self._last: Positions = {}  # the ends of the queues when this process last saw them
        self._looked_at: dict[str, tuple[float, float]] = {}  # topic → mean size of a message, until when it is used
        self._readable: set[str] = set()  # topics from which a pull with the filter is not refused

    def initialOffset(self) -> dict[str, Any]:
        """Says only that nothing was read: the first range decides where the query begins, and makes it durable."""
        return Ranges(begun=False).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Takes the ends that this run reads up to."""
        ends = self._ends(self._topics())
        self._bound = {topic: {queue: row.max_offset for queue, row in rows.items()} for topic, rows in ends.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Commits `start`, then plans the next ranges, or returns `start` itself when nothing is due.

        A new query that does not begin at the first message plans at once, even nothing: its beginning is then durable.
        So is the new position in a queue that became shorter, before others get the offsets that it has lost.
        Errors: TopicNotFound, DataLoss; OptionError for a group that pops; those of `check_readable`;
        Unavailable after brokerUnavailableTimeout.
        """
        before = Ranges.from_json(start)
        self._expect_same_topics(before.positions)
        self._commit(before)
        deadline = self.clock() + self._options.long_poll_timeout
        topics = self._topics()  # once for all looks: a pattern takes the list of all topics
        while True:
            ends = self._ends(topics, before.begun)
            new = {topic: rows for topic, rows in ends.items() if topic not in self._readable}
            check_readable(self._connected(), new, self._options.tag, self._options.sql)
            self._readable.update(new)
            positions = self._positions(before, ends)
            backlog = self._backlog(positions, ends, before.begun)
            if self._is_due(sum(backlog.values()), limit, self._bound is not None):
                rows = self._rows(backlog, ends, limit)
                return self._plan(positions, admitted(backlog, rows), created_of(ends)).to_json()
            if self._is_back or (not before.begun and self._options.starting_offsets != "earliest"):
                return self._plan(positions, {}, created_of(ends)).to_json()
            if self._bound is not None or not self._looks_again(len(ends), deadline):
                return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePart]:
        """One task for each share of the ranges in `end`; the current options do not matter."""
        plan = Ranges.from_json(end)
        options = self._options
        return [
            RangePart(
                broker=options.broker,
                spans=spans,
                tag=plan.tag,
                sql=plan.sql,
                patience=options.broker_unavailable_timeout,
                fail_on_data_loss=options.fail_on_data_loss,
                schema=self._schema,
                decode=options.decode,
                created=plan.created,
            )
            for spans in plan.shares()
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in an executor, perhaps several times and concurrently: each run returns the same rows."""
        assert isinstance(partition, RangePart)
        return read_ranges(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the offsets of the group, if latestOffset has not done so already."""
        self._commit(Ranges.from_json(end))

    def _topics(self) -> list[str]:
        return topics_of(self._connected(), self._options.wanted)

    def _ends(self, topics: Iterable[str], begun: bool = True) -> Ends:
        """The ends of the topics. Without failOnDataLoss, named ones may be gone once the query has begun.

        Those of a pattern may be gone since it was looked up: what that means is `_positions`' to say.
        """
        client, found, wanted = self._connected(), Ends(), self._options.wanted
        for topic in topics:
            try:
                found |= ends_of(client, [topic])
            except popmq.errors.TopicNotFound:
                if wanted.pattern is None and (self._options.fail_on_data_loss or not begun):
                    raise
        return found

    # ── The query's position ───────────────────────────────────────────────────────────────────────────────────

    def _positions(self, before: Ranges, ends: Ends) -> Positions:
        """The start of the next ranges. Queues and topics that appeared meanwhile begin at their first message."""
        self._is_back = False
        if not before.begun:
            return self._beginning(ends)
        self._join(ends, "earliest")
        positions = before.positions
        wanted = self._options.wanted
        for topic in sorted({*positions, *wanted.names} - set(ends)):
            if self._is_wanted(topic) and (positions.get(topic) != self._last.get(topic) or topic in wanted.names):
                self._lose(f"the topic {topic!r} is gone, perhaps with messages that the query had not read")
        created = created_of(ends)
        found = {
            topic: self._of_another(topic, rows)
            if before.created.get(topic, created[topic]) != created[topic]
            else self._still_there(topic, rows, positions.get(topic, {}), known=topic in before.created)
            for topic, rows in ends.items()
        }
        self._last |= {topic: {queue: row.max_offset for queue, row in rows.items()} for topic, rows in ends.items()}
        return found

    def _is_wanted(self, topic: str) -> bool:
        return is_wanted(topic, self._options.wanted)

    def _lose(self, text: str) -> None:
        """Raises DataLoss, or logs it once: until there is something to plan, each trigger finds the same."""
        if self._options.fail_on_data_loss or text not in self._told:
            self._told.add(text)
            lose(self._options.fail_on_data_loss, text)

    def _beginning(self, ends: Ends) -> Positions:
        """The start of a new query: its group's position in a topic, else startingOffsets.

        The group has none before the first message: startingOffsets may, so that what is gone is told as lost.
        """
        client, options = self._connected(), self._options
        if isinstance(options.starting_offsets, datetime) and options.starting_offsets > datetime.now(UTC) + AHEAD:
            raise OptionError(
                f"popmq: startingOffsets = {options.starting_offsets.isoformat()!r} is in the future, and a stream "
                "would read what is sent until then: give a time that is over, or latest"
            )
        positions = place_in(client, options.starting_offsets, ends)
        new = self._join(ends, options.starting_offsets, positions)
        if options.group:
            for topic, rows in ends_of(client, ends.keys() - new, options.group).items():
                positions[topic] = {queue: row.committed for queue, row in rows.items()}
        return positions

    def _of_another(self, topic: str, rows: Mapping[int, popmq.QueueOffsets]) -> dict[int, int]:
        """The positions in a topic that was deleted and created again: its first message."""
        created_ms = next(iter(rows.values())).topic_created_ms
        when = datetime.fromtimestamp(created_ms / 1000, UTC).isoformat(timespec="milliseconds")
        self._lose(
            f"the topic {topic!r} was deleted and created again ({when}), and what the query had "
            "not read of the earlier one is gone; the new one is read from its first message"
        )
        return {queue: row.min_offset for queue, row in rows.items()}

    def _still_there(
        self, topic: str, rows: Mapping[int, popmq.QueueOffsets], at: Mapping[int, int], known: bool
    ) -> dict[int, int]:
        """The positions in one topic; the first message where those there are gone.

        A queue that ends before the read position has lost messages, as after a failover to a broker that did not have
        them: the query goes on at its end. `known`: that the topic is the one which the offsets are of. Those of
        previews do not say it: then it is more likely another one of the same name.
        """
        positions = {queue: at.get(queue, 0) for queue in rows}
        if shorter := [queue for queue, offset in positions.items() if offset > rows[queue].max_offset]:
            if not known:
                return self._of_another(topic, rows)
            self._is_back = True
            for queue in shorter:
                positions[queue] = self._cut_off(topic, queue, rows[queue].max_offset, positions[queue])
        for queue, offset in positions.items():
            first = rows[queue].min_offset
            if queue in at and offset < first:
                self._lose(
                    f"messages {offset} to {first - 1} of queue {queue} of topic {topic!r} were dropped before the "
                    "query read them. Keep messages longer, or name a group: retention keeps what it has not committed"
                )
        return {queue: max(offset, rows[queue].min_offset) for queue, offset in positions.items()}

    def _cut_off(self, topic: str, queue: int, end: int, offset: int) -> int:
        """The position in a queue that was longer before: its end, where the next message will be."""
        self._lose(
            f"queue {queue} of topic {topic!r} ends at offset {end}, but the query has read up to {offset}: the broker "
            "has lost messages, as in a failover to a replica that did not have them. Others get their offsets: the "
            f"query would go on with those from {end} on"
        )
        return end

    # ── The group: for lag, retention and the start of a new query ───────────────────────────────────────────────────

    def _join(self, ends: Ends, start: Place, positions: Positions | None = None) -> set[str]:
        """Makes the group one that pulls the topics; one that is new to a topic begins at `start`, or at `positions`.

        Returns the topics to which it was new. Raises OptionError for a group that pops a topic: its consumers would
        lose their messages to this query.
        """
        client, group, new = self._connected(), self._options.group, set[str]()
        for topic in sorted(set(ends) - self._joined) if group else ():
            committed = self._group_offsets(topic)
            if min(committed.values()) < 0:
                by_name = start if isinstance(start, str | datetime) else None
                client.groups.set_consume_mode(topic, group, "PULL", start=by_name or "earliest")
                committed = positions[topic] if positions and by_name is None else {}
                new.add(topic)
            self._expect_pulling(topic, committed)
            self._joined.add(topic)
        return new

    def _group_offsets(self, topic: str) -> dict[int, int]:
        """The group's committed offsets. A missing group is created, for which an access key needs `admin`."""
        client, group = self._connected(), self._options.group
        try:
            rows = client.offsets.query(topic, group)
        except popmq.errors.GroupNotFound:
            client.groups.create(group)
            rows = client.offsets.query(topic, group)
        return {row.queue: row.committed for row in rows}

    def _expect_pulling(self, topic: str, committed: dict[int, int]) -> None:
        """Commits the group's own position. That changes nothing, but is refused if the group pops the topic."""
        group = self._options.group
        try:
            for queue, offset in committed.items():
                self._connected().offsets.update(topic, group, {queue: offset})
        except popmq.errors.WrongConsumeMode as error:
            raise OptionError(
                f"popmq: the group {group} pops the topic {topic}; with mode=offsets take a group of its own, or none"
            ) from error

    def _commit(self, plan: Ranges) -> None:
        """Commits the offsets that Spark has committed. Never raises: the reads do not depend on it."""
        positions = plan.positions
        if not self._options.group or positions == self._committed:
            return
        refused = set()
        for topic, offsets in positions.items():
            moved = {q: at for q, at in offsets.items() if self._committed.get(topic, {}).get(q) != at}
            try:
                for some in batched(sorted(moved.items())):
                    created = plan.created.get(topic, 0)
                    self._connected().offsets.update(topic, self._options.group, dict(some), topic_created_ms=created)
            except popmq.errors.TopicNotFound:
                self._join_again(topic)
            except popmq.PopMQError as error:
                _log.warning("the offsets of group %s in %s are not committed: %s", self._options.group, topic, error)
                if not isinstance(error, popmq.errors.WrongConsumeMode):
                    return
                refused.add(topic)
                self._join_again(topic)
        self._committed = {topic: offsets for topic, offsets in positions.items() if topic not in refused}

    def _join_again(self, topic: str) -> None:
        """Lets the next trigger join the topic if the group is new to it: it was deleted and created again."""
        try:
            if min(self._group_offsets(topic).values()) < 0:
                self._joined.discard(topic)
        except popmq.PopMQError as error:
            _log.info("the offsets of group %s in %s are not known: %s", self._options.group, topic, error)

    # ── The next micro-batch ──────────────────────────────────────────────────────────────────────────

    def _backlog(self, positions: Positions, ends: Ends, begun: bool) -> Backlog:
        """Messages of each queue that may be planned: below endingOffsets, in a bounded run also below its bound.

        A time is looked up at each trigger, after the ends: messages that are stored before it may still come.
        """
        place = self._options.ending_offsets
        if begun and not isinstance(place, str | datetime):
            # Of topics that are gone, `_positions` has told whether they are a loss.
            place = {topic: at for topic, at in place.items() if topic in ends or not self._is_wanted(topic)}
        stops = place_in(self._connected(), place, ends, LATEST)
        self._report(positions, stops)
        backlog = {}
        for topic, queues in stops.items():
            for queue, stop in queues.items():
                if self._bound is not None:
                    stop = min(stop, self._bound.get(topic, {}).get(queue, 0))
                backlog[topic, queue] = max(stop - positions[topic][queue], 0)
        return backlog

    def _report(self, positions: Positions, stops: Positions) -> None:
        """Remembers the backlog: Spark asks for it right after latestOffset, so another request is not needed."""
        topics = {
            topic: sum(max(stop - positions[topic][queue], 0) for queue, stop in queues.items())
            for topic, queues in stops.items()
        }
        self._progress = {"behind": sum(topics.values()), "topics": topics}

    def _rows(self, backlog: Backlog, ends: Ends, limit: ReadLimit) -> int:
        """How many rows the limits admit. Bytes are estimated by the mean size of a topic's stored messages."""
        rows = sum(backlog.values())
        if not isinstance(limit, ReadMaxRows):
            return rows
        sizes = {topic: self._mean_size(topic, ends, backlog) for topic in {topic for topic, _ in backlog}}
        size = sum(count * sizes[topic] for (topic, _), count in backlog.items())
        by_bytes = int(rows * self._options.max_bytes_per_trigger / size) if size else rows
        return max(1, min(rows, limit.max_rows, by_bytes))

    def _mean_size(self, topic: str, ends: Ends, backlog: Backlog) -> float:
        """Bytes of a message of a topic, an estimate. Where the engine gives none, some messages are looked at."""
        rows = ends[topic]
        if stored := sum(row.bytes_behind or 0 for row in rows.values()):
            return stored / max(1, sum(row.max_offset - row.min_offset for row in rows.values()))
        size, until = self._looked_at.get(topic, (0.0, 0.0))
        if self.clock() >= until:
            left = {queue: (row.max_offset - backlog[topic, queue], row.max_offset) for queue, row in rows.items()}
            size = mean_size(self._connected(), topic, left)
            self._looked_at[topic] = size, self.clock() + LOOKED_AT_SECONDS
        return size

    def _plan(self, positions: Positions, rows: Backlog, created: Mapping[str, int]) -> Ranges:
        """Every queue has a span, though it may be empty: the plan also says where the next one begins."""
        options = self._options
        spans = tuple(
            Span(topic, queue, at, at + rows.get((topic, queue), 0))
            for topic, offsets in positions.items()
            for queue, at in offsets.items()
        )
        total = sum(rows.values())
        parts = parts_of(total, options.min_partitions, options.max_records_per_partition, options.max_partitions)
        return Ranges(spans, parts, options.tag, options.sql, created=created)


def batched(offsets: list[tuple[int, int]], size: int = 1024) -> Iterator[list[tuple[int, int]]]:
    """Pieces that one request takes."""
    for first in range(0, len(offsets), size):
        yield offsets[first : first + size]
