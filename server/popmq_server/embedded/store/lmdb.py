"""All calls of LMDB: open an environment, read and write in transactions, copy. store.py opens a data folder with them.

py-lmdb reports a full disk at commit as `lmdb.Error: Input/output error`, and a full map as MapFullError; this module
raises DiskFault and MapFull instead.
"""

import contextlib
import errno
import itertools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias, cast
from zlib import crc32

import lmdb

from popmq_server.embedded.store import keys
from popmq_server.embedded.store.datafile import checksums
from popmq_server.embedded.store.folder import DATA_FILE, JOURNAL_FILE
from popmq_server.errors import CommitFailed, StartError

#: Databases whose new keys are greater than all others: with `append` LMDB fills a page before it begins the next.
#: Otherwise it splits a full page in halves, and ascending keys never fill the lower half.
_ASCENDING = frozenset({"log"})
#: Messages of the system, and the cure for each. py-lmdb passes the system's messages on, and not the error numbers.
_REFUSED = {
    errno.ENOSPC: "the disk is full: make room on it",
    errno.EDQUOT: "the disk quota of this user is used up: raise it, or make room",
    errno.EFBIG: "a file may not be larger here: raise the limit of the process for files (ulimit -f, LimitFSIZE=), or "
    "use a file system with larger files",
    errno.EROFS: "the file system is mounted read-only: look for its cause in dmesg, and mount it for writing",
    errno.EIO: "the disk fails: look for its cause in dmesg, and mend it",
    # Before EMFILE, whose message is the beginning of this one's.
    errno.ENFILE: "the system has no files left (fs.file-max): raise its limit, or end other programs",
    errno.EMFILE: "this process has no files left: raise its limit of open files (ulimit -n, LimitNOFILE=)",
    errno.ENOMEM: "this process has no memory or address space left: raise its limit (ulimit -v, LimitAS=), or name a "
    "smaller --max-size",
    errno.EACCES: "this user may not: run this as the owner of the folder",
    errno.EPERM: "this user may not: run this as the owner of the folder",
}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


#: Rows whose checksums are verified together.
_TOGETHER = 1024


#: A database as lmdb has it.
Database: TypeAlias = Any
#: An environment, and a transaction that others are nested in, as lmdb has them.
Environment: TypeAlias = Any
OpenTransaction: TypeAlias = Any


class Opened(NamedTuple):
    """An open data file: its environment, its databases, and those whose rows have no checksum."""

    env: Environment
    db: dict[str, Database]
    bare: frozenset[str]


class MapFull(Exception):
    """A put found no page: the map has reached its size."""


class DiskFault(Exception):
    """A commit, a sync or a copy failed. `full`: the system says that the disk, or a quota, is full.

    None: it does not say so, and `Store.disk_free` shows it, since a write to a full disk may be cut short.
    """

    def __init__(self, why: str, full: bool | None = None) -> None:
        super().__init__(why)
        self.full = full


def refused_by_system(error: Exception) -> tuple[int, str]:
    """(the number of the system's error, a sentence with its cure); (0, "") for another error."""
    said = str(error)
    number = error.errno if isinstance(error, OSError) else None
    found = next((each for each in _REFUSED if each == number or os.strerror(each) in said), 0)
    return found, f"{said}; {_REFUSED[found]}" if found else ""


def fault_of(error: lmdb.Error | OSError) -> DiskFault:
    """The error for a write that the system, or LMDB, refused. LMDB does not always say that the disk is full."""
    number, why = refused_by_system(error)
    return DiskFault(why or str(error), True if number in _FULL else False if isinstance(error, OSError) else None)


