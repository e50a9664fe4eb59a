"""Messages as a table of Arrow: columns with the names and types of the Spark connector, whatever else they are called.

    field of Columns     column                field     column
    queue, offset        queue_id, queue_offset    attempt   delivery_attempt
    born_ms, stored_ms   born_ts, store_ts         others    the same

A text that is not set is null, as a time that is not set is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from popmq.errors import MissingLibrary

#: The end of 9999-12-30: a later time is no date of Python in every time zone. A producer may name any number.
_TIME_MS_MAX = 253_402_214_399_999


def library(name: str, wanted_by: str) -> Any:
    """Imports a library that a client does not need. Raises MissingLibrary."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibrary(f"{wanted_by} needs {name} ({error})", action=f"install it: pip install {name}") from error


def to_arrow(fields: Mapping[str, Sequence[Any]], rows: int) -> Any:
    """A pyarrow.Table of those fields of `popmq.Columns` that were asked for. Raises MissingLibrary."""
    pa = library("pyarrow", "to_arrow")
    given = {name: values for name, values in fields.items() if len(values) == rows}
    kinds = ((column, given.get(field), form, kind) for field, column, form, kind in _columns(pa))
    return pa.table(
        {
            column: pa.array(values if form is None else [form(value) for value in values], kind)
            for column, values, form, kind in kinds
            if values is not None
        }
    )


def to_pandas(fields: Mapping[str, Sequence[Any]], rows: int) -> Any:
    """The table as a pandas.DataFrame; properties are dicts. Raises MissingLibrary."""
    library("pandas", "to_pandas")
    return to_arrow(fields, rows).to_pandas(maps_as_pydicts="lossy")


def _columns(pa: Any) -> list[tuple[str, str, Callable[[Any], Any] | None, Any]]:
    """(field of Columns, column, what becomes of a value, type of Arrow), in the order of the table."""
    text, time = pa.string(), pa.timestamp("us", tz="UTC")
    pairs = pa.map_(text, text)
    letter = pa.struct(
        [
            ("topic", text),
            ("queue_id", pa.int32()),
            ("queue_offset", pa.int64()),
            ("attempts", pa.int32()),
            ("first_pop_ts", time),
            ("last_client", text),
            ("reason", text),
            ("dead_ts", time),
        ]
    )
    return [
        ("queue", "queue_id", None, pa.int32()),
        ("offset", "queue_offset", None, pa.int64()),
        ("message_id", "message_id", None, text),
        ("key", "key", _or_null, text),
        ("body", "body", None, pa.binary()),
        ("tag", "tag", _or_null, text),
        ("properties", "properties", lambda entries: list(entries.items()), pairs),
        ("keys", "keys", list, pa.list_(text)),
        ("message_group", "message_group", _or_null, text),
        ("priority", "priority", None, pa.int32()),
        ("encoding", "encoding", _or_null, text),
        ("dead_letter", "dead_letter", _origin, letter),
        ("born_ms", "born_ts", _micros, time),
        ("stored_ms", "store_ts", _micros, time),
        ("attempt", "delivery_attempt", None, pa.int32()),
    ]


def _or_null(value: str) -> str | None:
    return value or None


def _micros(ms: int) -> int | None:
    return 1000 * ms if 0 < ms <= _TIME_MS_MAX else None


def _origin(letter: Any) -> tuple[Any, ...] | None:
    if letter is None:
        return None
    place = letter.topic, letter.queue, letter.offset, letter.attempts
    return (*place, _micros(letter.first_pop_ms), _or_null(letter.last_client), letter.reason, _micros(letter.dead_ms))
