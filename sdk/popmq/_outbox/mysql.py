"""MySQL and MariaDB: a marker, one row in the user's transaction, as in SQLite (sqlite.py).

    place   mysql NAME MARKER
            NAME    of the database: a row that its first outbox wrote
            MARKER  the id of a row of popmq_outbox

A marker that is missing was rolled back, or is in a transaction that goes on. InnoDB locks a row from its INSERT to the
end of its transaction, also through a crash of the server and in XA transactions that are prepared. So a locking read
that does not wait finds out: it is refused while the transaction goes on, and finds nothing after a rollback.
`ROLLBACK TO` a savepoint removes the markers in it. The read is READ COMMITTED, so that it locks no gap in which users
write.

CREATE TABLE ends a transaction in MySQL. So the table is made on the outbox's own connection, never in `here`.
"""

import os
import re
from collections.abc import Sequence

from popmq._outbox.verdicts import COMMITTED, ELSEWHERE, OPEN, ROLLED_BACK, Steps, Verdict, unknown

PLACE = re.compile(r"mysql ([0-9a-f]{16}) ([0-9a-f]{32})")

IS_THERE = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'popmq_outbox'"
TABLE = """
CREATE TABLE IF NOT EXISTS popmq_outbox (id VARCHAR(32) PRIMARY KEY, name VARCHAR(16))
ENGINE = InnoDB CHARACTER SET ascii COLLATE ascii_bin
"""
#: A locking read: the snapshot of a transaction may be older than the row.
NAME = "SELECT name FROM popmq_outbox WHERE id = 'name' LOCK IN SHARE MODE"
READ_COMMITTED = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
IS_REPLICA = "SELECT @@global.read_only"
REPLICA = unknown("the server that was asked is read-only: a replica may not have heard of the transaction's end")
#: A lock that is held: 1205 of MariaDB and 3572 of MySQL without waiting, 1213 as the victim of a deadlock.
_LOCKED = re.compile(r"\((1205|1213|3572),")


def prepare() -> Steps[None]:
    """Makes the table and the name, which need the right CREATE if they are missing."""
    if not (yield IS_THERE):
        yield TABLE
    if not (yield NAME):
        yield f"INSERT IGNORE INTO popmq_outbox VALUES ('name', '{os.urandom(8).hex()}')"


def here() -> Steps[str]:
    """The place of the transaction in which this runs, with a new marker in it."""
    marker = os.urandom(16).hex()
    yield f"INSERT INTO popmq_outbox (id) VALUES ('{marker}')"
    ((name,),) = yield NAME
    return f"mysql {name} {marker}"


def ended(places: Sequence[Sequence[str]]) -> Steps[list[Verdict]]:
    """How they ended: one question about all, and one about each marker that is missing."""
    if not places:
        return []
    yield READ_COMMITTED
    if (yield IS_REPLICA) not in ([(0,)], [("OFF",)]):
        return [REPLICA] * len(places)
    names = (yield NAME) if (yield IS_THERE) else []
    found = {id for (id,) in (yield f"SELECT id FROM popmq_outbox WHERE id IN ({_listed(places)})")} if names else set()
    verdicts = []
    for name, marker in places:
        if (name,) not in names:
            verdicts.append(ELSEWHERE)
        elif marker in found:
            verdicts.append(COMMITTED)
        else:
            verdicts.append((yield from _missing(marker)))
    return verdicts


def _missing(marker: str) -> Steps[Verdict]:
    try:
        rows = yield f"SELECT id FROM popmq_outbox WHERE id = '{marker}' FOR UPDATE NOWAIT"
    except Exception as error:
        if not _LOCKED.search(str(error)):
            raise
        return OPEN
    return COMMITTED if rows else ROLLED_BACK  # committed just now


def delete(places: Sequence[str]) -> Steps[None]:
    """Deletes the markers of messages that have ended."""
    groups = [match.groups() for match in map(PLACE.fullmatch, places) if match]
    yield f"DELETE FROM popmq_outbox WHERE id IN ({_listed(groups)})"


def _listed(places: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"'{marker}'" for _, marker in places)
