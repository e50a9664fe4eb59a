"""The data folder: its files, its lock, and the system's limits for it."""

import contextlib
import errno
import fcntl
import itertools
import logging
import mmap
import os
import pathlib
import re
import resource
import sys
import tempfile

from popmq_server.embedded.store.datafile import file_system, last_commit
from popmq_server.embedded.store.datafile.history_file import HISTORY_FILE, HISTORY_NEW_FILE
from popmq_server.embedded.store.datafile.own_files import (
    Content,
    content_of,
    foreign,
    is_lock,
    is_zeros,
    open_own,
)
from popmq_server.embedded.store.fault_note import NOTE_FILE, is_note
from popmq_server.embedded.store.reserve import RESERVE_FILE
from popmq_server.errors import StartError

log = logging.getLogger("popmq.store")

DATA_FILE = "popmq.mdb"
#: LMDB's own, with its table of readers.
LMDB_LOCK_FILE = DATA_FILE + "-lock"
LOCK_FILE = "popmq.lock"
#: Changes that the data file does not have yet (journal/).
JOURNAL_FILE = "popmq.journal"
#: An unfinished compacted copy (compact.py); one left by an interrupted run is useless.
COMPACT_FILE = "popmq.mdb.compact"
#: The store that a repair writes (repair.py), and the file that it replaced; that of a second repair ends in `.1`.
REPAIR_FOLDER = "popmq.repair"
DAMAGED_FILE = "popmq.mdb.damaged"
#: Files of PopMQ; a folder with other files and no data file is not a PopMQ data folder.
OUR_FILES = {
    DATA_FILE,
    LMDB_LOCK_FILE,
    LOCK_FILE,
    RESERVE_FILE,
    NOTE_FILE,
    COMPACT_FILE,
    REPAIR_FOLDER,
    DAMAGED_FILE,
    HISTORY_FILE,
    HISTORY_NEW_FILE,
    JOURNAL_FILE,
    last_commit.COMMIT_FILE,
}

#: The limit of the system for one file, in words.
FILE_LIMIT = "limit of the process for files (ulimit -f, LimitFSIZE=) or of the file system"
#: By so many bytes a data file grows at least before its limit matters to a commit.
_GROWTH = 1 << 20
#: Files that a start may write over, with the test of what they begin with.
_WRITTEN_OVER = {LMDB_LOCK_FILE: is_lock, RESERVE_FILE: is_zeros, NOTE_FILE: is_note}
#: The process id, as this release and earlier ones write it; a power cut may leave zeros.
_PROCESS = re.compile(rb"[\d\s\0]{,32}")


class NoMapping(Exception):
    """The system refuses this process a mapping of the size; nothing has changed."""


def data_file(folder: pathlib.Path, *, rescues: bool = False) -> pathlib.Path:
    """The data file of a stopped broker. Raises StartError: there is none, it has no store, or it is not accessible;
    unless `rescues`, also where pages are missing.
    """
    file = folder / DATA_FILE
    try:
        content = _content(file, rescues=rescues)
    except (FileNotFoundError, NotADirectoryError):
        raise StartError(f"{folder} is not a PopMQ data folder: it has no {DATA_FILE}") from None
    if content in (Content.NEW, Content.TORN):
        raise StartError(f"{file} has no store: {content.value}; `popmq serve` makes one there")
    return file


def _content(file: pathlib.Path, *, rescues: bool = False) -> Content:
    """The state of the data file. Raises FileNotFoundError, NotADirectoryError; StartError if it holds no store."""
    try:
        handle = open_own(file, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise StartError(f"{file} cannot be read: {error.strerror}; run this as its owner") from error
    try:
        content, size = content_of(handle), os.fstat(handle).st_size
    finally:
        os.close(handle)
    if content is Content.FOREIGN:
        raise foreign(file)
    if content is Content.CUT or (content is Content.PART and not rescues):
        raise StartError(
            f"{file} is truncated: it ends after {size:,} bytes; start on a backup, or name another folder"
        )
    return content


def owner_of(folder: pathlib.Path) -> os.stat_result:
    """Returns the owner for new files of a folder: that of the data file, or of the folder before there is one."""
    try:
        return (folder / DATA_FILE).stat()
    except FileNotFoundError:
        return folder.stat()


def give_to_owner(file: int | pathlib.Path, owner: os.stat_result) -> None:
    """Gives a file that root made to the owner of the data folder, whose broker could not open it otherwise. Never what
    a link leads to, which that owner may have put there.
    """
    with contextlib.suppress(OSError):  # only root gives files away
        os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=isinstance(file, int))


def keep_owner(handle: int, original: os.stat_result) -> None:
    """Gives the permissions and the owner of the original to the open file that replaces it."""
    os.fchmod(handle, original.st_mode & 0o777)
    give_to_owner(handle, original)


