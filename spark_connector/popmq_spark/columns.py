"""Turns an answer of the broker into an Arrow batch with the types that Spark expects."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

import popmq

_log = logging.getLogger("popmq_spark")

#: Encodings that the SDK unpacks.
UNPACKED = ("GZIP", "ZLIB")
_TIME = pa.timestamp("us", tz="UTC")
#: The end of 9999-12-30: in every time zone it is a date of Spark and of Python.
TIME_MS_MAX = 253_402_214_399_999
_MAP = pa.map_(pa.string(), pa.string())
_TEXTS = pa.list_(pa.string())
#: Unpacked bodies of one Arrow batch, beside its last one: a small answer may unpack to gigabytes.
UNPACKED_BYTES = 32 << 20

_DEAD_LETTER = pa.struct(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("attempts", pa.int32()),
        ("first_pop_ts", _TIME),
        ("last_client", pa.string()),
        ("reason", pa.string()),
        ("dead_ts", _TIME),
    ]
)

_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "message_id": pa.string(),
    "key": pa.string(),
    "body": pa.binary(),
    "tag": pa.string(),
    "properties": _MAP,
    "keys": _TEXTS,
    "message_group": pa.string(),
    "priority": pa.int32(),
    "encoding": pa.string(),
    "dead_letter": _DEAD_LETTER,
    "born_ts": _TIME,
    "store_ts": _TIME,
    "delivery_attempt": pa.int32(),
    "popmq_epoch": pa.int64(),
}

#: The field of the contract that a column is made of; the others are the same in all rows of an answer.
_FIELDS = {
    "queue_id": "queue",
    "queue_offset": "offset",
    "message_id": "message_id",
    "key": "key",
    "body": "body",
    "tag": "tag",
    "properties": "properties",
    "keys": "keys",
    "message_group": "message_group",
    "priority": "priority",
    "encoding": "encoding",
    "dead_letter": "dead_letter",
    "born_ts": "born_ms",
    "store_ts": "stored_ms",
    "delivery_attempt": "attempt",
}


def fields_of(schema: pa.Schema, decode: bool, keys: bool = False) -> frozenset[str]:
    """The fields that the broker has to send for the columns of `schema`.

    `decode`: also the encodings of bodies. `keys`: also the keys, to select rows by.
    """
    wanted = {_FIELDS[name] for name in schema.names if name in _FIELDS}
    if decode and "body" in wanted:
        wanted.add("encoding")
    return frozenset(wanted | {"key"} if keys else wanted)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Of a schema that `check_projection` accepted."""
    return pa.schema([pa.field(field.name, _TYPES[field.name], field.nullable) for field in schema.fields])


def to_batches(
    columns: popmq.Columns,
    topic: str,
    epoch: int | None,
    schema: pa.Schema,
    keys: Collection[str] | None = None,
    decode: bool = True,
) -> Iterator[pa.RecordBatch]:
    """An answer as batches; several where bodies that are unpacked (`decode`) grow large.

    `keys`: only rows that have one of them.
    """
    batch = to_arrow(columns, topic, epoch, schema)
    chosen = None if keys is None else pa.array([key in keys for key in columns.key])
    packed = decode and "body" in schema.names and any(columns.encoding)
    for first, piece in _unpacked(batch, columns) if packed else [(0, batch)]:
        yield piece if chosen is None else piece.filter(chosen.slice(first, len(piece)))


