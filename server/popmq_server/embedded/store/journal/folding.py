"""Commits many commit batches with one commit of LMDB: a journal keeps their changes until then.

    batch ─▶ nested transaction ─▶ journal: append, sync ─▶ part of the open transaction ─▶ answers
    batch ─▶ …                                                                │
                                                 each second, or by bytes ─▶ fold: LMDB commits it, with its syncs

A commit of LMDB writes a path of pages of each changed table, and syncs twice. A record of the journal is written once,
with one sync. So a small batch is appended to the journal; a fold then writes each changed page once for all of them.

    unfolded    the open transaction has changes that are in the journal, and not in the data file
    folded      there is no open transaction with changes: the data file has everything

Reads of later batches see the changes of the open transaction. Read transactions do not: whoever reads in another
thread or process asks the writer for a fold first. A batch is committed through LMDB, with all before it, if its
changes are many bytes, which would be written twice, or if there is little room (`room`): then pages and disk are
counted exactly, and what the journal accepted must not fail later.

If a fold fails its changes are made again from the journal, and the next fold tries to write them. A broker that
crashed leaves the journal; `Store` makes the changes at the next start.

See docs/decisions/0053-journal.md.
"""

import logging
import os
import pathlib
import threading

from popmq_server.embedded.store import keys
from popmq_server.embedded.store.folder import JOURNAL_FILE, give_to_owner, owner_of
from popmq_server.embedded.store.formats import JOURNALED
from popmq_server.embedded.store.journal.changes import (
    AS_STORED,
    JournaledTransaction,
    decoded,
    make_again,
    remove_last_keys,
)
from popmq_server.embedded.store.journal.file import IDENTITY_BYTES, Journal
from popmq_server.embedded.store.lmdb import (
    DiskFault,
    MapFull,
    Opened,
    OpenTransaction,
    Transaction,
    begin_in,
    sync_environment,
)
from popmq_server.errors import CommitFailed

log = logging.getLogger("popmq.store")

#: Rows of `meta`: the format number, and the identity of the journal that belongs to the store.
FORMAT_ROW, IDENTITY_ROW = b"format", b"journal"
#: A batch with more bytes of changes is committed through LMDB: the journal would write them a second time.
JOURNALED_BYTES_MAX = 192 << 10
#: Seconds that a batch on another thread than that of the folds waits for its sync.
ELSEWHERE_S = 0.05


class Elsewhere(Exception):
    """A fold, or a batch that needs one, is for the thread that began the open transaction. Nothing has changed."""


class Slow(Elsewhere):
    """The disk takes longer than another thread may wait for it."""


