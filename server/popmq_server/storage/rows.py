"""Rows of settings as JSON: topics, groups, subscriptions, owners, tokens.

A row is read by the names of its fields. Missing fields get the record's defaults. Fields of a later release are
skipped when the row is read and **kept when it is written**: a downgrade and a later upgrade lose no setting. A write
takes the unknown fields from the stored row, so memory does not keep them.
"""

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

from popmq_server.errors import StartError
from popmq_server.storage.lmdb import Transaction
from popmq_server.storage.table import StoreChange


def store_rows(
    name: str, record: Any, pack: Callable[[Any], bytes], said: Callable[[Any], dict[str, Any]]
) -> StoreChange:
    """A store function for a table of `record`s (NamedTuples); `said` returns the fields to write."""
    known = frozenset(record._fields)

    def store(tx: Transaction, key: Any, _: Any, value: Any) -> None:
        raw = pack(key)
        if value is None:
            tx.delete(name, raw)
            return
        stored = tx.get(name, raw)
        fields = {} if stored is None else _unknown(stored, known)
        tx.put(name, raw, json.dumps(said(value) | fields, ensure_ascii=False).encode())

    return store


def _unknown(stored: memoryview, known: frozenset[str]) -> dict[str, Any]:
    return {name: field for name, field in json.loads(bytes(stored)).items() if name not in known}


def read_row(record: Any, stored: bytes | memoryview) -> dict[str, Any]:
    """The fields of a stored row that `record` has."""
    return {name: field for name, field in json.loads(bytes(stored)).items() if name in record._fields}


def every_field(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = value._asdict()
    return fields


def without_defaults(value: Any) -> dict[str, Any]:
    """The fields that differ from their defaults: for tables of many rows, such as lite topics."""
    usual = value._field_defaults
    return {name: field for name, field in value._asdict().items() if name not in usual or usual[name] != field}


class RowReader:
    """Scans tables at a start and remembers the last row, so that the error of a failed start can name it."""

    #: What code that unpacks a damaged row raises.
    ERRORS = (ValueError, LookupError, TypeError, AttributeError, struct.error)

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.at = ("meta", b"")

    def scan(self, name: str) -> Iterator[tuple[bytes, memoryview]]:
        for key, value in self.tx.scan(name):
            self.at = (name, bytes(key))
            yield key, value

    def unreadable(self, error: Exception) -> StartError:
        name, key = self.at
        row = f"row {key.hex()} of table {name!r}" if key else f"a row of table {name!r}"
        return StartError(
            f"{row} cannot be read ({error}): the store is damaged; start on a backup, "
            "or with the release that wrote this store if it is a later one"
        )
