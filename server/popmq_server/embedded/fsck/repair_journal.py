"""The part of a repair that adds what a crashed broker left in the journal (store/journal/).

The changes of whole records are made in the new store, after the rows of the data file. A change that extends a row
that was lost is left out. The journal then stays beside the damaged data file, under its name.
"""

import os
import pathlib
from collections.abc import Iterator

from popmq_server.embedded.store.datafile import checksums
from popmq_server.embedded.store.datafile.layout import newest
from popmq_server.embedded.store.datafile.walk import rescue
from popmq_server.embedded.store.folder import JOURNAL_FILE, sync_folder
from popmq_server.embedded.store.journal import file, recovery
from popmq_server.embedded.store.journal.changes import Lost, decoded, make_again
from popmq_server.embedded.store.journal.folding import IDENTITY_ROW
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError


def add_journal(store: Store, data: pathlib.Path) -> Iterator[str]:
    """Makes the changes of the journal beside a damaged data file in the new store; a sentence for what is left out."""
    records = file.read(data.parent)
    if records is None:
        return
    with open(data, "rb") as damaged:
        rows = list(rescue(damaged.fileno(), store.page_bytes, "meta"))
        meta = newest(damaged.fileno(), store.page_bytes)
    stored = next((found[2] for found in rows if not isinstance(found, str) and found[1] == IDENTITY_ROW), b"")
    checked = checksums.is_whole(IDENTITY_ROW, stored)
    identity = stored[: -checksums.BYTES] if checked else stored
    try:
        found = recovery.missing(data.parent, records, identity, 0 if meta is None else meta.commit)
    except StartError:
        yield f"{JOURNAL_FILE} is left out: it does not continue the data file, as far as that can be read"
        return
    yield from _add(store, found.changes, checked)
    if found.damaged:
        yield f"{JOURNAL_FILE} is damaged: of its commit batches the first {len(found.changes):,} are kept"


def _add(store: Store, records: list[bytes], checked: bool) -> Iterator[str]:
    """`checked`: the values have checksums."""
    kv = store.begin_as_stored() if checked else store.begin()
    for changes in records:
        for change in decoded(changes):
            try:
                make_again(kv, change)
            except Lost:
                yield f"dropped a change of a row that was lost: {change.key.hex()} of {change.name!r}"
    kv.commit()


def put_aside(folder: pathlib.Path, damaged: str) -> None:
    """Gives the journal the name of the damaged data file to which it belongs: beside the new one it stops a start."""
    if (folder / JOURNAL_FILE).exists() and (folder / JOURNAL_FILE).stat().st_size:
        os.replace(folder / JOURNAL_FILE, folder / f"{damaged}.journal")
        sync_folder(folder)
