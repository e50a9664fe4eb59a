"""At a start after a crash: which changes of the journal the data file lacks.

    journal │ store                          what a start does
    ────────┼─────────────────────────────   ─────────────────────────────────────────────────────────────
    none    │ any                            nothing: the data file has everything that is left
    void    │ its identity, a later commit   nothing: the data file has these changes
    whole   │ its identity, this commit      makes the changes, commits them, empties the journal
    damaged │ its identity, this commit      StartError: answered batches cannot be read; a repair takes those before
    whole   │ an earlier commit, or another  StartError: the data file was replaced, as by a backup; the operator
            │ identity                       decides whether the journal is still wanted

See docs/decisions/0053-journal.md.
"""

import logging
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from popmq_server.embedded.store import keys
from popmq_server.embedded.store.folder import DATA_FILE, JOURNAL_FILE
from popmq_server.embedded.store.journal import file
from popmq_server.embedded.store.journal.changes import AS_STORED, Lost, decoded, make_again
from popmq_server.embedded.store.journal.folding import FORMAT_ROW, IDENTITY_ROW
from popmq_server.embedded.store.lmdb import Opened, Transaction, begin_in, sync_environment
from popmq_server.errors import StartError, UnreadableRow

log = logging.getLogger("popmq.store")


class Missing(NamedTuple):
    """Changes that the data file lacks, one item for each commit batch. `damaged`: later ones cannot be read."""

    changes: list[bytes]
    damaged: bool


_NOTHING = Missing([], False)


def missing(folder: pathlib.Path, records: file.Records, identity: bytes, commit: int) -> Missing:
    """The changes that the journal has and the data file lacks, whose identity and last commit these are.

    Raises StartError where the journal does not belong to the data file.
    """
    if records.identity == identity and records.commit < commit:
        return _NOTHING
    if (records.identity, records.commit) != (identity, commit):
        raise StartError(
            f"{folder / JOURNAL_FILE} does not continue {DATA_FILE}, which is older or another one: put back the "
            f"{DATA_FILE} that it belongs to; or, to start on this one without what the journal has, as after a "
            f"restored backup, move {JOURNAL_FILE} away"
        )
    return Missing(records.changes, records.damaged)


def unmade(folder: pathlib.Path, opened: Opened) -> list[bytes]:
    """The changes that the data file lacks. Raises StartError, also where some cannot be read."""
    records = file.read(folder)
    if records is None:
        return []
    txn = opened.env.begin(buffers=True)
    try:
        identity = bytes(Transaction(txn, opened.db, bare=opened.bare).get("meta", IDENTITY_ROW) or b"")
    finally:
        txn.abort()
    found = missing(folder, records, identity, int(opened.env.info()["last_txnid"]))
    if found.damaged:
        read = f"{len(found.changes):,}"
        raise StartError(
            f"{folder / JOURNAL_FILE} is damaged: the changes of {read} commit batches can be read, those after them "
            f"not; keep the {read} with `popmq check --repair {folder}`"
        )
    return found.changes


def make_all(tx: Transaction, records: Iterable[bytes]) -> None:
    """Makes the changes of commit batches. `tx` reads and puts values AS_STORED. Raises MapFull, StartError."""
    for changes in records:
        for change in decoded(changes):
            try:
                make_again(tx, change)
            except Lost as lost:
                raise UnreadableRow(change.name, change.key, "the journal extends it") from lost


def recover(folder: pathlib.Path, opened: Opened, number: int) -> None:
    """Makes the changes that the data file lacks in one commit, sets the format number, and empties the journal.

    Killed at any moment, the next start does it again. Raises StartError, MapFull, DiskFault.
    """
    records = unmade(folder, opened)
    tx = Transaction(begin_in(opened.env), opened.db, bare=AS_STORED)
    try:
        make_all(tx, records)
        if bytes(tx.get("meta", FORMAT_ROW) or b"") != (plain := keys.U32.pack(number)):
            tx.put("meta", FORMAT_ROW, plain)
        is_changed = tx.writes > 0
        tx.commit()
    except BaseException:
        tx.abort()
        raise
    if is_changed:
        sync_environment(opened.env)
    if records:
        log.warning("the broker did not stop: the changes of %d commit batches are from its journal", len(records))
    file.empty(folder)
