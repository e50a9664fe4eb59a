"""The open data folder: its lock, its environment and databases, its size limit, its pages.

One process owns the environment (it holds a lock file), one thread writes. `writemap` is off: with it fsync is two to
three times slower, and a stray pointer could damage the file.
"""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from popmq_server.embedded.store import keys
from popmq_server.embedded.store.datafile import checksums, file_system, free_pages, last_commit, walk
from popmq_server.embedded.store.datafile.free_pages import FreePages
from popmq_server.embedded.store.fault_note import FaultNote
from popmq_server.embedded.store.folder import (
    DATA_FILE,
    FILE_LIMIT,
    JOURNAL_FILE,
    LMDB_LOCK_FILE,
    FolderLock,
    NoMapping,
    can_grow,
    give_to_owner,
    largest_file,
    lock_folder,
    make_ready,
    owner_of,
    sync_folder,
    try_mapping,
)
from popmq_server.embedded.store.formats import (
    FORMAT,
    newest,
    readable,
    without_checksums,
)
from popmq_server.embedded.store.journal import recovery
from popmq_server.embedded.store.journal.changes import AS_STORED
from popmq_server.embedded.store.journal.folding import FORMAT_ROW, Folding
from popmq_server.embedded.store.lmdb import (
    Database,
    DiskFault,
    MapFull,
    OlderTransaction,
    Opened,
    OpenTransaction,
    Transaction,
    begin_in,
    damage_named,
    damaged,
    existing_databases,
    meta_row,
    open_environment,
    open_unlocked,
    sync_environment,
    write_copy,
)
from popmq_server.embedded.store.reserve import Reserve
from popmq_server.errors import CommitFailed, StartError

log = logging.getLogger("popmq.store")

#: Sends, and copies of the whole store, need this much free disk.
DISK_FREE_SEND = 256 << 20
#: Room for what a check adds to a data file in memory: more than an open transaction may take.
RECOVERED_BYTES_MAX = 1 << 30
#: The limit that an operator set, in `meta`. A release that does not know it ignores the row and uses its flag.
SET_SIZE_ROW = b"max_size"


