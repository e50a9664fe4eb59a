"""The data folder: its files, its lock, and the system's limits for it."""

import contextlib
import fcntl
import itertools
import logging
import mmap
import os
import pathlib
import tempfile

from popmq_server.datafile.layout import HEAD, NUMBER
from popmq_server.errors import StartError
from popmq_server.storage.fault_note import NOTE_FILE
from popmq_server.storage.reserve import RESERVE_FILE

log = logging.getLogger("popmq.store")

DATA_FILE = "popmq.mdb"
#: LMDB's own, with its table of readers.
LMDB_LOCK_FILE = DATA_FILE + "-lock"
LOCK_FILE = "popmq.lock"
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
}


#: Bytes of a sector, which a disk writes as a whole.
_SECTOR = 512
#: Where a meta page has the number of its commit: after its head, 24 bytes, two databases and the last page.
_COMMIT = HEAD + 24 + 2 * 48 + NUMBER.size
#: A store whose first commit is not complete is not longer: that commit leaves four pages. One with a topic has six,
#: and in a compacted copy or a backup it has the meta pages of a first commit as well.
_FIRST_COMMIT_MAX = 5 * mmap.PAGESIZE


class NoMapping(Exception):
    """The system refuses this process a mapping of the size; nothing has changed."""


def data_file(folder: pathlib.Path) -> pathlib.Path:
    """The data file of a stopped broker. Raises StartError: there is none, or it is not accessible."""
    try:
        (folder / DATA_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise StartError(f"{folder} is not a PopMQ data folder: it has no {DATA_FILE}") from None
    except OSError as error:
        raise StartError(f"{folder / DATA_FILE} cannot be read: {error.strerror}; run this as its owner") from error
    return folder / DATA_FILE


def owner_of(folder: pathlib.Path) -> os.stat_result:
    """Whose files those of the folder are: the owner of the data file, before there is one of the folder."""
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
        """Without `writes` it makes and changes no file."""
        self._folder = folder
        self._handles: list[int] = []
        try:
            self._take_directory()
            if not writes:
                self._take_existing()
                return
            file = self._take(LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            give_to_owner(file, owner_of(self._folder))
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
        except BaseException:
            self.close()
            raise

    def _take_directory(self) -> None:
        try:
            self._take("", os.O_RDONLY | os.O_DIRECTORY)
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
        handle = os.open(self._folder / name, flags | os.O_CLOEXEC, 0o600)
        self._handles.append(handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StartError(
                f"{self._folder} is in use by another PopMQ (process {self._holder()}): stop it, or name another "
                "folder with --data"
            ) from error
        return handle

    def _holder(self) -> str:
        """The process id in the lock file."""
        try:
            return (self._folder / LOCK_FILE).read_text(errors="replace")[:32].strip() or "unknown"
        except OSError:
            return "unknown"

    def close(self) -> None:
        """Releases the locks."""
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()


def lock_folder(folder: pathlib.Path) -> FolderLock:
    """Locks the folder for this process; makes it if it is missing. Raises StartError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted(path.name for path in folder.iterdir() if not _is_ours(path.name))
        is_empty = not (folder / DATA_FILE).exists()
    except OSError as error:
        raise StartError(f"{folder} cannot be used as a data folder: {error.strerror}") from error
    if foreign and is_empty:
        raise StartError(
            f"{folder} is not a PopMQ data folder (it holds {foreign[0]!r} and no {DATA_FILE}): "
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


def discard_unfinished(file: pathlib.Path) -> None:
    """Removes a data file that a power cut left before its first commit, so that LMDB creates it again.

    LMDB writes two meta pages first, and syncs them with the pages of the first commit; the meta page of that commit
    comes after the sync. Until then a power cut may leave empty sectors where meta pages begin, and the other one has
    no commit. A file with pages after these two is put aside, as a damaged one: nothing that was stored is removed.
    """
    pages = range(0, 2 * mmap.PAGESIZE, mmap.PAGESIZE)
    if not file.exists() or file.stat().st_size > _FIRST_COMMIT_MAX:
        return
    raw = file.read_bytes()
    empty = [not raw[page : page + _SECTOR].strip(b"\0") for page in pages]
    if not any(empty):
        return
    if len(raw) <= pages.stop:
        os.truncate(file, 0)
    elif not any(NUMBER.unpack_from(raw, page + _COMMIT)[0] for page in pages if not empty[page // mmap.PAGESIZE]):
        aside = name_for_damaged(file.parent)
        os.rename(file, file.with_name(aside))
        log.warning("%s had no commit yet: it is %s now, and a new one begins", file, aside)


def sync_folder(folder: pathlib.Path) -> None:
    """Makes the names of new files durable: POSIX lets a power cut lose a synced file whose name was never synced."""
    for path in (folder, folder.resolve().parent):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
