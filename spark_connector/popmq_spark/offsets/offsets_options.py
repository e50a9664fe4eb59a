"""The options of `mode=offsets`, for streams and for batch reads.

A stream and a batch read have a table each, so that an option which would do nothing is refused: a batch read has no
triggers and no group, a stream takes no conditions of its query. Spark asks for a schema before it says which of the
two it makes; until then either table will do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from popmq_spark.options import (
    CONNECTION,
    ELSEWHERE,
    MODE,
    OPTIONS,
    TOPICS,
    Option,
    Reading,
    check_partitions,
    check_topics,
    mode,
    parse_values,
    word,
)
from popmq_spark.positions import Place, place

# Options that mean the same in both modes are those of the other table: one text, one default, one parser.
_SAME = {option.name: option for option in OPTIONS}
# Without a group the broker stores nothing about the query. A batch read has none: it would have nothing to commit.
_GROUP = Option("group", word, "", "commits the query's progress as this group, for lag displays and retention")
_START = Option("startingOffsets", place, "earliest", "where to begin: earliest, latest, a time, or offsets as JSON")
_END = Option(
    "endingOffsets",
    place,
    "latest",
    "where to end; the message at this offset is not read. With latest a stream has no end",
)
_TASKS = tuple(_SAME[name] for name in ("minPartitions", "maxRecordsPerPartition", "maxPartitions"))
_TOLERANCE = (
    Option("failOnDataLoss", _SAME["failOnDataLoss"].parse, "true", "fail when messages of a range no longer exist"),
    _SAME["includeProperties"],
    _SAME["includeKeys"],
    _SAME["decode"],
    _SAME["includeDeadLetter"],
    _SAME["brokerUnavailableTimeout"],
)

STREAM_OPTIONS = (
    *CONNECTION,
    MODE,
    *TOPICS,
    _GROUP,
    _START,
    _END,
    *(_SAME[name] for name in ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay")),
    *_TASKS,
    _SAME["longPollTimeout"],
    *_TOLERANCE,
)

#: The options of a batch read, which has no triggers.
BATCH_OPTIONS = (
    *CONNECTION,
    Option("mode", mode("offsets"), "offsets", "a batch read leases nothing; popmq_spark.drain empties a topic"),
    *TOPICS,
    _START,
    _END,
    *_TASKS,
    Option("pushFilters", _SAME["failOnDataLoss"].parse, "false", "let the broker apply conditions of the query"),
    *_TOLERANCE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsOptions(Reading):
    """The options of one query of `mode=offsets`. The tables tell what each does."""

    starting_offsets: Place
    ending_offsets: Place
    push_filters: bool = False

    @classmethod
    def stream(cls, given: Mapping[str, str]) -> "OffsetsOptions":
        """Reads the options of a stream; names in any case. Raises OptionError."""
        return cls._checked(parse_values(STREAM_OPTIONS, given, ELSEWHERE))

    @classmethod
    def batch(cls, given: Mapping[str, str]) -> "OffsetsOptions":
        """Reads the options of a batch read; names in any case. Raises OptionError."""
        return cls._checked(parse_values(BATCH_OPTIONS, given, ELSEWHERE))

    @classmethod
    def either(cls, given: Mapping[str, str]) -> "OffsetsOptions":
        """Reads the options of a stream or a batch read, when it is not known which. Raises OptionError."""
        table = {option.name: option for option in (*BATCH_OPTIONS, *STREAM_OPTIONS)}
        return cls._checked(parse_values(tuple(table.values()), given, ELSEWHERE))

    @classmethod
    def _checked(cls, values: dict[str, Any]) -> "OffsetsOptions":
        check_partitions(values)
        check_topics(values)
        return cls(**values)
