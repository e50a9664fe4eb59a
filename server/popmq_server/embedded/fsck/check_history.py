"""`popmq check` for history: every row can be read, and a block ends where its rows end."""

from collections.abc import Iterator

from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.history_rows import Row
from popmq_server.embedded.store.keys import HIST_KEY
from popmq_server.embedded.store.lmdb import Transaction


def rows(kv: Transaction) -> Iterator[tuple[int, int, Row]]:
    """(T, Q, row) of every row that can be read."""
    for key, value in kv.scan("hist"):
        topic_id, queue, *_ = HIST_KEY.unpack(key)
        try:
            yield from ((topic_id, queue, row) for row in history_rows.read(key, value))
        except ValueError:
            continue


def check(kv: Transaction) -> Iterator[str]:
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
