"""Rows of settings as JSON: topics, groups, subscriptions, owners, tokens.

A row is read by the names of its fields. What it lacks is the record's default; what only a later release knows is left
out when the row is read and **kept when it is written**: after a step back to an older release and forward again, no
setting is lost. The stored row itself remembers the unknown fields, so memory and aborted commits need not.
"""

import json
from collections.abc import Callable
from typing import Any

from popmq_server.storage.lmdb import Transaction
from popmq_server.storage.table import StoreChange


def store_rows(
    name: str, record: Any, pack: Callable[[Any], bytes], said: Callable[[Any], dict[str, Any]]
) -> StoreChange:
    """A store function for a table of `record`s (NamedTuples); `said` chooses the fields that are written."""
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
    """For rows that are many, as those of lite topics."""
    usual = value._field_defaults
    return {name: field for name, field in value._asdict().items() if name not in usual or usual[name] != field}
