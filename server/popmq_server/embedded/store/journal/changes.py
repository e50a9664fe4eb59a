"""A transaction that records its changes as bytes, and the function that makes them again.

    change   kind [1] · length of the database's name [1] · of the key [2] · of the value [4] │ name │ key │ value

    PUT      value: as stored, with its checksum
    SPLICE   value: how much of the value before stays (splices.py) │ the bytes that are new
    DELETE   no value
    MOVE     value: the key afterwards

The names of databases are written out, so the order of keys.DATABASES may change from release to release.
"""

import itertools
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

from popmq_server.embedded.store import keys
from popmq_server.embedded.store.datafile import checksums
from popmq_server.embedded.store.journal import splices
from popmq_server.embedded.store.lmdb import Opened, OpenTransaction, Transaction

PUT, SPLICE, DELETE, MOVE = range(4)

#: A longer value may have much of the value before, which costs a read of that.
_SPLICED_MIN = 512
#: LMDB stores a longer value in pages of its own, the first with a head. A growing value gets up to so many: the open
#: chunk of a topic has eight.
_INLINE_MAX, _PAGE, _PAGE_HEAD, _TAKEN_PAGES_MAX = 2000, 4096, 16, 8

#: Databases that are empty most of the time where one message is popped and acked at a time. LMDB frees the page of an
#: empty one, and writes it all the same: so in an open transaction a row after all others stays, which no scan yields.
_EMPTIED = frozenset({"ck", "due"})
LAST_KEY = b"\xff" * 32

_CHANGE = struct.Struct(">BBHI")
#: The name of each database in a change, and its length.
_NAMES = {name: (name.encode(), len(name)) for name in keys.DATABASES}
#: Without checksums: stored values are read and put as they are.
AS_STORED = frozenset(keys.DATABASES)


class Change(NamedTuple):
    """One change of a database."""

    kind: int
    name: str
    key: bytes
    value: bytes


class Lost(Exception):
    """A change is a splice of a row that is not there: the data file is damaged."""


