"""The first and last offsets of the queues of a query, and positions in them.

Without a group the request stores nothing about the query, and every key that may read the topic may call it.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime

import popmq
from popmq_spark.options import OptionError, Topics
from popmq_spark.positions import EARLIEST, LATEST, Place
from popmq_spark.ranges import Positions

_log = logging.getLogger("popmq_spark")

#: How the size of messages is estimated: in so many queues, by so many looks, each at so many messages and bytes.
SAMPLED_QUEUES, LOOKS, SAMPLE_ROWS, SAMPLE_BYTES = 4, 4, 16, 1 << 20
#: Topic → queue → its offsets.
Ends = dict[str, dict[int, popmq.QueueOffsets]]


class DataLoss(RuntimeError):
    """Messages that Spark is to read no longer exist (option failOnDataLoss)."""


def lose(fail: bool, text: str) -> None:
    """Raises DataLoss, or logs it: as the option failOnDataLoss says, which the text of the error names."""
    if fail:
        raise DataLoss(f"popmq: {text}. To go on without them set failOnDataLoss to false")
    _log.warning("%s", text)


def topics_of(client: popmq.Client, wanted: Topics) -> list[str]:
    """The names of the topics. Of a pattern those that exist now: no LITE topics, dead-letter topics only if it begins
    with %DLQ%.
    """
    if wanted.pattern is None:
        return sorted(set(wanted.names))
    return [
        topic.name
        for topic in client.topics.list(dead_letter_topics=wanted.pattern.pattern.startswith("%DLQ%"))
        if wanted.pattern.fullmatch(topic.name) and topic.type != "LITE"
    ]


def is_wanted(topic: str, wanted: Topics) -> bool:
    """Whether the options name a topic, be it there or not."""
    return topic in wanted.names or (wanted.pattern is not None and wanted.pattern.fullmatch(topic) is not None)


def ends_of(client: popmq.Client, topics: Iterable[str], group: str = "") -> Ends:
    """The ends of every queue. Errors: TopicNotFound, GroupNotFound."""
    return {topic: {row.queue: row for row in client.offsets.query(topic, group)} for topic in topics}


def created_of(ends: Ends) -> dict[str, int]:
    """When each topic was created, in ms since 1970: what tells it from another one of its name."""
    return {topic: row.topic_created_ms for topic, rows in ends.items() for row in list(rows.values())[:1]}


def check_readable(client: popmq.Client, ends: Ends, tag: str | None, sql: str | None) -> None:
    """Pulls nothing from each topic, so that what a task's pull would be refused for is known before it is planned.

    Errors: InvalidFilter; InvalidField for a LITE topic, whose queue is empty.
    """
    for topic, queues in ends.items():
        for queue, row in sorted(queues.items())[:1]:
            client.pull_columns(topic, queue, row.max_offset, 0, 1, tag=tag, sql=sql, columns=("offset",))


def mean_size(client: popmq.Client, topic: str, left: Mapping[int, tuple[int, int]]) -> float:
    """Bytes of a message of a topic, by some that lie evenly in what is left of its longest queues.

    `left`: queue → from which offset on, and below which one. 0.0 if no message can be read.
    """
    longest = sorted(left.items(), key=lambda each: each[1][0] - each[1][1])[:SAMPLED_QUEUES]
    found = list[int]()
    for queue, (start, end) in longest:
        for look in range(LOOKS if end > start else 0):
            at = start + (end - start) * look // LOOKS
            stop = min(at + SAMPLE_ROWS, end)
            rows = client.pull_columns(
                topic, queue, at, stop, SAMPLE_ROWS, max_bytes=SAMPLE_BYTES, columns=("body", "key", "properties")
            ).columns
            found += map(_size, rows.body, rows.key, rows.properties)
    return sum(found) / max(1, len(found))


def _size(body: bytes, key: str, properties: Mapping[str, str]) -> int:
    return len(body) + len(key) + sum(len(name) + len(value) for name, value in properties.items())


def place_in(client: popmq.Client, place: Place, ends: Ends, otherwise: int = EARLIEST) -> Positions:
    """Offsets of a position in each queue, never beyond its end. `otherwise`: of queues that offsets do not name.

    Raises OptionError for a topic or queue that is not read.
    """
    if isinstance(place, datetime):
        return {topic: {row.queue: row.at_timestamp for row in client.offsets.query(topic, at=place)} for topic in ends}
    if isinstance(place, str):
        return {
            topic: {queue: row.min_offset if place == "earliest" else row.max_offset for queue, row in queues.items()}
            for topic, queues in ends.items()
        }
    _refuse_unknown(place, ends)
    return {
        topic: {queue: _within(place.get(topic, {}).get(queue, otherwise), row) for queue, row in queues.items()}
        for topic, queues in ends.items()
    }


def _within(offset: int, row: popmq.QueueOffsets) -> int:
    """Limits an offset to the end of its queue. One below the first message stays: reading it reports the lost ones."""
    if offset == EARLIEST:
        return row.min_offset
    return row.max_offset if offset == LATEST else min(offset, row.max_offset)


def _refuse_unknown(place: Place, ends: Ends) -> None:
    """Raises OptionError for an offset of a topic or queue that is not read: it would be ignored in silence."""
    assert not isinstance(place, str | datetime)
    for topic, queues in place.items():
        if topic not in ends:
            raise OptionError(f"popmq: offsets are given for topic {topic!r}, which this query does not read")
        wrong = sorted(set(queues) - set(ends[topic]))
        if wrong:
            raise OptionError(
                f"popmq: offsets are given for queue {wrong[0]} of topic {topic!r}, which has no such queue"
            )
