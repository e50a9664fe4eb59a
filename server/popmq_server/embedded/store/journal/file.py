"""The journal: a file with the changes of the commit batches that LMDB has not committed yet.

    popmq.journal    record │ record │ record │ what a former record left, or zeros

    record   magic "PMQJ" · identity [8] · commit [8] · number [4] · length [4] · crc of the record before [4] · crc [4]
             │ the changes of one commit batch (changes.py), `length` bytes

`identity` is that of the store (folding.py), `commit` the last commit of LMDB, on which the changes build, `number`
counts from 1 since that commit. The crc covers the record but itself. Each commit of LMDB makes the records before it
void, and the next one is written over them from the beginning of the file: the file keeps its length and its blocks, so
a sync writes no metadata of the file system.

A record is synced before the next one is written, so a power cut can tear only the last one. Whatever does not continue
the chain ends it. But if a whole record of the same commit follows, the one before it was damaged later: `read` then
says so, and a start refuses, since the batches of both were answered.

See docs/decisions/0053-journal.md.
"""

import contextlib
import os
import pathlib
import struct
import zlib
from typing import NamedTuple

from popmq_server.clock import stopwatch
from popmq_server.embedded.store.datafile.own_files import open_own
from popmq_server.embedded.store.folder import JOURNAL_FILE
from popmq_server.embedded.store.journal.syncing import Syncing
from popmq_server.embedded.store.lmdb import DiskFault, fault_of

#: Bytes of the file. LMDB commits before a record would not fit.
JOURNAL_BYTES = 4 << 20
#: Bytes of an identity.
IDENTITY_BYTES = 8

_SECTOR = 512
_MAGIC = b"PMQJ"
_HEAD = struct.Struct(">4s8sQIIII")
_CRC = struct.Struct(">I")
_BEGIN = struct.Struct(">4s8sQ")


class Records(NamedTuple):
    """The records of a journal: all of one identity, that build on one commit."""

    identity: bytes
    commit: int
    changes: list[bytes]  # of each record, in their order
    damaged: bool  # a record that was answered cannot be read; those after it are not in `changes`


class Journal:
    """An open journal, which is appended to. For one thread at a time."""

    def __init__(self, folder: pathlib.Path, *, synced: bool) -> None:
        """Makes the file, or opens it. `synced`: each record is on disk when `append` returns. Raises DiskFault,
        StartError.
        """
        self._synced = synced
        try:
            self._file = open_own(folder / JOURNAL_FILE, os.O_RDWR | os.O_CREAT, is_journal)
            self._syncing = Syncing(open_own(folder / JOURNAL_FILE, os.O_RDWR, is_journal))
        except OSError as error:
            raise fault_of(error) from error
        #: Seconds of the last sync of a record.
        self.sync_s = 0.0
        #: Whether a start may find a record that is not synced, since it could not be voided; until LMDB's next commit.
        self.unsure = False
        self.begin(b"", 0)

    def begin(self, identity: bytes, commit: int) -> None:
        """Voids all records: the next one builds on `commit`."""
        self._head = identity, commit
        self.bytes = self.records = self._crc = 0
        #: Bytes of changes for which a further record has room.
        self.left = JOURNAL_BYTES - _HEAD.size

    def reserve(self) -> None:
        """Takes the disk space of the file. Raises DiskFault."""
        try:
            os.posix_fallocate(self._file, 0, JOURNAL_BYTES)
            os.fsync(self._file)
        except OSError as error:
            raise fault_of(error) from error

    @property
    def stands(self) -> bool:
        """Whether a sync that nobody waits for any more still runs."""
        return self._syncing.busy

    def append(self, changes: bytes, within_s: float | None = None) -> bool:
        """Writes a record, and syncs it. Raises DiskFault; the next record is then written over this one, as also after
        False: the sync takes longer than `within_s`.
        """
        if within_s is not None and self._syncing.busy:
            return False
        head = _HEAD.pack(_MAGIC, *self._head, self.records + 1, len(changes), self._crc, 0)
        crc = zlib.crc32(changes, zlib.crc32(head[: -_CRC.size]))
        record = b"".join((head[: -_CRC.size], _CRC.pack(crc), changes))
        try:
            if (written := os.pwrite(self._file, record, self.bytes)) != len(record):
                _write(self._file, record[written:], self.bytes + written)
        except OSError as error:
            raise fault_of(error) from error
        if self._synced and not self._sync(within_s):
            return False
        self.bytes += len(record)
        self.left -= len(record)
        self.records += 1
        self._crc = crc
        return True

    def _sync(self, within_s: float | None) -> bool:
        """Syncs the record that was written; False: it takes too long. Else than with True the record is voided, since
        a start might find it. Raises DiskFault.
        """
        began, done = stopwatch(), False
        try:
            if within_s is None:
                os.fdatasync(self._file)
                done = True
            else:
                done = self._syncing.sync(within_s)
        except OSError as error:
            raise fault_of(error) from error
        finally:
            if not done:
                self.unsure = not self._voided()
        self.sync_s = stopwatch() - began
        return done

    def _voided(self) -> bool:
        """Voids the record that was written last. Whether the disk took that."""
        try:
            _write(self._file, bytes(_HEAD.size - len(_MAGIC)), self.bytes + len(_MAGIC))
        except OSError:
            return False
        return True

    def changes(self) -> list[bytes]:
        """The changes of the records so far, read from the file. Raises DiskFault if they are not there."""
        try:
            found = _chain(os.pread(self._file, self.bytes, 0), 0)
        except OSError as error:
            raise fault_of(error) from error
        if found is None or len(found.changes) != self.records:
            raise DiskFault(f"{JOURNAL_FILE} cannot be read back", full=False)
        return found.changes

    def empty(self) -> None:
        """Removes all records: the data file has them. A failure leaves void ones."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Closes the file; its records stay."""
        self._syncing.close()
        os.close(self._file)


