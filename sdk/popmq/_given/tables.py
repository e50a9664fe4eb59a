"""Messages as a table of Arrow: columns with the names and types of the Spark connector, whatever else they are called.

    field of Columns     column                field     column
    queue, offset        queue_id, queue_offset    attempt   delivery_attempt
    born_ms, stored_ms   born_ts, store_ts         others    the same

A text that is not set is null, as a time that is not set is.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from popmq.errors import MissingLibrary

if TYPE_CHECKING:
    from popmq.message import DeadLetter
    from popmq.owner import Columns

#: The end of 9999-12-30: a later time is no date of Python in every time zone. A producer may name any number.
_TIME_MS_MAX = 253_402_214_399_999


def library(name: str, wanted_by: str) -> Any:
    """Imports a library that a client does not need. Raises MissingLibrary."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibrary(f"{wanted_by} needs {name} ({error})", action=f"install it: pip install {name}") from error


def to_arrow(columns: Columns) -> Any:
    """A pyarrow.Table with a column for each field that was asked for. Raises MissingLibrary."""
    pa = library("pyarrow", "to_arrow")
    arrays = {column: array for column, values, array in _arrays(pa, columns) if len(values) == len(columns)}
    return pa.table(arrays)


def to_pandas(columns: Columns) -> Any:
    """The table as a pandas.DataFrame; properties are dicts. Raises MissingLibrary."""
    library("pandas", "to_pandas")
    return to_arrow(columns).to_pandas(maps_as_pydicts="lossy")


def _arrays(pa: Any, columns: Columns) -> list[tuple[str, Sequence[Any], Any]]:
    """(column, values of the field, array)."""
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
    fields: list[tuple[str, Sequence[Any], Any, Any]] = [
        ("queue_id", columns.queue, None, pa.int32()),
        ("queue_offset", columns.offset, None, pa.int64()),
        ("message_id", columns.message_id, None, text),
        ("key", columns.key, _or_null, text),
        ("body", columns.body, None, pa.binary()),
        ("tag", columns.tag, _or_null, text),
        ("properties", columns.properties, lambda entries: list(entries.items()), pairs),
        ("keys", columns.keys, list, pa.list_(text)),
        ("message_group", columns.message_group, _or_null, text),
        ("priority", columns.priority, None, pa.int32()),
        ("encoding", columns.encoding, _or_null, text),
        ("dead_letter", columns.dead_letter, _origin, letter),
        ("born_ts", columns.born_ms, _micros, time),
        ("store_ts", columns.stored_ms, _micros, time),
        ("delivery_attempt", columns.attempt, None, pa.int32()),
    ]
    return [
        (name, values, pa.array(values if form is None else [form(value) for value in values], kind))
        for name, values, form, kind in fields
    ]


def _or_null(value: str) -> str | None:
    return value or None


def _micros(ms: int) -> int | None:
    return 1000 * ms if 0 < ms <= _TIME_MS_MAX else None


def _origin(letter: DeadLetter | None) -> tuple[Any, ...] | None:
    if letter is None:
        return None
    place = letter.topic, letter.queue, letter.offset, letter.attempts
    return (*place, _micros(letter.first_pop_ms), _or_null(letter.last_client), letter.reason, _micros(letter.dead_ms))
