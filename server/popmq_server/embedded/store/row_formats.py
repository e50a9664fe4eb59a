"""Rows of the tables: how a change is written into a database, and how all rows are read at a start.

    packed     keys and values of fixed width        positions, counters
    json_rows  values as JSON                        topics, groups, subscriptions, owners, tokens

A JSON row is read by the names of its fields. Missing fields get the record's defaults. Fields of a later release are
skipped when the row is read and **kept when it is written**: a downgrade and a later upgrade lose no setting. A write
takes the unknown fields from the stored row, so memory does not keep them.
"""

import json
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from popmq_server.embedded.store.keys import (
    I64,
    STAT_KEY,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.table import Item, StoreChange
from popmq_server.errors import UnreadableRow

#: The fields of a row, by name: of several types.
Fields = dict[str, Item]
Write = Callable[[Item], bytes]
Read = Callable[[bytes | memoryview], Item]


#: A class of NamedTuples.
Record = type[Item]


class KeyFormat(NamedTuple):
    """The bytes of a key, in both directions."""

    pack: Callable[[Item], bytes]
    unpack: Callable[[bytes], Item]


#: A topic's or group's id.
ID = KeyFormat(U32.pack, lambda raw: U32.unpack(raw)[0])
#: G, T.
PAIR = KeyFormat(lambda key: STAT_KEY.pack(*key), STAT_KEY.unpack)


class RowReader:
    """Scans tables at a start and remembers the last row, so that the error of a failed start can name it."""

    #: Exceptions that code raises when it unpacks a damaged row.
    ERRORS = (ValueError, LookupError, TypeError, AttributeError, struct.error)

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.at = ("meta", b"")

    def scan(self, name: str, prefix: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        for key, value in self.tx.scan(name, prefix):
            self.at = (name, bytes(key))
            yield key, value

    def unreadable(self, error: Exception) -> UnreadableRow:
        return UnreadableRow(*self.at, str(error))


class RowFormat(NamedTuple):
    """The rows of one table. `store` writes a change; `read` returns all keys and values."""

    store: StoreChange
    read: Callable[[RowReader], Iterator[tuple[Item, Item]]]


def packed(name: str, key: struct.Struct, write: Write, read: Read) -> RowFormat:
    """Rows whose keys are tuples that pack into fixed fields."""
    pack = key.pack

    def store(tx: Transaction, where: Item, _: Item, value: Item) -> None:
        raw = pack(*where)
        if value is None:
            tx.delete(name, raw)
        else:
            tx.put(name, raw, write(value))

    return RowFormat(store, lambda reader: ((key.unpack(raw), read(value)) for raw, value in reader.scan(name)))


def packed_keys(name: str, key: KeyFormat, write: Write, read: Read, prefix: bytes = b"") -> RowFormat:
    """Rows with any keys; `read` sees only those that begin with `prefix`."""

    def store(tx: Transaction, where: Item, _: Item, value: Item) -> None:
        raw = key.pack(where)
        if value is None:
            tx.delete(name, raw)
        else:
            tx.put(name, raw, write(value))

    return RowFormat(store, lambda reader: ((key.unpack(raw), read(value)) for raw, value in reader.scan(name, prefix)))


def numbers(record: Record) -> tuple[Write, Read]:
    """Records of signed numbers. A store of an older format has fewer of them: the missing ones are zero."""
    count = len(record._fields)
    pack = struct.Struct(f">{count}q").pack

    def read(raw: bytes | memoryview) -> Item:
        return record(*(I64.unpack_from(raw, 8 * place)[0] if 8 * place < len(raw) else 0 for place in range(count)))

    return (lambda value: pack(*value)), read


def u32(raw: bytes | memoryview) -> int:
    number: int = U32.unpack(raw)[0]
    return number


def u64(raw: bytes | memoryview) -> int:
    number: int = U64.unpack(raw)[0]
    return number


def every_field(value: Item) -> Fields:
    fields: Fields = value._asdict()
    return fields


def without_defaults(value: Item) -> Fields:
    """The fields that differ from their defaults: for tables of many rows, such as lite topics."""
    usual = value._field_defaults
    return {name: field for name, field in value._asdict().items() if name not in usual or usual[name] != field}


def json_rows(
    name: str,
    record: Record,
    key: KeyFormat,
    said: Callable[[Item], Fields] = every_field,
    made: Callable[[Item, Fields], Item] | None = None,
) -> RowFormat:
    """Rows of `record`s (NamedTuples); `said` returns the fields to write, `made` a record of a key and its fields."""
    known = frozenset(record._fields)

    def store(tx: Transaction, where: Item, _: Item, value: Item) -> None:
        raw = key.pack(where)
        if value is None:
            tx.delete(name, raw)
            return
        stored = tx.get(name, raw)
        fields = {} if stored is None else _unknown(stored, known)
        tx.put(name, raw, json.dumps(said(value) | fields, ensure_ascii=False).encode())

    def read(reader: RowReader) -> Iterator[tuple[Item, Item]]:
        for raw, value in reader.scan(name):
            where, fields = key.unpack(raw), _known(record, value)
            yield where, made(where, fields) if made else record(**fields)

    return RowFormat(store, read)


def _unknown(stored: memoryview, known: frozenset[str]) -> Fields:
    return {name: field for name, field in json.loads(bytes(stored)).items() if name not in known}


def _known(record: Record, stored: bytes | memoryview) -> Fields:
    """The fields of a stored row that `record` has."""
    return {name: field for name, field in json.loads(bytes(stored)).items() if name in record._fields}
