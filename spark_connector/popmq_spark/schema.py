"""The columns of the source as Spark sees them.

    topic STRING, queue_id INT, queue_offset BIGINT     the message's position
    message_id STRING, key STRING, body BINARY, tag STRING, [properties MAP<STRING, STRING>]
    born_ts TIMESTAMP, store_ts TIMESTAMP               by the producer's clock, by the broker's
    delivery_attempt INT                                from 1; a re-read does not count
    popmq_epoch BIGINT                                  the epoch of the micro-batch; both null when nothing is leased

`key` is the message's first key. Fields that the sender left out (key, tag, born time) are null.
"""

from pyspark.sql.types import (
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

COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "queue_id": IntegerType(),
    "queue_offset": LongType(),
    "message_id": StringType(),
    "key": StringType(),
    "body": BinaryType(),
    "tag": StringType(),
    "properties": MapType(StringType(), StringType()),
    "born_ts": TimestampType(),
    "store_ts": TimestampType(),
    "delivery_attempt": IntegerType(),
    "popmq_epoch": LongType(),
}


class SchemaError(ValueError):
    """The schema given to Spark names a column that the source does not have, or gives it another type."""


def full_schema(include_properties: bool) -> StructType:
    """Every column; `properties` on demand, because a map costs more than all the others together."""
    names = [name for name in COLUMNS if name != "properties" or include_properties]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def check_projection(schema: StructType) -> None:
    """Checks a user's schema: it may choose columns but not change their types. Raises SchemaError."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise SchemaError(f"popmq: there is no column {field.name!r}; the columns are {', '.join(COLUMNS)}")
        if field.dataType != COLUMNS[field.name]:
            raise SchemaError(
                f"popmq: the column {field.name} is {COLUMNS[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}; cast it after reading"
            )