class JournaledTransaction(Transaction):
    """Records what it changes. What a commit and an abort do is for the folding to say (folding.py)."""

    __slots__ = ("_aborted", "_commit_with", "_grown", "recorded")

    def __init__(
        self,
        opened: Opened,
        txn: OpenTransaction,
        commit_with: Callable[["JournaledTransaction"], None],
        aborted: Callable[[], None],
        grown: set[tuple[str, bytes]],
    ) -> None:
        """`aborted` is called after an abort. `grown`: rows whose values have grown by a page since the last fold."""
        self._txn, self._views = txn, True
        _, self._db, self.bare = opened
        self.writes, self.touched = 0, {}
        self._commit_with, self._aborted, self._grown = commit_with, aborted, grown
        #: Parts of the changes so far.
        self.recorded: list[bytes] = []

    def put(self, name: str, key: bytes, value: bytes) -> None:
        if name not in self.bare:  # as `with_checksum`, without its call
            value += crc32(value, crc32(key)).to_bytes(checksums.BYTES, "little")
        size = len(value)
        if size < _SPLICED_MIN:  # as `_record`, without its call
            written, name_bytes = _NAMES[name]
            self.recorded += (_CHANGE.pack(PUT, name_bytes, len(key), size), written, key, value)
        else:
            self._put_long(name, key, value)
        Transaction.put_bare(self, name, key, value)

    def put_bare(self, name: str, key: bytes, value: bytes) -> None:
        if len(value) < _SPLICED_MIN:
            self._record(name, key, value)
        else:
            self._put_long(name, key, value)
        Transaction.put_bare(self, name, key, value)

    def extend(self, name: str, key: bytes, before: memoryview, more: bytes) -> None:
        stays = len(before)
        value, last = b"".join((before, more)), 0
        if name not in self.bare:
            crc = crc32(value, crc32(key)).to_bytes(checksums.BYTES, "little")
            value, more, last = value + crc, more + crc, checksums.BYTES
        written, name_bytes = _NAMES[name]
        head = _CHANGE.pack(SPLICE, name_bytes, len(key), splices.HEAD_BYTES + len(more))
        self.recorded += (head, written, key, splices.HEAD.pack(0, stays, 0, last), more)
        size = stays + len(more)
        if size > _INLINE_MAX and _long_pages(size) > _long_pages(stays + last):
            self._take_pages(name, key, value)
        self._replace(name, key, value)

    def _put_long(self, name: str, key: bytes, value: bytes) -> None:
        """Before a put of a long value: records it, as a splice if that is shorter, and takes pages if it grows."""
        before = self._txn.get(key, db=self._db[name])
        if before is None:
            self._record(name, key, value)
            return
        new = splices.splice(bytes(before), value, 0 if name in self.bare else checksums.BYTES)
        if new is None:
            self._record(name, key, value)
        else:
            self._record(name, key, new, SPLICE)
        if _long_pages(len(value)) > _long_pages(len(before)):
            self._take_pages(name, key, value)

    def _take_pages(self, name: str, key: bytes, value: bytes) -> None:
        """Takes twice the pages for a value that grows again: a nested transaction of LMDB does not give back the pages
        of the value before, and the fold would write each size that it had.
        """
        pages = _long_pages(len(value))
        if (name, key) not in self._grown:
            self._grown.add((name, key))
        elif pages < _TAKEN_PAGES_MAX and (taken := 1 << (pages - 1).bit_length()) > pages:
            super().put_bare(name, key, value + bytes(taken * _PAGE - _PAGE_HEAD - len(value)))

    def _record(self, name: str, key: bytes, value: bytes, kind: int = PUT) -> None:
        written, name_bytes = _NAMES[name]
        self.recorded += (_CHANGE.pack(kind, name_bytes, len(key), len(value)), written, key, value)

    def delete(self, name: str, key: bytes) -> bool:
        if name in _EMPTIED and self._txn.stat(self._db[name])["entries"] == 1:
            super().put(name, LAST_KEY, b"")
        existed = super().delete(name, key)
        if existed:
            self._record(name, key, b"", DELETE)
        return existed

    def scan(self, name: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        found = super().scan(name, prefix, start)
        return itertools.takewhile(lambda entry: entry[0] != LAST_KEY, found) if name in _EMPTIED else found

    def scan_keys(self, name: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[bytes]:
        found = super().scan_keys(name, prefix, start)
        return itertools.takewhile(_is_not_last, found) if name in _EMPTIED else found

    def keys(self, name: str) -> Iterator[memoryview]:
        return itertools.takewhile(_is_not_last, super().keys(name)) if name in _EMPTIED else super().keys(name)

    def move(self, name: str, before: bytes, after: bytes) -> None:
        recorded = len(self.recorded)
        super().move(name, before, after)
        del self.recorded[recorded:]  # the put of the moved row
        self._record(name, before, after, MOVE)

    def commit(self) -> None:
        """Commits, as the folding decides. If it raises MapFull or DiskFault, nothing was committed."""
        self._commit_with(self)

    def abort(self) -> None:
        super().abort()
        self._aborted()

    #: Makes the changes part of the open transaction.
    merge = Transaction._end


def _is_not_last(key: bytes | memoryview) -> bool:
    return key != LAST_KEY


def remove_last_keys(tx: Transaction) -> None:
    """Before a fold: removes what only an open transaction has."""
    for name in _EMPTIED:
        tx.delete(name, LAST_KEY)


def _long_pages(size: int) -> int:
    """Pages of its own that a value has, or is about to have."""
    return 0 if size <= _INLINE_MAX else (size + _PAGE_HEAD - 1) // _PAGE + 1


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
    """Makes a change. `tx` reads and puts values AS_STORED. Raises MapFull; Lost if the row before it is gone."""
    if change.kind == DELETE:
        tx.delete(change.name, change.key)
    elif change.kind == MOVE:
        tx.move(change.name, change.key, change.value)
    else:
        tx.put(change.name, change.key, _whole(tx, change))


def _whole(tx: Transaction, change: Change) -> bytes:
    """The value that a PUT or a SPLICE stored."""
    if change.kind == PUT:
        return change.value
    before = tx.get(change.name, change.key)
    whole = None if before is None else splices.whole(bytes(before), change.value)
    if whole is None:
        raise Lost(change)
    return whole
