"""The options of `mode=offsets`, for streams and for batch reads.

A stream and a batch read have a table each, so that an option which would do nothing is refused: a batch read has no
triggers and no group, a stream has no end. Spark asks for a schema before it says which of the two it makes; until
then either table will do.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from popmq_spark.options import (
    CONNECTION,
    ELSEWHERE,
    MODE,
    OPTIONS,
    TOPICS,
    Broker,
    Option,
    Topics,
    check_partitions,
    check_topics,
    one_of,
    parse_values,
    word,
)
from popmq_spark.positions import Place, place

# Options that mean the same in both modes are those of the other table: one text, one default, one parser.
_SAME = {option.name: option for option in OPTIONS}
# Without a group the broker knows nothing of the query. A batch read has none: it would have nothing to commit.
_GROUP = Option("group", word, "", "commits its progress as this group, for lag displays and retention")
_START = Option("startingOffsets", place, "earliest", "where to begin: earliest, latest, a time, or offsets as JSON")
_TASKS = tuple(_SAME[name] for name in ("minPartitions", "maxRecordsPerPartition", "maxPartitions"))
_TOLERANCE = (
    Option("failOnDataLoss", _SAME["failOnDataLoss"].parse, "true", "fail when messages of a range no longer exist"),
    _SAME["includeProperties"],
    _SAME["brokerUnavailableTimeout"],
)

#: What a stream may say.
STREAM_OPTIONS = (
    *CONNECTION,
    MODE,
    *TOPICS,
    _GROUP,
    _START,
    *(_SAME[name] for name in ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger", "maxTriggerDelay")),
    *_TASKS,
    _SAME["longPollTimeout"],
    *_TOLERANCE,
)

#: What a batch read may say: it has no triggers, but an end.
BATCH_OPTIONS = (
    *CONNECTION,
    Option("mode", one_of("offsets"), "offsets", "a batch read leases nothing; popmq_spark.drain empties a topic"),
    *TOPICS,
    _START,
    Option("endingOffsets", place, "latest", "where to end; the message there is not read"),
    *_TASKS,
    Option("pushFilters", _SAME["failOnDataLoss"].parse, "false", "let the broker apply conditions of the query"),
    *_TOLERANCE,
)


@dataclass(frozen=True, slots=True)
class OffsetsOptions:
    """The options of one query, typed: times in seconds, sizes in bytes. The tables tell what each does.

    The fields that have a default here may be unset, or belong to one kind of read only. The defaults that users see
    are those of the tables.
    """

    endpoint: str
    mode: str
    starting_offsets: Place
    min_partitions: int
    max_records_per_partition: int
    max_partitions: int
    fail_on_data_loss: bool
    include_properties: bool
    broker_unavailable_timeout: float
    topic: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: re.Pattern[str] | None = None
    tag: str | None = None
    sql: str | None = None
    group: str = ""
    ending_offsets: Place = "latest"
    push_filters: bool = False
    max_rows_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    min_rows_per_trigger: int = 0
    max_trigger_delay: float = 0.0
    long_poll_timeout: float = 0.0
    tls: bool = False
    tls_ca: str = ""
    access_key: str = ""
    secret: str = field(default="", repr=False)

    @property
    def broker(self) -> Broker:
        """How to reach the broker."""
        return Broker(self.endpoint, self.tls, self.tls_ca, self.access_key, self.secret)

    @property
    def wanted(self) -> Topics:
        """The topics to read; exactly one of the three options names them."""
        return Topics((self.topic,) if self.topic else self.topics, self.topic_pattern)

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
