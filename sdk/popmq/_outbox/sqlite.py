"""SQLite: a marker, one row in the user's transaction, which is there afterwards if and only if that committed.

    place   sqlite NAME MARKER
            NAME    of the database: a row that its first outbox wrote, since a path may name different files
            MARKER  the id of a row of popmq_outbox

A marker that is missing was rolled back, or is in a transaction that goes on. SQLite has one writer at a time, and who
has written a marker is that one: when the outbox gets the lock of the writer, no transaction with a marker goes on.
`ROLLBACK TO` a savepoint removes the markers in it, and so their messages. A marker is deleted after the broker has
confirmed the commit of its message: one that is missing earlier would roll it back. So none is deleted by its age.
"""

import os
import re
from collections.abc import Sequence

from popmq._outbox.verdicts import COMMITTED, ELSEWHERE, OPEN, ROLLED_BACK, Steps, Verdict

PLACE = re.compile(r"sqlite ([0-9a-f]{16}) ([0-9a-f]{32})")

TABLE = "CREATE TABLE IF NOT EXISTS popmq_outbox (id TEXT PRIMARY KEY) WITHOUT ROWID"
IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'popmq_outbox'"
#: The name is a row beside the markers. Those are of hexadecimal digits, which sort elsewhere.
_NAME = "FROM popmq_outbox WHERE id > 'name ' AND id < 'name!'"
NAME = f"SELECT substr(id, 6) {_NAME}"
NEW_NAME = f"INSERT INTO popmq_outbox SELECT 'name ' || lower(hex(randomblob(8))) WHERE NOT EXISTS (SELECT 1 {_NAME})"
#: On connections of the outbox: 100 ms for a COMMIT, or for what another outbox does; nothing for a user's transaction.
WAIT, DO_NOT_WAIT = "PRAGMA busy_timeout = 100", "PRAGMA busy_timeout = 0"


def prepare() -> Steps[None]:
    """Makes the table and the name. If a transaction keeps the lock, it may be the user's, where `here` makes them."""
    if (yield IS_THERE) and (yield NAME):
        return
    yield WAIT
    try:
        yield TABLE
        yield NEW_NAME
    except Exception as error:
        if not _is_locked(error):
            raise


def here() -> Steps[str]:
    """The place of the transaction in which this runs, with a new marker in it."""
    marker = os.urandom(16).hex()
    yield TABLE
    yield NEW_NAME
    yield f"INSERT INTO popmq_outbox VALUES ('{marker}')"
    ((name,),) = yield NAME
    return f"sqlite {name} {marker}"


def ended(places: Sequence[Sequence[str]]) -> Steps[list[Verdict]]:
    """How they ended. A database that is locked has a transaction that goes on, perhaps one of these."""
    try:
        return (yield from _ended(places))
    except Exception as error:
        if not _is_locked(error):
            raise
        return [OPEN] * len(places)


def _ended(places: Sequence[Sequence[str]]) -> Steps[list[Verdict]]:
    yield WAIT
    verdicts = yield from _looked_at(places, OPEN)
    if OPEN not in verdicts:
        return verdicts
    yield DO_NOT_WAIT
    try:
        yield "BEGIN IMMEDIATE"
    except Exception as error:
        if not _is_locked(error):
            raise
        return verdicts
    verdicts = yield from _looked_at(places, ELSEWHERE)
    yield "ROLLBACK"
    return [ROLLED_BACK if verdict is OPEN else verdict for verdict in verdicts]


def _looked_at(places: Sequence[Sequence[str]], without_name: Verdict) -> Steps[list[Verdict]]:
    """OPEN is a marker that is missing. A database has no name before the transaction that writes it has committed."""
    names = (yield NAME) if (yield IS_THERE) else []
    verdicts: list[Verdict] = []
    for name, marker in places:
        if not names:
            verdicts.append(without_name)
        elif (name,) not in names:
            verdicts.append(ELSEWHERE)
        else:
            verdicts.append(COMMITTED if (yield _find(marker)) else OPEN)
    return verdicts


def delete(places: Sequence[str]) -> Steps[None]:
    """Deletes the markers of messages that have ended. Waits for the writer, a little."""
    markers = ", ".join(f"'{match[2]}'" for match in map(PLACE.fullmatch, places) if match)
    yield WAIT
    yield f"DELETE FROM popmq_outbox WHERE id IN ({markers})"


def _find(marker: str) -> str:
    return f"SELECT 1 FROM popmq_outbox WHERE id = '{marker}'"


def _is_locked(error: Exception) -> bool:
    """Of whichever library."""
    return "locked" in str(error)
