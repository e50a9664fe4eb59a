"""A transaction that records its changes as bytes, and the function that makes them again.

    change   kind [1] · length of the database's name [1] · of the key [2] · of the value [4] │ name │ key │ value

    PUT      value: as stored, with its checksum
    EXTEND   value: length [4] of the first bytes that stay as they are │ the bytes after them
    DELETE   no value
    MOVE     value: the key afterwards

A lone send puts its whole open chunk again (decision 0002), with some bytes more: EXTEND has only these. The names of
databases are written out, so the order of keys.DATABASES may change from release to release.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from popmq_server.embedded.store import keys
from popmq_server.embedded.store.datafile import checksums
from popmq_server.embedded.store.lmdb import Transaction

PUT, EXTEND, DELETE, MOVE = range(4)

#: A longer value may be an extended one, which costs a read of the value before.
_EXTENDED_MIN = 512

_CHANGE = struct.Struct(">BBHI")
_LENGTH = struct.Struct(">I")
_NAMES = {name: name.encode() for name in keys.DATABASES}
#: Without checksums: stored values are read and put as they are.
AS_STORED = frozenset(keys.DATABASES)


class Change(NamedTuple):
    """One change of a database."""

    kind: int
    name: str
    key: bytes
    value: bytes


class Lost(Exception):
    """A change extends a row that is not there: the data file is damaged."""


class JournaledTransaction(Transaction):
    """Records what it changes. What a commit and an abort do is for the folding to say (folding.py)."""

    __slots__ = ("_aborted", "_commit_with", "_recorded")

    def record_for(self, commit_with: Callable[["JournaledTransaction"], None], aborted: Callable[[], None]) -> None:
        """Begins to record. Called once, before the first change. `aborted` is called after an abort."""
        self._commit_with, self._aborted = commit_with, aborted
        self._recorded: list[bytes] = []

    def put(self, name: str, key: bytes, value: bytes) -> None:
        self.put_bare(name, key, value if name in self.bare else checksums.with_checksum(key, value))

    def put_bare(self, name: str, key: bytes, value: bytes) -> None:
        size = len(value)
        if size < _EXTENDED_MIN:  # as `_record`, without its call
            written = _NAMES[name]
            self._recorded += (_CHANGE.pack(PUT, len(written), len(key), size), written, key, value)
        else:
            self._record_long(name, key, value)
        super().put_bare(name, key, value)

    def _record_long(self, name: str, key: bytes, value: bytes) -> None:
        """Records a put as what it adds to the value before, if it begins as that does."""
        before = self._txn.get(key, db=self._db[name])
        if before is not None:
            same = len(before) if name in self.bare else len(before) - checksums.BYTES
            if 0 < same <= len(value) and value.startswith(bytes(before[:same])):
                self._record(name, key, _LENGTH.pack(same) + value[same:], EXTEND)
                return
        self._record(name, key, value)

    def _record(self, name: str, key: bytes, value: bytes, kind: int = PUT) -> None:
        written = _NAMES[name]
        self._recorded += (_CHANGE.pack(kind, len(written), len(key), len(value)), written, key, value)

    def delete(self, name: str, key: bytes) -> bool:
        existed = super().delete(name, key)
        if existed:
            self._record(name, key, b"", DELETE)
        return existed

    def move(self, name: str, before: bytes, after: bytes) -> None:
        recorded = len(self._recorded)
        super().move(name, before, after)
        del self._recorded[recorded:]  # the put of the moved row
        self._record(name, before, after, MOVE)

    def changes(self) -> bytes:
        """The changes so far."""
        return b"".join(self._recorded)

    def commit(self) -> None:
        """Commits, as the folding decides. If it raises MapFull or DiskFault, nothing was committed."""
        self._commit_with(self)

    def abort(self) -> None:
        super().abort()
        self._aborted()

    def merge(self) -> None:
        """Makes the changes part of the open transaction."""
        self._end()


def decoded(changes: bytes) -> Iterator[Change]:
    """The changes of a record of the journal."""
    at = 0
    while at < len(changes):
        kind, name_bytes, key_bytes, value_bytes = _CHANGE.unpack_from(changes, at)
        key_at = at + _CHANGE.size + name_bytes
        value_at = key_at + key_bytes
        name, key = changes[at + _CHANGE.size : key_at].decode(), changes[key_at:value_at]
        at = value_at + value_bytes
        yield Change(kind, name, key, changes[value_at:at])


def make_again(tx: Transaction, change: Change) -> None:
    """Makes a change. `tx` reads and puts values AS_STORED. Raises MapFull; Lost if the row that it extends is gone."""
    if change.kind == DELETE:
        tx.delete(change.name, change.key)
    elif change.kind == MOVE:
        tx.move(change.name, change.key, change.value)
    else:
        tx.put(change.name, change.key, _whole(tx, change))


def _whole(tx: Transaction, change: Change) -> bytes:
    """The value that a PUT or an EXTEND stored."""
    if change.kind == PUT:
        return change.value
    (same,) = _LENGTH.unpack_from(change.value)
    before = tx.get(change.name, change.key)
    if before is None or len(before) < same:
        raise Lost(change)
    return bytes(before[:same]) + change.value[_LENGTH.size :]
