"""Messages as rows of a file: JSON lines, or Parquet when it is asked for. One row is one message with all its fields.

    JSON lines   {"body": "text", …} or {"body_base64": "…", …}: fields that are not set are left out
    Parquet      a column for each field; body is binary

`queue`, `offset` and `stored_ms` say where a message was; an import does not ask for them.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

import click

import popmq
from popmq_cli.shared.output import text_of

#: Fields of a message that have the same name and form in a row.
PLAIN = ("message_id", "key", "tag", "message_group", "priority", "encoding", "born_ms", "lite_topic", "ttl")
#: The fields of a row about the message's place.
PLACE = ("queue", "offset", "stored_ms")
KNOWN = {*PLAIN, *PLACE, "body", "body_base64", "more_keys", "properties", "deliver_at_ms", "traceparent", "tracestate"}
#: Rows, and bytes of bodies, of one group of a Parquet file: one is in memory at a time.
GROUP_ROWS, GROUP_BYTES = 5_000, 8 << 20
#: Bytes of a Parquet column that are read at once.
BUFFER_BYTES = 1 << 20
#: A longer line is not a message: a body has at most 4 MiB, which JSON may write as six characters a byte.
LINE_BYTES_MAX = 32 << 20
TOO_LONG = f"it is longer than {LINE_BYTES_MAX >> 20} MiB"

Row = dict[str, Any]
Write = Callable[[Row], None]


class BadRow(Exception):
    """A row that is not a message; the text says why."""


def row_of(delivery: popmq.Delivery) -> Row:
    """All fields of a message, and its place."""
    place = {name: getattr(delivery, name) for name in PLACE}
    return fields_of(delivery) | place | {"deliver_at_ms": delivery.deliver_at_ms}


def fields_of(message: popmq.Delivery | popmq.Message) -> Row:
    """All fields of a message except its times and its place."""
    trace = message.trace_context or popmq.TraceContext()
    return {
        "body": message.body.encode() if isinstance(message.body, str) else bytes(message.body),
        **{name: getattr(message, name) for name in PLAIN},
        "more_keys": list(message.more_keys),
        "properties": dict(message.properties),
        "traceparent": trace.traceparent,
        "tracestate": trace.tracestate,
    }


def message_of(row: Row) -> popmq.Message:
    """The message of a row. Raises BadRow."""
    if unknown := sorted(row.keys() - KNOWN):
        raise BadRow(f"there is no field {unknown[0]!r}")
    body = row.get("body")
    if not isinstance(body, bytes) or not body:
        raise BadRow("it has no body")
    given = {name: row[name] for name in (*PLAIN, "more_keys", "properties") if row.get(name)}
    if row.get("traceparent"):
        given["trace_context"] = popmq.TraceContext(row["traceparent"], row.get("tracestate", ""))
    try:
        if at := row.get("deliver_at_ms"):
            given["deliver_at"] = datetime.fromtimestamp(at / 1000, UTC)
        return popmq.Message(body, **given)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise BadRow(str(error)) from None


# ── JSON lines ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def json_writer(file: IO[bytes]) -> Iterator[Write]:
    def write(row: Row) -> None:
        file.write(json.dumps(json_of(row), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    yield write


def json_of(row: Row) -> Row:
    """A row as JSON has it."""
    text = text_of(row["body"])
    body = {"body": text} if text is not None else {"body_base64": base64.b64encode(row["body"]).decode()}
    return body | {name: value for name, value in row.items() if name != "body" and (value or name in PLACE)}


def json_rows(file: IO[bytes]) -> Iterator[Row | BadRow | None]:
    """One row for each line, or why it is none; None for an empty line. Raises BadRow for an endless one."""
    for line in lines(file):
        yield _from_line(line) if line.strip() else None


def lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file. Raises BadRow for an endless one, which would fill the memory."""
    for line in iter(lambda: file.readline(LINE_BYTES_MAX + 1), b""):
        if len(line) > LINE_BYTES_MAX:
            raise BadRow(TOO_LONG)
        yield line


def _from_line(line: bytes) -> Row | BadRow:
    try:
        return from_json(json.loads(line))
    except BadRow as bad:
        return bad
    except (ValueError, RecursionError) as error:
        return BadRow(str(error))


def from_json(row: Any) -> Row:
    """The row of what JSON has. Raises BadRow."""
    try:
        if not isinstance(row, dict):
            raise BadRow("it is not a JSON object")
        if "body_base64" in row:
            row["body"] = base64.b64decode(row.pop("body_base64"), validate=True)
        elif isinstance(row.get("body"), str):
            row["body"] = row["body"].encode()
    except (ValueError, TypeError) as error:
        raise BadRow(str(error)) from None
    return row


# ── Parquet ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parquet() -> tuple[Any, Any]:
    """pyarrow is large, and imported only when a file of its kind is named."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise click.ClickException(f"Parquet needs pyarrow: pip install pyarrow ({error})") from None
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    texts = ("message_id", "key", "tag", "message_group", "encoding", "lite_topic", "traceparent", "tracestate")
    numbers = ("priority", "born_ms", "deliver_at_ms", *PLACE)
    return arrow.schema(
        [
            ("body", arrow.binary()),
            *((name, arrow.string()) for name in texts),
            *((name, arrow.int64()) for name in numbers),
            ("ttl", arrow.float64()),
            ("more_keys", arrow.list_(arrow.string())),
            ("properties", arrow.map_(arrow.string(), arrow.string())),
        ]
    )


@contextlib.contextmanager
def parquet_writer(file: IO[bytes]) -> Iterator[Write]:
    arrow, parquet = _parquet()
    schema, rows, size = _schema(arrow), list[Row](), 0
    repeating = [name for name in schema.names if name not in ("body", "message_id", "more_keys", "properties")]
    with parquet.ParquetWriter(file, schema, use_dictionary=repeating) as writer:

        def flush() -> None:
            nonlocal size
            if rows:
                writer.write_table(arrow.Table.from_pylist(rows, schema))
                rows.clear()
                size = 0

        def write(row: Row) -> None:
            nonlocal size
            rows.append(row | {"properties": list(row["properties"].items())})
            size += len(row["body"])
            if len(rows) == GROUP_ROWS or size >= GROUP_BYTES:
                flush()

        yield write
        flush()


def _at_once(group: Any) -> int:
    """How many rows of a group to read at once: other programs make groups of any size."""
    fit: int = GROUP_BYTES * group.num_rows // max(1, group.total_byte_size)
    return max(1, min(GROUP_ROWS, fit))


def parquet_rows(file: IO[bytes]) -> Iterator[Row]:
    """One row for each message. Raises BadRow."""
    arrow, parquet = _parquet()
    try:
        read = parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        for index in range(read.num_row_groups):
            for batch in read.iter_batches(_at_once(read.metadata.row_group(index)), row_groups=[index]):
                for row in batch.to_pylist():
                    yield row | {"properties": dict(row.get("properties") or ())}
    except (arrow.ArrowException, OSError, ValueError, TypeError) as error:  # OSError: a page is damaged
        raise BadRow(f"this is not a Parquet file, or not one of messages: {error}") from None
