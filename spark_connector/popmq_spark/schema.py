"""The columns of the source as Spark sees them.

    topic STRING, queue_id INT, queue_offset BIGINT     the message's position
    message_id STRING, key STRING, body BINARY, tag STRING, [properties MAP<STRING, STRING>], [keys ARRAY<STRING>]
    message_group STRING, priority INT
    encoding STRING                                     of a body that is still compressed
    born_ts TIMESTAMP, store_ts TIMESTAMP               by the producer's clock, by the broker's
    [dead_letter STRUCT<…>]                             where a dead letter came from, and why; null for others
    delivery_attempt INT                                from 1; a re-read does not count
    popmq_epoch BIGINT                                  the epoch of the micro-batch; both null when nothing is leased

`key` is the message's first key. Fields that the sender left out (key, tag, message group, born time) are null.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: What the broker adds to a message that it moves to a dead-letter topic. Times are by its clock.
DEAD_LETTER = StructType(
    [
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue_offset", LongType()),
        StructField("attempts", IntegerType()),
        StructField("first_pop_ts", TimestampType()),
        StructField("last_client", StringType()),
        StructField("reason", StringType()),
        StructField("dead_ts", TimestampType()),
    ]
)

COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "queue_id": IntegerType(),
    "queue_offset": LongType(),
    "message_id": StringType(),
    "key": StringType(),
    "body": BinaryType(),
    "tag": StringType(),
    "properties": MapType(StringType(), StringType()),
    "keys": ArrayType(StringType()),
    "message_group": StringType(),
    "priority": IntegerType(),
    "encoding": StringType(),
    "dead_letter": DEAD_LETTER,
    "born_ts": TimestampType(),
    "store_ts": TimestampType(),
    "delivery_attempt": IntegerType(),
    "popmq_epoch": LongType(),
}


#: Columns that are null where a sender left a field out, or nothing is leased.
MAY_BE_NULL = frozenset(
    {"key", "tag", "message_group", "encoding", "dead_letter", "born_ts", "delivery_attempt", "popmq_epoch"}
)


class SchemaError(ValueError):
    """The schema given to Spark names a column that the source does not have, or gives it another type."""


def full_schema(include_properties: bool, include_dead_letter: bool, include_keys: bool) -> StructType:
    """Every column; on demand `dead_letter`, and `properties` and `keys`: maps and lists cost more than the others."""
    left_out = {"properties": not include_properties, "dead_letter": not include_dead_letter, "keys": not include_keys}
    names = [name for name in COLUMNS if not left_out.get(name)]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def check_projection(schema: StructType) -> None:
    """Checks a user's schema: it may choose columns but not change their types. Raises SchemaError."""
    if not schema.fields:
        raise SchemaError(f"popmq: the schema has no column: name one, if only to count rows, of {', '.join(COLUMNS)}")
    if len({*schema.names}) < len(schema.names):
        raise SchemaError(f"popmq: the schema names a column twice: {', '.join(schema.names)}")
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise SchemaError(f"popmq: there is no column {field.name!r}; the columns are {', '.join(COLUMNS)}")
        if field.dataType != COLUMNS[field.name]:
            raise SchemaError(
                f"popmq: the column {field.name} is {COLUMNS[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}; cast it after reading"
            )
        if not field.nullable and field.name in MAY_BE_NULL:
            raise SchemaError(f"popmq: the column {field.name} may be null: leave NOT NULL out of the schema")
