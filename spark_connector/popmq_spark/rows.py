"""Turns rows of a DataFrame into messages. The columns:

body     BINARY or STRING   required; `value` is understood too
topic    STRING             null: the option topic
key, tag, message_id, message_group    STRING
delay    number             seconds after which it is delivered
deliver_at  TIMESTAMP       not before this time
priority    integer
properties  MAP<STRING, STRING>
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

import popmq
from popmq_spark.schema import SchemaError

BODY_BYTES_MAX = 4 << 20  # of the contract; a longer one would fail the whole request
_BODIES = ("body", "value")
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
TYPES: dict[str, tuple[type[DataType], ...]] = {
    "body": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "key": (StringType,),
    "tag": (StringType,),
    "message_id": (StringType,),
    "message_group": (StringType,),
    "delay": (*_WHOLE, FloatType, DoubleType, DecimalType),
    "deliver_at": (TimestampType,),
    "priority": _WHOLE,
    "properties": (MapType,),
}


class Row(NamedTuple):
    """One row: its topic and its message; for a bad row the reason and its body instead."""

    topic: str
    message: popmq.Message | None
    reason: str = ""
    body: bytes | None = None


def check_columns(schema: StructType, has_topic: bool) -> None:
    """Checks the columns of a DataFrame before it is written. Raises SchemaError."""
    names = schema.names
    bodies = [name for name in _BODIES if name in names]
    if len(bodies) != 1:
        raise SchemaError("popmq: the rows need one column body (or value), of type binary or string")
    if "topic" not in names and not has_topic:
        raise SchemaError("popmq: name the topic: with the option topic, or in a column topic")
    if {"delay", "deliver_at"} <= set(names):
        raise SchemaError("popmq: the columns delay and deliver_at exclude each other; leave one of them out")
    for field in schema.fields:
        if field.name not in TYPES:
            raise SchemaError(f"popmq: a sink does not use the column {field.name!r}; it knows {', '.join(TYPES)}")
        if not isinstance(field.dataType, TYPES[field.name]):
            expected = " or ".join(kind.typeName() for kind in TYPES[field.name])
            found = field.dataType.simpleString()
            raise SchemaError(f"popmq: the column {field.name} is {found}; a sink takes {expected}: cast it")


def rows(batch: pa.RecordBatch, topic: str) -> Iterator[Row]:
    """The rows of an Arrow batch, in order."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    if "value" in columns:
        columns["body"] = columns.pop("value")
    topics = columns.pop("topic", None) or [None] * batch.num_rows
    names = list(columns)
    for place, values in enumerate(zip(*columns.values(), strict=True)):
        yield _row(topics[place] or topic, dict(zip(names, values, strict=True)))


def _row(topic: str, values: dict[str, Any]) -> Row:
    fields = {name: value for name, value in values.items() if value is not None}
    body = fields.pop("body", None)
    if isinstance(body, str):
        body = body.encode()
    if "properties" in fields:
        fields["properties"] = dict(fields["properties"])
    if "delay" in fields:
        fields["delay"] = float(fields["delay"])
    reason = _fault(topic, body, fields)
    if body is None or reason:
        return Row(topic, None, reason, body)
    return Row(topic, popmq.Message(body, **fields))


def _fault(topic: str, body: bytes | None, fields: dict[str, Any]) -> str:
    """Why a row cannot become a message, where the broker would not answer for this row alone; "" if it can."""
    if body is None:
        return "the body is null"
    if len(body) > BODY_BYTES_MAX:
        return f"the body has {len(body)} bytes, at most {BODY_BYTES_MAX} are allowed"
    if not topic:
        return "the topic is null, and there is no option topic"
    if fields.get("priority", 0) < 0:
        return f"the priority is {fields['priority']}"
    if not 0 <= fields.get("delay", 0.0) < float("inf"):
        return f"the delay is {fields['delay']}"
    if None in fields.get("properties", {}).values():
        return "a property is null"
    return ""
