"""Turns rows of a DataFrame into messages. The columns:

body     BINARY or STRING   required; `value` is understood too
topic    STRING             null: the option topic
key, tag, message_id, message_group    STRING
keys     ARRAY<STRING>      all keys
encoding STRING             of a body that is compressed: GZIP, ZLIB, ZSTD or LZ4
delay    number             seconds after which it is delivered
deliver_at  TIMESTAMP       not before this time
priority    integer
properties  MAP<STRING, STRING>

Other columns of a read are the broker's to set: queue_id, queue_offset, born_ts, store_ts … are passed over.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from operator import sub
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
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
    StructField,
    StructType,
    TimestampType,
)

import popmq
from popmq_spark.schema import COLUMNS, SchemaError

# Of the contract. What is greater would fail the whole request, not its row alone.
BODY_BYTES_MAX = 4 << 20
PROPERTIES_BYTES_MAX = 64 << 10
PRIORITY_MAX = (1 << 31) - 1
DELAY_S_MAX = 3_153_600_000  # a hundred years
#: More than any text of a message but its properties may have; the broker knows the limit of each.
TEXT_MAX = 4 << 10
#: Memory of a row beside its bytes, an estimate.
ROW_BYTES = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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
    "keys": (ArrayType,),
    "encoding": (StringType,),
}
#: Columns of a read that no sender sets.
PASSED_OVER = frozenset(COLUMNS) - frozenset(TYPES)
#: Columns beside body and topic of rows that need no object.
_PLAIN = frozenset({"key", "tag", "message_id", "message_group", "properties"})
ENCODINGS = ("GZIP", "ZLIB", "ZSTD", "LZ4")


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
    _check_topic(names, has_topic)
    if twice := [name for name in TYPES if names.count(name) > 1]:
        raise SchemaError(f"popmq: the rows have several columns {twice[0]}: drop or rename the others")
    if {"delay", "deliver_at"} <= set(names):
        raise SchemaError("popmq: the columns delay and deliver_at exclude each other; leave one of them out")
    for field in schema.fields:
        if field.name in PASSED_OVER:
            continue
        if field.name not in TYPES:
            raise SchemaError(f"popmq: a sink does not use the column {field.name!r}; it knows {', '.join(TYPES)}")
        if not isinstance(field.dataType, TYPES[field.name]):
            expected = " or ".join(kind.typeName() for kind in TYPES[field.name])
            raise _wrong_type(field, expected)
        if isinstance(field.dataType, MapType) and not _is_of_texts(field.dataType):
            raise _wrong_type(field, "map<string,string>")
        if isinstance(field.dataType, ArrayType) and not isinstance(field.dataType.elementType, StringType):
            raise _wrong_type(field, "array<string>")


def _check_topic(names: Collection[str], has_topic: bool) -> None:
    if "topic" not in names and not has_topic:
        raise SchemaError("popmq: name the topic: with the option topic, or in a column topic")
    if {"topic", "queue_offset"} <= set(names) and has_topic:
        raise SchemaError(
            "popmq: the rows were read and name in the column topic where they come from, and the option topic is set, "
            "too: drop the column to write to the option's topic, or leave the option out to write them back"
        )


def _is_of_texts(kind: MapType) -> bool:
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def _wrong_type(field: StructField, expected: str) -> SchemaError:
    found = field.dataType.simpleString()
    return SchemaError(f"popmq: the column {field.name} is {found}; a sink takes {expected}: cast it")


def encoded(batch: pa.RecordBatch, topic: str) -> tuple[list[str], popmq.EncodedMessages] | None:
    """The topic and the message of each row, if no row is bad and none has a rare field; else None.

    One pass for each column, and no object for a row: a fifth of what `rows` and its messages take, or less.
    """
    given = {name: batch.column(name) for name in batch.schema.names if name in TYPES}
    columns = {name: column for name, column in given.items() if column.null_count < batch.num_rows}
    if "value" in columns:
        columns["body"] = columns.pop("value")
    body, topics = columns.pop("body", None), columns.pop("topic", None)
    if body is None or body.null_count or not columns.keys() <= _PLAIN or _has_null_property(columns):
        return None
    bodies = _values("body", body)
    names = [topic] * len(bodies) if topics is None else [name or topic for name in topics.to_pylist()]
    if not all(names) or max(map(len, bodies)) > BODY_BYTES_MAX:
        return None
    messages = popmq.EncodedMessages.of_columns(
        bodies, **{name: column.to_pylist() for name, column in columns.items()}
    )
    beside = map(sub, messages.sizes(), map(len, bodies))
    return (names, messages) if max(beside) <= TEXT_MAX else None


def _has_null_property(columns: dict[str, Any]) -> bool:
    return "properties" in columns and columns["properties"].items.null_count > 0


def rows(batch: pa.RecordBatch, topic: str) -> Iterator[Row]:
    """The rows of an Arrow batch, in order."""
    columns = {name: _values(name, batch.column(name)) for name in batch.schema.names if name in TYPES}
    if "value" in columns:
        columns["body"] = columns.pop("value")
    topics = columns.pop("topic", None) or [None] * batch.num_rows
    names = list(columns)
    for place, values in enumerate(zip(*columns.values(), strict=True)):
        yield _row(topics[place] or topic, dict(zip(names, values, strict=True)))


def _values(name: str, column: Any) -> list[Any]:
    """Times as microseconds: Python has no datetime for years that Spark has. Texts of bodies as bytes."""
    if name in _BODIES:
        column = column.cast(pa.large_binary())
    if name == "deliver_at":
        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def _row(topic: str, values: dict[str, Any]) -> Row:
    fields = {name: value for name, value in values.items() if value is not None}
    body = fields.pop("body", None)
    if "properties" in fields:
        fields["properties"] = dict(fields["properties"])
    if "delay" in fields:
        fields["delay"] = float(fields["delay"])
    if keys := fields.pop("keys", None):
        first = fields.setdefault("key", keys[0])
        at = keys.index(first) if first in keys else len(keys)
        fields["more_keys"] = keys[:at] + keys[at + 1 :]
    reason = _fault(topic, body, fields)
    if body is None or reason:
        return Row(topic, None, reason, body)
    if "deliver_at" in fields:
        fields["deliver_at"] = _moment(fields["deliver_at"])
    return Row(topic, popmq.Message(body, **fields))


def _bytes_of(text: str) -> int:
    """At least the bytes of a text on the wire, without encoding it."""
    return len(text) if text.isascii() else 4 * len(text)


def _fault(topic: str, body: bytes | None, fields: dict[str, Any]) -> str:
    """Why a row cannot become a message, where the broker would not answer for this row alone; "" if it can."""
    if body is None:
        return "the body is null"
    if len(body) > BODY_BYTES_MAX:
        return f"the body has {len(body)} bytes, at most {BODY_BYTES_MAX} are allowed"
    if not topic:
        return "the topic is null, and there is no option topic"
    return (_fault_of_numbers(fields) or _fault_of_texts(fields)) if fields else ""


def _fault_of_numbers(fields: dict[str, Any]) -> str:
    if not 0 <= fields.get("priority", 0) <= PRIORITY_MAX:
        return f"the priority is {fields['priority']}, it must be 0–{PRIORITY_MAX}"
    if not 0 <= fields.get("delay", 0.0) <= DELAY_S_MAX:
        return f"the delay is {fields['delay']}, it must be 0–{DELAY_S_MAX} s"
    try:
        _moment(fields.get("deliver_at", 0))
    except OverflowError:
        return "deliver_at is not in the years 1–9999"
    return ""


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _fault_of_texts(fields: dict[str, Any]) -> str:
    properties = fields.get("properties", {})
    if None in properties.values():
        return "a property is null"
    if None in (fields.get("key", ""), *fields.get("more_keys", ())):
        return "a key is null"
    if fields.get("encoding", ENCODINGS[0]) not in ENCODINGS:
        return f"the encoding is {fields['encoding'][:40]!r}, it must be one of {', '.join(ENCODINGS)}"
    size = sum(_bytes_of(name) + _bytes_of(value) for name, value in properties.items())
    if size > PROPERTIES_BYTES_MAX:
        size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    if size > PROPERTIES_BYTES_MAX:
        return f"the properties have {size} bytes, at most {PROPERTIES_BYTES_MAX} are allowed"
    for name, text in fields.items():
        if isinstance(text, str) and len(text) > TEXT_MAX:
            return f"the {name} has {len(text)} characters, far more than are allowed"
    return ""