def _unpacked(batch: pa.RecordBatch, columns: popmq.Columns) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Pieces of the batch with bodies as they were before they were compressed, and the first row of each.

    A body that is damaged, too large or in an encoding that is not known stays as it is, with its encoding: it ends no
    query.
    """
    first, size, bodies, encodings = 0, 0, list[bytes](), list[str | None]()
    for row, encoding in enumerate(columns.encoding):
        body, left = _body(columns, row, encoding)
        bodies.append(body)
        encodings.append(left)
        size += len(body)
        if size >= UNPACKED_BYTES or row + 1 == len(columns):
            piece = batch.slice(first, len(bodies))
            yield first, _replaced(piece, {"body": bodies, "encoding": encodings})
            first, size, bodies, encodings = row + 1, 0, [], []


def _body(columns: popmq.Columns, row: int, encoding: str) -> tuple[bytes, str | None]:
    """A body, and the encoding in which it still is."""
    if encoding in UNPACKED:
        try:
            return columns.unpacked(row), None
        except ValueError as error:
            _log.warning("a body at offset %d stays in its encoding %s: %s", columns.offset[row], encoding, error)
    return columns.body[row], encoding or None


def _replaced(batch: pa.RecordBatch, values: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    """The batch with these columns, where it has them."""
    arrays = [
        pa.array(values[field.name], field.type) if field.name in values else batch.column(field.name)
        for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def to_arrow(columns: popmq.Columns, topic: str, epoch: int | None, schema: pa.Schema) -> pa.RecordBatch:
    """One batch of the columns that `schema` names, in its order; bodies are as they were sent.

    Built against the schema every time: Spark checks the first batch of a task only and trusts the others. `epoch`
    None: nothing was leased.
    """
    rows = len(columns)
    arrays: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(topic, rows),
        "queue_id": lambda: pa.array(columns.queue, pa.int32()),
        "queue_offset": lambda: pa.array(columns.offset, pa.int64()),
        "message_id": lambda: pa.array(columns.message_id, pa.string()),
        "key": lambda: _texts(columns.key),
        "body": lambda: pa.array(columns.body, pa.binary()),
        "tag": lambda: _texts(columns.tag),
        "properties": lambda: pa.array([[*entries.items()] for entries in columns.properties], _MAP),
        "keys": lambda: pa.array(columns.keys, _TEXTS),
        "message_group": lambda: _texts(columns.message_group),
        "priority": lambda: pa.array(columns.priority, pa.int32()),
        "encoding": lambda: _texts(columns.encoding),
        "dead_letter": lambda: pa.array([_origin(letter) for letter in columns.dead_letter], _DEAD_LETTER),
        "born_ts": lambda: _times(columns.born_ms),
        "store_ts": lambda: _times(columns.stored_ms),
        "delivery_attempt": lambda: (
            pa.nulls(rows, pa.int32()) if epoch is None else pa.array(columns.attempt, pa.int32())
        ),
        "popmq_epoch": lambda: pa.nulls(rows, pa.int64()) if epoch is None else pa.repeat(epoch, rows),
    }
    return pa.RecordBatch.from_arrays([arrays[name]() for name in schema.names], schema=schema)


def _origin(letter: popmq.DeadLetter | None) -> tuple[Any, ...] | None:
    """The fields of `_DEAD_LETTER`; None for a message that is not a dead letter."""
    if letter is None:
        return None
    first_pop, dead = (1000 * ms if ms else None for ms in (letter.first_pop_ms, letter.dead_ms))
    place = letter.topic, letter.queue, letter.offset
    return (*place, letter.attempts, first_pop, letter.last_client or None, letter.reason, dead)


def _texts(values: Sequence[str]) -> Any:
    """Texts, with null for "", which means in the contract that there is none."""
    if not any(values):
        return pa.nulls(len(values), pa.string())
    array = pa.array(values, pa.string())
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)


def _times(values: Sequence[int]) -> Any:
    """Milliseconds since 1970, 0 = unset, as timestamps.

    Also null for a number without a date: a producer may name any, and a query must not end by it.
    """
    array = pa.array(values, pa.int64())
    unknown = pc.or_(pc.equal(array, 0), pc.greater(array, TIME_MS_MAX))
    known = pc.if_else(unknown, pa.scalar(None, pa.int64()), array)
    return known.cast(pa.timestamp("ms", tz="UTC")).cast(_TIME)