class SetSize(NamedTuple):
    """A limit of the data file that an operator set while a broker ran, in bytes.

    The last change holds: this limit, or a `--max-size` that was changed after it. So a service whose unit file has the
    old size keeps the new one after a restart, and an edit of the unit file takes effect.
    """

    size: int
    named: int  # the value of --max-size at that time; 0 = the flag was omitted

    def holds(self, named: int) -> bool:
        """Whether it still holds for a start with this `--max-size`; 0 = the flag is omitted."""
        return named in (0, self.named)

    def packed(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def read(cls, raw: bytes) -> "SetSize":
        """Decodes the row. Raises ValueError, KeyError or TypeError for invalid data."""
        fields = json.loads(raw)
        return cls(int(fields["size"]), int(fields["named"]))


class Reader(Protocol):
    """Keeps a read transaction open for a long time: a backup."""

    def end(self, why: str) -> None:
        """Ends the read transaction."""


class Store:
    """An open data folder. Only the writer thread may use transactions and other methods that read the map, since it
    may move the map between two transactions; other threads hold `still`.

    All threads may use `disk_free`, `pages_reached` and the plain attributes: they do not read the map. The process
    must not fork while the store is open: LMDB locks belong to the process.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        map_bytes: int,
        sync: str,
        *,
        named: bool = True,
        note_faults: bool = False,
        journaled: bool = False,
    ) -> None:
        """`map_bytes`: the limit of the data file, unless an operator set another one (SetSize). `named`: whether
        `--max-size` was given. `note_faults`: the process is only a broker (fault_note.py). `journaled`: commit batches
        go through a journal (journal/folding.py). Raises StartError: in use, not a PopMQ folder, another format,
        damaged, not readable.
        """
        self.folder = folder
        self._limit(map_bytes, largest_file())
        self.still = threading.Lock()  # held by other threads that read the map, and to move or close it
        self.sync = sync
        #: Of commit batches; None: each is a commit of LMDB.
        self.folding: Folding | None = None
        #: Begins the transaction of a commit batch. Raises CommitFailed.
        self.begin_batch: Callable[[], Transaction] = self.begin
        self._named = map_bytes if named else 0
        self._set_size: SetSize | None = None
        self._lock = lock_folder(folder)
        opened = contextlib.ExitStack()
        self._note: FaultNote | None = None
        try:
            with damage_named(folder):
                for warning in file_system.warnings(file_system.mount_of(folder)) if sync != "none" else ():
                    log.warning("%s", warning)
                make_ready(folder)
                if note_faults:
                    self._note = FaultNote(folder)
                    opened.callback(self._note.close)
                owner = owner_of(folder)
                self._env = open_environment(folder, map_bytes, sync)
                opened.callback(self._env.close)
                give_to_owner(folder / LMDB_LOCK_FILE, owner)
                self.page_bytes = int(self._env.stat()["psize"])
                _check_free_list(folder, self.page_bytes)
                self._check_pages()
                self._take_set_size()
                self._db = self._open_databases()
                self._recover()
                self._check_size()
                if self.limited_by == FILE_LIMIT:
                    log.warning(
                        "the data file may have %d bytes: less than --max-size, by the %s", self.map_bytes, FILE_LIMIT
                    )
                sync_folder(folder)
                #: For reads that do not need the map (free_pages.py).
                self._file = os.open(folder / DATA_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            opened.close()
            self._lock.close()
            raise
        if journaled:
            self.folding = Folding(folder, Opened(self._env, self._db, self._bare), sync)
            self.begin_batch = self.folding.begin
        #: Running copies: they prevent the reuse of freed pages.
        self.copies: list[Reader] = []
        self.reserve = Reserve(folder, wanted=sync != "none")

    def _check_pages(self) -> None:
        """Refuses any damage after a process that a signal ended: the same page would end this process too."""
        with open(self.folder / DATA_FILE, "rb") as file:
            if self._note is None or not self._note.ended_by:
                return
            ended_by = self._note.ended_by
            log.warning("the broker ended by a signal (%s): every page of the data file is read first", ended_by)
            if wrong := next(walk.faults(file.fileno(), self.page_bytes), ""):
                raise damaged(self.folder, f"{wrong}, and the broker ended by a signal ({ended_by})")
        log.warning("all pages of the data file are sound: look for another cause of the signal")
        self._note.clear()

    def _take_set_size(self) -> None:
        """Applies the limit that an operator set while a broker ran, if it still holds. Raises StartError."""
        raw = meta_row(self._env, SET_SIZE_ROW)
        try:
            set_size = self._set_size = None if raw is None else SetSize.read(raw)
        except (ValueError, KeyError, TypeError):
            log.warning("the limit that was set while the broker ran is damaged: --max-size holds; set it again")
            return
        if set_size is not None and set_size.holds(self._named) and set_size.size != self.map_bytes:
            try:
                try_mapping(self.folder, set_size.size)
                self._resize(set_size.size)
            except NoMapping as error:
                raise StartError(
                    f"{self.folder / DATA_FILE} cannot be mapped with the {set_size.size:,} bytes that were set "
                    f"while the broker ran: {error}; name a smaller --max-size"
                ) from error

    def _open_databases(self) -> dict[str, Database]:
        """Opens all databases; creates missing ones in one commit. Refuses a store of an unknown format."""
        with self._env.begin(write=True) as txn:
            new = txn.stat()["entries"] == 0 and not self._env.info()["last_txnid"]
            meta = self._env.open_db(b"meta", txn=txn)
            if new:
                txn.put(FORMAT_ROW, keys.U32.pack(FORMAT), db=meta)
                txn.put(keys.LITE_INDEX, checksums.with_checksum(keys.LITE_INDEX, b""), db=meta)
            self._format = _read_format(self.folder, txn.get(FORMAT_ROW, db=meta))
            self._bare = without_checksums(self._format)
            return {name: self._env.open_db(name.encode(), txn=txn) for name in keys.DATABASES}

    def _recover(self) -> None:
        """Makes the changes that a crashed broker left in the journal (journal/recovery.py)."""
        try:
            recovery.recover(self.folder, Opened(self._env, self._db, self._bare), self._format)
        except MapFull as full:
            raise StartError(
                f"the map of {self.folder / DATA_FILE} has no room for what {JOURNAL_FILE} has: name a larger "
                f"{self.limited_by}"
            ) from full
        except DiskFault as fault:
            raise StartError(f"{self.folder} cannot be used: {fault}") from fault

    def _check_size(self) -> None:
        """Refuses a limit below the bytes in use, as `SetMaxSize` does: nothing could be freed, which takes pages."""
        with reading(self) as tx:
            used = tx.used_pages() * self.page_bytes
        if self.map_bytes < used:
            raise StartError(
                f"the limit of {self.folder / DATA_FILE} is {self.map_bytes:,} bytes, and it has {used:,} in use: "
                f"name a larger {self.limited_by}"
            )

    def adopt(self) -> None:
        """Sets the format number to the newest that the store can have, and drops a size that no longer holds. Called
        once the state was read, before other writes (but `rebase`).
        """
        if self._format != (number := newest(self._format)):
            tx = self.begin()
            tx.put_bare("meta", FORMAT_ROW, keys.U32.pack(number))
            tx.commit()
            self._format = number
        if self._set_size is not None and not self._set_size.holds(self._named):
            self._forget_set_size()

    def _forget_set_size(self) -> None:
        """Deletes a set size that `--max-size` replaced. If the map is too full the row stays; the flag still holds."""
        tx = self.begin()
        try:
            tx.delete("meta", SET_SIZE_ROW)
            tx.commit()
        except MapFull:
            tx.abort()
        self._set_size = None

    def set_max_size(self, size: int) -> None:
        """Sets the limit of the data file, at once and for later starts. Only between two transactions.

        It resizes the map first: a full map has no room for the row. If it raises NoMapping, MapFull or DiskFault,
        nothing changed.
        """
        before = self.map_bytes
        if size > before:
            try_mapping(self.folder, size)
        self._resize(size)
        tx = self.begin()
        try:
            row = SetSize(size, self._named)
            tx.put_bare("meta", SET_SIZE_ROW, row.packed())
            tx.commit()
        except (MapFull, DiskFault):
            tx.abort()
            self._resize(before)
            raise
        self._set_size = row

    def _resize(self, size: int) -> None:
        """Moves the map. LMDB unmaps the old one before it maps the new one, so callers use `try_mapping` first.
        A longer file keeps its length, and so does its map; `map_bytes` limits further writes (space.py).
        """
        with self.still:
            if self._own_readers():
                raise RuntimeError("the map cannot be moved under an open transaction")
            self._env.set_mapsize(size)
        self._limit(size, largest_file())

    def _limit(self, map_size: int, file_max: int) -> None:
        """Sets `map_bytes`, the limit of the data file: that of the map, or a lower one of the system for files."""
        self._map_size, self._file_max = map_size, file_max
        self.map_bytes = min(map_size, file_max)  # an attribute: each commit batch reads it several times

    @property
    def limited_by(self) -> str:
        """Tells what sets `map_bytes`: the setting, or the system."""
        return "--max-size" if self._map_size <= self._file_max else FILE_LIMIT

    def page_faults(self) -> Iterator[str]:
        """All damage of the pages, as sentences. Call it only while no transaction writes."""
        return walk.faults(self._file, self.page_bytes)

    def begin_as_stored(self) -> Transaction:
        """Begins a transaction that reads and puts values as they are stored, with their checksums: for a repair."""
        return Transaction(begin_in(self._env), self._db, bare=AS_STORED)

    @property
    def unfolded(self) -> bool:
        """Whether commit batches have changes that are not in the data file yet."""
        return self.folding is not None and self.folding.unfolded

    def fold(self) -> None:
        """Makes the data file have all changes. Raises MapFull, DiskFault; then it is as before. Only between two
        transactions, by the thread that begins them.
        """
        if self.folding is not None:
            self.folding.fold()

    def begin(self, write: bool = True, *, views: bool = True) -> Transaction:
        """Begins a transaction beside those of commit batches, after a fold; reads of a write transaction see its own
        puts. Without `views` it returns copies: for the scan at start, where a view of a small value costs more than a
        copy. Raises CommitFailed if LMDB has given the file up after a failed write.
        """
        if self.folding is not None and (write or self.folding.thread == threading.get_ident()):
            self.folding.fold()  # other threads read what the last fold committed
        return Transaction(begin_in(self._env, write=write, views=views), self._db, views, self._bare)

    def used_pages(self, tx: Transaction) -> int:
        """Pages with data, of all databases."""
        return tx.used_pages()

    @property
    def map_pages(self) -> int:
        """Pages that the map may hold."""
        return self.map_bytes // self.page_bytes

    @property
    def pages_reached(self) -> int:
        """Pages of the file, free ones included; a commit takes new ones if no free page is reusable yet."""
        return free_pages.last_page(self._file, self.page_bytes) + 1

    def free_pages(self, enough: int) -> FreePages | None:
        """Pages that the current, or next, write transaction may take; counted up to `enough`. None: unknown."""
        return free_pages.count(self._file, self.page_bytes, self.map_pages, self._oldest_reader(), enough)

    def _oldest_reader(self) -> int | None:
        """The commit that the oldest open read transaction sees: pages freed since then are not reusable."""
        return min((commit for _, commit in self._readers()), default=None)

    def _own_readers(self) -> int:
        return sum(process == os.getpid() for process, _ in self._readers())

    def _readers(self) -> list[tuple[int, int]]:
        """(process, commit that it sees) of each open read transaction."""
        rows = (line.split() for line in self._env.readers().splitlines()[1:])
        return [(int(row[0]), int(row[2])) for row in rows if len(row) == 3 and row[2].isdecimal()]

    def copy(self, handle: int) -> None:
        """Writes a compacted copy into an open file: the same entries, without free pages. Raises DiskFault."""
        write_copy(self._env, handle)

    def disk_free(self) -> int:
        """Free bytes of the disk under the data folder. Raises CommitFailed if the folder or its data file was removed:
        later commits would be lost with the process.
        """
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise CommitFailed(f"the data folder {self.folder} is not there any more: {error.strerror}") from error
        if not os.fstat(self._file).st_nlink:
            raise CommitFailed(f"{self.folder / DATA_FILE} was removed, or another file has replaced it")
        return free

    def is_full(self, fault: DiskFault) -> bool:
        """Whether a write failed because the disk, or a quota, is full, or the file may not be larger. That is known
        from the first such failure on: later commits use the pages that the file has.
        """
        size = os.fstat(self._file).st_size
        if not can_grow(self.folder, size):  # a write that the limit cuts short says nothing about it
            self._limit(self._map_size, min(self._file_max, self.pages_reached * self.page_bytes))
            return True
        return self.disk_free() < DISK_FREE_SEND if fault.full is None else fault.full

    def end_copies(self, why: str) -> None:
        """Ends all running copies: later commits can reuse their pages."""
        for copy in tuple(self.copies):
            copy.end(why)

    def forget_dead_readers(self) -> None:
        """Clears the reader slots of killed processes: the pages that they read become reusable."""
        self._env.reader_check()

    def close(self) -> None:
        """Syncs the commits that a relaxed sync mode has not synced, closes the store, and unlocks the folder.
        Raises CommitFailed if the sync failed; the store is closed then, too.
        """
        self.end_copies("the broker is stopping")
        try:
            if self.folding is not None:
                self.folding.close()
            sync_environment(self._env)
            last_commit.note(self.folder, self._file, self.page_bytes)
        except (DiskFault, MapFull) as fault:
            raise CommitFailed(f"the last sync failed: {fault}") from fault
        finally:
            os.close(self._file)
            with self.still:
                self._env.close()
            if self._note is not None:
                self._note.close()
            self._lock.close()


class ReadOnlyStore:
    """A stopped store that is only read: for `popmq check`. It makes and changes no file.

    A table that an earlier release did not have is empty. The locks keep brokers away.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        """Raises StartError, as `Store` does."""
        self.folder = folder
        with contextlib.ExitStack() as opened:
            lock = FolderLock(folder, writes=False)
            opened.callback(lock.close)
            opened.enter_context(damage_named(folder))
            self._env = open_unlocked(folder / DATA_FILE)
            opened.callback(self._env.close)
            _check_free_list(folder, int(self._env.stat()["psize"]))
            self._bare = without_checksums(_read_format(folder, meta_row(self._env, FORMAT_ROW)))
            self._db = existing_databases(self._env)
            changes = recovery.unmade(folder, Opened(self._env, self._db, self._bare))
            self._recovered: OpenTransaction | None = None
            if changes:
                self._env.close()  # lmdb opens a file once in a process
                self._env = open_unlocked(folder / DATA_FILE, uncommitted_bytes=RECOVERED_BYTES_MAX)
                opened.callback(self._env.close)
                self._db = existing_databases(self._env)
                self._recovered = begin_in(self._env)
                opened.callback(self._recovered.abort)
                recovery.make_all(Transaction(self._recovered, self._db, bare=AS_STORED), changes)
            self._opened = opened.pop_all()

    def page_faults(self) -> Iterator[str]:
        """See Store.page_faults."""
        with open(self.folder / DATA_FILE, "rb") as file:
            yield from walk.faults(file.fileno(), int(self._env.stat()["psize"]))

    def begin(self, *, write: bool, views: bool) -> Transaction:
        """A read transaction. It sees what the journal has, too."""
        if self._recovered is not None:
            return OlderTransaction(begin_in(self._env, self._recovered, views=views), self._db, views, self._bare)
        txn = self._env.begin(write=write, buffers=True) if views else self._env.begin(write=write, buffers=False)
        return OlderTransaction(txn, self._db, views, self._bare)

    def close(self) -> None:
        self._opened.close()


def _check_free_list(folder: pathlib.Path, page_bytes: int) -> None:
    """Refuses a file whose free list is damaged, before LMDB overwrites pages that it names by mistake."""
    with open(folder / DATA_FILE, "rb") as file:
        if wrong := walk.check_free_list(file.fileno(), page_bytes):
            raise damaged(folder, wrong)


def _read_format(folder: pathlib.Path, found: bytes | None) -> int:
    if found is None or len(found) != keys.U32.size:
        raise StartError(
            f"{folder / DATA_FILE} has no format number: it is not a PopMQ store, or it is damaged; "
            "restore a backup, or name another folder with --data"
        )
    return readable(str(folder), keys.U32.unpack(found)[0])


@contextlib.contextmanager
def reading(store: Store | ReadOnlyStore, *, views: bool = True) -> Iterator[Transaction]:
    """A read transaction that is always closed: an old reader would prevent page reuse and let the file grow.

    Raises StartError where LMDB meets damaged pages.
    """
    tx = store.begin(write=False, views=views)
    try:
        with damage_named(store.folder):
            yield tx
    finally:
        tx.abort()
