"""`popmq check` for single rows.

every row    matches its checksum, in a store that has them (datafile/checksums.py)
history      can be read, and a block ends where its rows end
"""

from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.datafile.checksums import corrected, is_usable
from popmq_server.embedded.store.history_rows import HistoryRow
from popmq_server.embedded.store.keys import DATABASES, HIST_KEY
from popmq_server.embedded.store.lmdb import Transaction


class Broken(NamedTuple):
    """Sentences about damaged rows. `readable`: reads correct all of them, so the rest can be checked."""

    sentences: list[str]
    readable: bool


def check(kv: Transaction) -> Broken:
    """Reads every row."""
    sentences, readable = list[str](), True
    for name in DATABASES:
        for key, stored in kv.broken(name):
            found = corrected(key, stored)
            readable &= found is not None and is_usable(name, key, found[0])
            sentences.append(_sentence(name, key, found))
    return Broken(sentences, readable)


def _sentence(name: str, key: bytes, found: tuple[bytes, bytes] | None) -> str:
    row = f"row {key.hex()} of table {name!r} does not match its checksum"
    if found is None:
        return f"{row}: more than one bit is wrong; `popmq check --repair` says what that means"
    where = f"its key, {found[0].hex()}" if found[0] != key else "its value; a broker corrects it when it reads the row"
    return f"{row}: one bit is wrong in {where}; `popmq check --repair` corrects the file"


def history_rows_of(kv: Transaction) -> Iterator[tuple[int, int, HistoryRow]]:
    """(T, Q, row) of every row that can be read."""
    for key, value in kv.scan("hist"):
        topic_id, queue, *_ = HIST_KEY.unpack(key)
        try:
            yield from ((topic_id, queue, row) for row in history_rows.read(key, value))
        except ValueError:
            continue


def check_history(kv: Transaction) -> Iterator[str]:
    """Every broken invariant, as sentences."""
    for key, value in kv.scan("hist"):
        topic_id, queue, first, *_ = HIST_KEY.unpack(key)
        where = f"the history of topic {topic_id} queue {queue} from offset {first} on"
        try:
            found = history_rows.read(key, value)
        except ValueError:
            yield f"{where} cannot be read"
            continue
        if any(not first <= row.first < row.stop <= history_rows.stop_of(key, value) for row in found):
            yield f"{where} ends at another offset than its rows"