def read(folder: pathlib.Path) -> Records | None:
    """The records in the journal of a folder; None: there is no file, or no whole record. Only reads. Raises OSError,
    StartError.
    """
    try:
        file = open_own(folder / JOURNAL_FILE, os.O_RDONLY, is_journal)
    except FileNotFoundError:
        return None
    try:
        raw = os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)
    return _chain(raw, 0) or _after_damage(raw)


def empty(folder: pathlib.Path) -> None:
    """Empties the journal of a folder, if there is one: LMDB has all that it had. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        file = os.open(folder / JOURNAL_FILE, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(file, 0)
        finally:
            os.close(file)


def is_journal(head: bytes) -> bool:
    """Whether a journal may begin with these bytes: a record, its first bytes, or a sector that a power cut left."""
    return _MAGIC.startswith(head[:_SECTOR].rstrip(b"\0")) or _MAGIC in head


def _write(file: int, data: bytes, offset: int) -> None:
    """Writes all of the data: the system may take it in parts."""
    left = memoryview(data)
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done


class _Record(NamedTuple):
    identity: bytes
    commit: int
    number: int
    before: int  # crc of the record before
    crc: int
    changes: bytes


def _record(raw: bytes, at: int) -> _Record | None:
    """The record at a place; None if there is no whole one."""
    if len(raw) < at + _HEAD.size:
        return None
    magic, identity, commit, number, length, before, crc = _HEAD.unpack_from(raw, at)
    start = at + _HEAD.size
    changes = raw[start : start + length]
    covered = zlib.crc32(changes, zlib.crc32(raw[at : start - _CRC.size]))
    if magic != _MAGIC or len(changes) != length or covered != crc:
        return None
    return _Record(identity, commit, number, before, crc, changes)


def _chain(raw: bytes, at: int) -> Records | None:
    """The records from a place on, as far as each continues the one before."""
    first = record = _record(raw, at)
    if first is None or record is None or (first.number, first.before) != (1, 0):
        return None
    changes, crc = list[bytes](), 0
    while record is not None and record[:4] == (*first[:2], len(changes) + 1, crc):
        changes.append(record.changes)
        at, crc = at + _HEAD.size + len(record.changes), record.crc
        record = _record(raw, at)
    return Records(*first[:2], changes, _follows(raw, at, first[:2], len(changes)))


def _follows(raw: bytes, at: int, of: tuple[bytes, int], number: int) -> bool:
    """Whether a later record of the same commit follows somewhere: what lies before it was damaged after its sync."""
    begin = _BEGIN.pack(_MAGIC, *of)
    while (at := raw.find(begin, at)) >= 0:
        record = _record(raw, at)
        if record is not None and record.number > number:
            return True
        at += 1
    return False


def _after_damage(raw: bytes) -> Records | None:
    """Where the first record is not whole: no records, but damage if a later one of some commit is the newest there."""
    found = list[_Record]()
    at = raw.find(_MAGIC)
    while at >= 0:
        if (record := _record(raw, at)) is not None:
            found.append(record)
        at = raw.find(_MAGIC, at + 1)
    if not found:
        return None
    newest = max(found, key=lambda record: record.commit)
    return Records(newest.identity, newest.commit, [], damaged=True)