class Transaction:
    """One LMDB transaction over all databases. It returns values as views, which are valid until the next put.

    It adds checksums to rows and verifies them (checksums.py), except in the databases `bare`. All methods that return
    values raise UnreadableRow for a row that is damaged and cannot be corrected.
    """

    __slots__ = ("_db", "_txn", "_views", "bare", "touched", "writes")

    def __init__(
        self, txn: lmdb.Transaction, db: dict[str, Database], views: bool = True, bare: frozenset[str] = checksums.BARE
    ) -> None:
        self._txn: OpenTransaction = txn
        self._db = db
        self._views = views
        self.bare = bare
        self.writes = 0
        #: The databases of which rows were written, as keys: a set would cost a call for each put.
        self.touched: dict[str, None] = {}

    def get(self, name: str, key: bytes) -> memoryview | None:
        """The value, or None. Valid until the next put."""
        stored: memoryview | None = self._txn.get(key, db=self._db[name])
        if stored is None or name in self.bare:
            return stored
        if crc32(stored, crc32(key)) == checksums.RESIDUE:  # as `opened`, without its call
            return stored[: -checksums.BYTES]
        mended: memoryview = checksums.opened(name, key, stored)
        return mended

    def value_of(self, name: str, key: bytes, stored: checksums.Stored) -> checksums.Stored:
        """The value of a row that a cursor has read."""
        return stored if name in self.bare else checksums.opened(name, key, stored)

    def put(self, name: str, key: bytes, value: bytes) -> None:
        """Puts an entry. After MapFull the transaction must be aborted."""
        if name not in self.bare:
            value = checksums.with_checksum(key, value)
        self.writes += 1
        self.touched[name] = None
        try:  # as `put_bare`, without its call
            if name in _ASCENDING and self._txn.put(key, value, append=True, db=self._db[name]):
                return
            self._txn.put(key, value, db=self._db[name])
        except lmdb.MapFullError as error:
            raise MapFull from error

    def put_bare(self, name: str, key: bytes, value: bytes) -> None:
        """Puts a value as it is, without a checksum: for the rows of checksums.BARE_META, and for stored values."""
        self.writes += 1
        self.touched[name] = None
        try:
            if name in _ASCENDING and self._txn.put(key, value, append=True, db=self._db[name]):
                return
            self._txn.put(key, value, db=self._db[name])
        except lmdb.MapFullError as error:
            raise MapFull from error

    def _replace(self, name: str, key: bytes, value: bytes) -> None:
        """Puts another value of an entry that exists, as it is: LMDB does not try to append it."""
        self.writes += 1
        self.touched[name] = None
        try:
            self._txn.put(key, value, db=self._db[name])
        except lmdb.MapFullError as error:
            raise MapFull from error

    def extend(self, name: str, key: bytes, before: memoryview, more: bytes) -> None:
        """Puts a value that is the one before, as `get` returned it, and more bytes."""
        self.put(name, key, b"".join((before, more)))

    def delete(self, name: str, key: bytes) -> bool:
        """Deletes an entry; returns whether it existed."""
        self.writes += 1
        self.touched[name] = None
        try:
            return bool(self._txn.delete(key, db=self._db[name]))
        except lmdb.MapFullError as error:
            raise MapFull from error

    def move(self, name: str, before: bytes, after: bytes) -> None:
        """Gives an entry another key, unless that exists: then it removes the entry.

        It walks to the entry, which need not lie where its key belongs; removing it mends the order of its page.
        """
        cursor = self.cursor(name)
        more = cursor.first()
        while more and cursor.key() != before:
            more = cursor.next()
        if more:
            value = bytes(self.value_of(name, after, cursor.value()))
            self.writes += 1
            self.touched[name] = None
            cursor.delete()
            if self.get(name, after) is None:
                self.put(name, after, value)

    def count(self, name: str) -> int:
        """The number of entries of a database."""
        return int(self._txn.stat(self._db[name])["entries"]) if name in self._db else 0

    def cursor(self, name: str) -> lmdb.Cursor:
        """A cursor over one database; its views are valid until the next put. `value_of` reads its values."""
        made: lmdb.Cursor = self._txn.cursor(db=self._db[name])
        return made

    def first(self, name: str, prefix: bytes = b"") -> tuple[bytes, memoryview] | None:
        """The first entry whose key starts with `prefix`."""
        cursor = self.cursor(name)
        if not cursor.set_range(prefix) or not (key := bytes(cursor.key())).startswith(prefix):
            return None
        return key, self.value_of(name, key, cursor.value())

    def last(self, name: str, prefix: bytes = b"") -> tuple[bytes, memoryview] | None:
        """The last entry whose key starts with `prefix`."""
        return self.floor(name, prefix + b"\xff" * (64 - len(prefix)), prefix)

    def floor(self, name: str, key: bytes, prefix: bytes = b"") -> tuple[bytes, memoryview] | None:
        """The entry with the greatest key ≤ `key` that starts with `prefix`.

        LMDB has no such call: this goes to the first key ≥, then one step back.
        """
        cursor = self.cursor(name)
        if cursor.set_range(key) and cursor.key() == key:
            pass
        elif not (cursor.prev() if cursor.key() else cursor.last()):
            return None
        found = bytes(cursor.key())
        return (found, self.value_of(name, found, cursor.value())) if found.startswith(prefix) else None

    def scan(self, name: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Entries in key order from max(prefix, start), while they start with `prefix`. No put during the iteration.

        A put would move the pages under the cursor: collect first, then change.
        """
        cursor = self.cursor(name)
        more = cursor.set_range(max(prefix, start)) if prefix or start else cursor.first()
        while more:
            key = bytes(cursor.key())
            if not key.startswith(prefix):
                return
            yield key, self.value_of(name, key, cursor.value())
            more = cursor.next()

    def scan_keys(self, name: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[bytes]:
        """The keys of `scan`. It reads no values, so a damaged one does not stop it. No put during the iteration."""
        cursor = self.cursor(name)
        more = cursor.set_range(max(prefix, start)) if prefix or start else cursor.first()
        while more:
            key = bytes(cursor.key())
            if not key.startswith(prefix):
                return
            yield key
            more = cursor.next()

    def keys(self, name: str) -> Iterator[memoryview]:
        """All keys of a database, without their values: a third of the cost of a scan. No put during the iteration."""
        cursor = self.cursor(name)
        return cast("Iterator[memoryview]", cursor.iternext(keys=True, values=False) if cursor.first() else iter(()))

    def copies(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """All entries of a database, copied. No put during the iteration."""
        cursor = self.cursor(name)
        entries = cast("Iterator[tuple[bytes, bytes]]", cursor.iternext() if cursor.first() else iter(()))
        copies = entries if not self._views else ((bytes(key), bytes(value)) for key, value in entries)
        return copies if name in self.bare else itertools.chain.from_iterable(_opened(name, copies))

    def broken(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a database that do not match their checksum, as stored."""
        for key, stored in self.cursor(name).iternext() if name not in self.bare else ():
            if not checksums.is_whole(key, stored) and not checksums.is_bare(name, bytes(key)):
                yield bytes(key), bytes(stored)

    def used_pages(self) -> int:
        """Pages with data, summed over the databases: free pages of the file are not counted."""
        total = 0
        for db in self._db.values():
            stat = self._txn.stat(db)
            total += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return total

    def commit(self) -> None:
        """Commits, with a sync unless sync is "none". If it raises MapFull or DiskFault, nothing was committed."""
        self._end()

    def _end(self) -> None:
        """Commits; a nested transaction becomes part of the one around it."""
        try:
            self._txn.commit()
        except lmdb.MapFullError as error:
            raise MapFull from error
        except lmdb.Error as error:
            raise fault_of(error) from error

    def abort(self) -> None:
        self._txn.abort()


def begin_in(
    env: Environment, around: OpenTransaction | None = None, *, write: bool = True, views: bool = True
) -> OpenTransaction:
    """Begins a transaction, nested in `around` if there is one. Raises CommitFailed if LMDB has given the file up after
    a failed write.
    """
    try:
        return env.begin(parent=around, write=write, buffers=views)
    except lmdb.Error as error:
        raise CommitFailed(f"the store takes no more transactions: {error}") from error


class OlderTransaction(Transaction):
    """A read transaction over a file of any release: a database that the file lacks is empty."""

    __slots__ = ()

    def get(self, name: str, key: bytes) -> memoryview | None:
        return super().get(name, key) if name in self._db else None

    def cursor(self, name: str) -> lmdb.Cursor:
        return super().cursor(name) if name in self._db else cast("lmdb.Cursor", _NoRows())


class _NoRows:
    """A cursor over nothing."""

    def _none(self) -> bool:
        return False

    first = last = next = prev = _none

    def set_range(self, _: bytes) -> bool:
        return False

    def key(self) -> bytes:
        return b""

    def iternext(self, **_: bool) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


def _opened(name: str, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """The entries with their values, in pieces: verified together they cost no Python call each."""
    while piece := list(itertools.islice(entries, _TOGETHER)):
        keys_, stored = [key for key, _ in piece], [value for _, value in piece]
        yield zip(keys_, checksums.all_opened(name, keys_, stored), strict=True)


def open_environment(folder: pathlib.Path, map_bytes: int, sync: str) -> lmdb.Environment:
    """Opens LMDB for one writer and short reads. No read-ahead: pops read recent messages, or very old ones."""
    try:
        return lmdb.open(
            str(folder / DATA_FILE),
            subdir=False,
            map_size=map_bytes,
            max_dbs=len(keys.DATABASES),
            mode=0o600,
            sync=sync != "none",
            metasync=sync == "full",
            writemap=False,
            meminit=False,
            readahead=False,
            max_readers=16,
        )
    except lmdb.Error as error:
        cure = ""
        if os.strerror(errno.ENOMEM) in str(error):
            cure = f"; its limit takes {map_bytes:,} bytes of addresses: name a smaller --max-size, or raise ulimit -v"
        raise StartError(f"{folder / DATA_FILE} cannot be opened: {error}{cure}") from error


def meta_row(env: lmdb.Environment, key: bytes) -> bytes | None:
    """A row of `meta`, read before the databases are open; None if there is none, or the store is new."""
    with env.begin() as txn:
        try:
            return txn.get(key, db=env.open_db(b"meta", txn=txn, create=False))
        except lmdb.NotFoundError:
            return None


def sync_environment(env: lmdb.Environment) -> None:
    """Makes all commits durable. Raises DiskFault."""
    try:
        env.sync(True)
    except lmdb.Error as error:
        raise fault_of(error) from error


def write_copy(env: lmdb.Environment, handle: int) -> None:
    """Writes a compacted copy into an open file: the same entries, without free pages. Raises DiskFault."""
    try:
        env.copyfd(handle, compact=True)
    except lmdb.Error as error:
        raise fault_of(error) from error


def copy_environment(folder: pathlib.Path, map_bytes: int, handle: int) -> None:
    """Writes a compacted copy of a store that another process has open into an open file. Raises DiskFault.

    `map_bytes`: the map size of that process. A smaller map would fail after a commit that made the file longer.
    """
    path = str(folder / DATA_FILE)
    try:
        with lmdb.open(path, map_bytes, subdir=False, readonly=True, readahead=False, max_readers=16) as env:
            write_copy(env, handle)
    except lmdb.Error as error:
        raise fault_of(error) from error


def open_unlocked(path: pathlib.Path, uncommitted_bytes: int = 0) -> lmdb.Environment:
    """Opens a file that no process writes, for reading only: LMDB makes no lock file. `uncommitted_bytes`: for a write
    transaction that is never committed, with so much room; the file stays as it is. Raises StartError where LMDB could
    not begin one.
    """
    if uncommitted_bytes and not os.access(path, os.W_OK):
        raise StartError(
            f"{JOURNAL_FILE} has changes that {path} lacks. A check adds them in memory only, but LMDB does that for a "
            f"file that this user may write to: copy {path.parent}, and check the copy"
        )
    return lmdb.open(
        str(path),
        path.stat().st_size + uncommitted_bytes,
        subdir=False,
        readonly=not uncommitted_bytes,
        create=False,
        lock=False,
        max_dbs=len(keys.DATABASES),
        readahead=False,
    )


def existing_databases(env: lmdb.Environment) -> dict[str, Database]:
    """The databases of a file that is only read, without those that it lacks."""
    found = {}
    for name in keys.DATABASES:
        with contextlib.suppress(lmdb.NotFoundError):
            found[name] = env.open_db(name.encode(), create=False)
    return found


@contextlib.contextmanager
def reading_copy(path: pathlib.Path, bare: frozenset[str]) -> Iterator[Transaction]:
    """A read transaction over a copy that no other process uses. `bare`: as of a transaction over the original."""
    env = open_unlocked(path)
    try:
        db = existing_databases(env)
        with env.begin(buffers=True) as txn:
            yield OlderTransaction(txn, db, bare=bare)
    finally:
        env.close()


@contextlib.contextmanager
def damage_named(folder: pathlib.Path) -> Iterator[None]:
    """Raises StartError with the cure where LMDB meets damaged pages, or the disk accepts no write."""
    try:
        yield
    except (lmdb.Error, OSError) as error:
        _, why = refused_by_system(error)
        if why or isinstance(error, OSError):
            raise StartError(f"{folder} cannot be used: {why or error}") from error
        raise damaged(folder, str(error)) from error


def damaged(folder: pathlib.Path, why: str) -> StartError:
    """The data file is damaged; `why` says where."""
    return StartError(
        f"{folder / DATA_FILE} is damaged: {why}; start on a backup, or rescue its readable part with "
        f"`popmq check --repair {folder}`"
    )