class Folding:
    """The open transaction of a store, and its journal. One thread at a time: `fold` is for the one that began the open
    transaction, batches without a fold may run in others.
    """

    def __init__(self, folder: pathlib.Path, opened: Opened, sync: str) -> None:
        self._folder, self._sync = folder, sync
        self._env, self._db, self._bare = self._parts = opened
        self._page_bytes = int(self._env.stat()["psize"])
        self._open: OpenTransaction | None = None
        #: Whether the open transaction has changes of commit batches.
        self.unfolded = False
        self._taken = 0
        self._grown: set[tuple[str, bytes]] = set()
        #: None: nothing was written to it yet.
        self.journal: Journal | None = None
        self._identity = b""
        self._sick = False
        #: The thread that began the open transaction: LMDB lets no other one commit it.
        self.thread = 0
        #: Bytes of the map that the open transaction may take; 0: each batch is committed through LMDB.
        self.room = 0

    @property
    def sync_s(self) -> float:
        """Seconds of the last sync of a batch in the journal."""
        return 0.0 if self.journal is None else self.journal.sync_s

    @property
    def unsure(self) -> bool:
        """Whether a start may find the record of a batch that failed, and make its changes."""
        return self.journal is not None and self.journal.unsure

    @property
    def stands(self) -> bool:
        """Whether a sync that took too long for its batch still runs."""
        return self.journal is not None and self.journal.stands

    def begin(self) -> JournaledTransaction:
        """Begins the transaction of a commit batch. Raises CommitFailed."""
        txn = begin_in(self._env, self._open or self._opened())
        return JournaledTransaction(self._parts, txn, self._commit, self._aborted, self._grown)

    def _opened(self) -> OpenTransaction:
        """The open transaction."""
        if self._open is None:
            self._open = begin_in(self._env)
            self.thread = threading.get_ident()
            self._taken = 0
            self._grown.clear()
            if self.journal is not None and not self.journal.records:
                self.journal.begin(self._identity, int(self._env.info()["last_txnid"]))
        return self._open

    def _aborted(self) -> None:
        """After a batch without changes: without those of others there is nothing to keep open."""
        if not self.unfolded and self._open is not None:
            self._open.abort()
            self._open = None

    def _commit(self, tx: JournaledTransaction) -> None:
        """Commits a batch: by a record of the journal, or with a fold. Raises MapFull, DiskFault, CommitFailed."""
        size = sum(map(len, tx.recorded))
        taken = self._taken + tx.writes * self._page_bytes + size
        if taken <= self.room and self._takes(size):
            self._append(tx, b"".join(tx.recorded))
            self._taken = taken
            return
        self._expect_here()
        identity = self._mark(tx) if self.room else b""
        tx.merge()
        self.unfolded = True
        self.fold()
        self._identity = identity or self._identity

    def _takes(self, size: int) -> bool:
        """Whether the journal takes a record of this size."""
        journal = self.journal
        if journal is None or self._sick or not self._identity:
            return False
        return size <= JOURNALED_BYTES_MAX and size <= journal.left

    def _append(self, tx: JournaledTransaction, changes: bytes) -> None:
        assert self.journal is not None
        within_s = None if self.thread == threading.get_ident() else ELSEWHERE_S
        try:
            if not self.journal.append(changes, within_s):
                raise Slow
        except DiskFault as fault:
            self._give_up(fault)
            raise
        try:
            tx.merge()
        except (MapFull, DiskFault) as fault:  # it is in the journal already, and must not be tried again
            raise CommitFailed(f"a change that the journal has could not be made: {fault}") from fault
        self.unfolded = True

    def _give_up(self, fault: DiskFault) -> None:
        """From now on each batch is committed through LMDB."""
        self._sick = True
        log.warning(
            "%s cannot be written: %s; the broker goes on without it until it starts again", JOURNAL_FILE, fault
        )

    def _mark(self, tx: JournaledTransaction) -> bytes:
        """Before the first record: makes the file, and adds the mark of the store to a batch that a fold commits.

        Returns the identity; b"" if there is nothing to do, or the file cannot be made.
        """
        if self._identity or self._sick:
            return b""
        try:
            self.journal = self.journal or self._made()
            self.journal.reserve()
        except DiskFault as fault:
            self._give_up(fault)
            return b""
        identity = os.urandom(IDENTITY_BYTES)
        tx.put("meta", IDENTITY_ROW, identity)
        tx.put_bare("meta", FORMAT_ROW, keys.U32.pack(_number(tx) | JOURNALED))
        return identity

    def _made(self) -> Journal:
        journal = Journal(self._folder, synced=self._sync != "none")
        give_to_owner(self._folder / JOURNAL_FILE, owner_of(self._folder))
        return journal

    def fold(self) -> None:
        """Commits the open transaction. If it raises MapFull or DiskFault, the data file is as before, and the changes
        of the batches in the journal are still there for the next fold. Raises CommitFailed if they are not.
        """
        if self._open is None:
            return
        self._expect_here()
        opened, self._open = Transaction(self._open, self._db, bare=self._bare), None
        merged, self.unfolded = self.unfolded, False
        if not merged:
            opened.abort()
            return
        try:
            remove_last_keys(opened)
            opened.commit()
        except (MapFull, DiskFault):
            opened.abort()
            self._make_again()
            raise
        self._sync_meta()
        if self.journal is not None:
            self.journal.begin(b"", 0)
            self.journal.unsure = False

    def _expect_here(self) -> None:
        """Raises Elsewhere unless this thread began the open transaction."""
        if self.thread != threading.get_ident():
            raise Elsewhere

    def _sync_meta(self) -> None:
        """Makes the commit durable before records are written over: with sync "meta" LMDB leaves its last page out."""
        if self._sync == "meta" and self.journal is not None:
            try:
                sync_environment(self._env)
            except DiskFault as fault:
                raise CommitFailed(f"a sync of the data file failed: {fault}") from fault

    def _make_again(self) -> None:
        """Opens a transaction with the changes of all records, after a commit of LMDB that failed."""
        if self.journal is None or not self.journal.records:
            return
        try:
            changes = self.journal.changes()
            self._open = begin_in(self._env)
            again = Transaction(self._open, self._db, bare=AS_STORED)
            for record in changes:
                for change in decoded(record):
                    make_again(again, change)
        except (MapFull, DiskFault) as fault:
            raise CommitFailed(f"what the journal has could not be made again: {fault}; start the broker") from fault
        self.unfolded = True

    def close(self) -> None:
        """Folds, takes the mark away, and empties the journal. Raises MapFull, DiskFault; then the journal stays, as
        after a thread that ended with an open transaction, which no other one may commit.
        """
        try:
            if self._open is not None and self.thread != threading.get_ident():
                return
            if self._identity:
                last = Transaction(self._opened(), self._db, bare=self._bare)
                last.put_bare("meta", FORMAT_ROW, keys.U32.pack(_number(last) & ~JOURNALED))
                self.unfolded = True
            self.fold()
            if self.journal is not None:
                self.journal.empty()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes the file, and drops the open transaction."""
        if self._open is not None:
            self._open.abort()
            self._open = None
        if self.journal is not None:
            self.journal.close()
            self.journal = None


def _number(tx: Transaction) -> int:
    """The format number of the store."""
    stored = tx.get("meta", FORMAT_ROW)
    assert stored is not None
    return int(keys.U32.unpack(stored)[0])