class FolderLock:
    """The locks of one process on a data folder, until `close`. Raises StartError.

    The directory itself is locked: a lock file can be removed while a broker runs. The lock file is locked too, for
    earlier releases, and has the process id.
    """

    def __init__(self, folder: pathlib.Path, *, writes: bool = True) -> None:
        """Locks the folder. Without `writes` no file is made or changed."""
        self._folder = folder
        self._handles: list[int] = []
        try:
            self._take_directory()
            if not writes:
                self._take_existing()
                return
            file = self._take(LOCK_FILE, os.O_RDWR | os.O_CREAT)
            give_to_owner(file, owner_of(self._folder))
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BaseException:
            self.close()
            raise

    def _take_directory(self) -> None:
        try:
            handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._handles.append(handle)
            self._lock(handle)
        except OSError as error:
            log.debug("%s itself cannot be locked, only its %s: %s", self._folder, LOCK_FILE, error)

    def _take_existing(self) -> None:
        try:
            self._take(LOCK_FILE, os.O_RDONLY)
        except OSError as error:
            if not self._handles:
                raise StartError(f"{self._folder} cannot be locked: {error.strerror}; run this as its owner") from error

    def _take(self, name: str, flags: int) -> int:
        """Opens and locks a file of the folder. Raises OSError; StartError where another process has locked it."""
        handle = open_own(self._folder / name, flags, _PROCESS.fullmatch)
        self._handles.append(handle)
        self._lock(handle)
        return handle

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StartError(
                f"{self._folder} is in use by another PopMQ (process {self._holder()}): stop it, or name another folder"
            ) from error

    def _holder(self) -> str:
        """The process id in the lock file."""
        try:
            handle = open_own(self._folder / LOCK_FILE, os.O_RDONLY, _PROCESS.fullmatch)
        except (OSError, StartError):
            return "unknown"
        try:
            return os.pread(handle, 32, 0).decode().strip() or "unknown"
        finally:
            os.close(handle)

    def close(self) -> None:
        """Releases the locks."""
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()


def lock_folder(folder: pathlib.Path) -> FolderLock:
    """Locks the folder for this process; makes it if it is missing. Raises StartError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file_system.refuse_remote(folder, file_system.mount_of(folder))
        others = sorted(path.name for path in folder.iterdir() if not _is_ours(path.name))
        is_empty = not os.path.lexists(folder / DATA_FILE)
        if not is_empty:
            _content(folder / DATA_FILE)  # else the lock would be the first file of PopMQ beside it
    except OSError as error:
        why = "it is not a folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise StartError(f"{folder} cannot be used as a data folder: {why}") from error
    if others and is_empty:
        raise StartError(
            f"{folder} is not a PopMQ data folder (it holds {others[0]!r} and no {DATA_FILE}): "
            "name an empty folder with --data"
        )
    try:
        return FolderLock(folder)
    except OSError as error:
        raise StartError(f"{folder / LOCK_FILE} cannot be locked: {error.strerror}") from error


def _is_ours(name: str) -> bool:
    return name in OUR_FILES or name.startswith(DAMAGED_FILE + ".")


def name_for_damaged(folder: pathlib.Path) -> str:
    """The name of the file that a repair replaces: one that is free, so that the file of an earlier repair stays."""
    names = itertools.chain([DAMAGED_FILE], (f"{DAMAGED_FILE}.{number}" for number in itertools.count(1)))
    return next(name for name in names if not os.path.lexists(folder / name))


def make_ready(folder: pathlib.Path) -> None:
    """Before LMDB opens the folder: puts a data file aside that a power cut left before its first commit, so that LMDB
    creates it again. Raises StartError for a file that would be overwritten and that is not PopMQ's own, and where the
    last commit is gone.
    """
    for name, is_own in _WRITTEN_OVER.items():
        with contextlib.suppress(FileNotFoundError):
            os.close(open_own(folder / name, os.O_RDONLY, is_own))
    file = folder / DATA_FILE
    last_commit.refuse_older(folder, file)
    if file.exists() and _content(file) is Content.TORN:
        aside = name_for_damaged(folder)
        os.rename(file, folder / aside)
        log.warning("%s had no commit yet: it is %s now, and a new one begins", file, aside)
    file_system.make_in_place(folder / LMDB_LOCK_FILE, file_system.mount_of(folder))


def sync_folder(folder: pathlib.Path) -> None:
    """Makes the names of new files durable: POSIX lets a power cut lose a synced file whose name was never synced."""
    for path in (folder, folder.resolve().parent):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def largest_file() -> int:
    """Bytes that this process may write to a file."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def can_grow(folder: pathlib.Path, size: int) -> bool:
    """Whether a file of this size may be larger: the process has a limit (`ulimit -f`), and so has the file system."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(size + _GROWTH)
    except OSError as error:
        return error.errno != errno.EFBIG
    return True


def try_mapping(folder: pathlib.Path, size: int) -> None:
    """Maps a sparse file of the size in the data folder, and unmaps it. Raises NoMapping.

    Address space has limits (`ulimit -v`), and so have files, 16 TiB on ext4.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(size)
            mmap.mmap(file.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ).close()
    except (OSError, OverflowError, ValueError) as error:
        raise NoMapping(f"the system gives no mapping of {size:,} bytes in {folder}: {error}") from error
