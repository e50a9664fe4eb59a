"""PostgreSQL: no table. The place is the id of the transaction, and the server remembers how that ended.

    place   postgresql SYSTEM SINCE OUTER INNER
            SYSTEM  the identifier of the cluster, which its standbys and copies share
            SINCE   the server's memory: a moment that changes when it recovers from a crash, is promoted or restored
            OUTER   the transaction; INNER: the innermost savepoint around the send, or OUTER

A savepoint that writes has an id of its own, and `ROLLBACK TO` aborts only that one: so a message is committed if both
are. No function tells the id of the innermost savepoint. But it is the newest id that this session holds a lock on,
once it has one: an empty message in the write-ahead log gives it one, and is no row of any table.

pg_xact_status answers committed, aborted, in progress, or NULL: too old. Two things make the answer one about another
transaction with the same id:

- After a crash the server gives ids again that it had given before, if nothing of them was on disk. A standby that is
  promoted gives those again that it had not received. Then SINCE has changed. The last checkpoint has the next id of
  its time. An id from that one on was not in use then, so the transaction that had it before is gone: rolled back. An
  id below it is the first transaction's, if no id was given between the recovery and that checkpoint, which is so for
  the one that ends a recovery: it is its own start (`redo_lsn`), and SINCE is not before this server process. After
  the next checkpoint an id below it that committed may be that of either: nothing here tells which.
- Another cluster has the same ids: SYSTEM differs.

`synchronous_commit = off` would let a crash undo a commit after the server has told of it; in a transaction with
messages it becomes `local`. See docs/decisions/0058-outbox.md.
"""

import re
from collections.abc import Sequence

from popmq._outbox.verdicts import COMMITTED, ELSEWHERE, OPEN, ROLLED_BACK, Steps, Verdict, unknown

PLACE = re.compile(r"postgresql (\d{1,20}) (\d{1,12}\.\d{6}) (\d{1,19}) (\d{1,19})")

SINCE = "trim(to_char(extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()), '999999999990.000000'))"
#: One statement. The ids are read after the message was written: from its row.
HERE = f"""
WITH written AS MATERIALIZED (SELECT pg_logical_emit_message(true, 'popmq', '') AS at)
SELECT CAST(system_identifier AS text), {SINCE}, CAST(pg_current_xact_id() AS text),
  (SELECT CAST(transactionid AS text) FROM pg_locks
   WHERE at IS NOT NULL AND pid = pg_backend_pid() AND locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted
   ORDER BY age(transactionid) LIMIT 1),
  set_config('synchronous_commit',
    replace(current_setting('synchronous_commit'), 'off', 'local'), true)
FROM written, pg_control_system()
"""

#: Word of the answer → verdict.
SAID = {
    "committed": COMMITTED,
    "aborted": ROLLED_BACK,
    "in progress": OPEN,
    "elsewhere": ELSEWHERE,
    "standby": unknown("the server that was asked is a standby, which may not have heard of the transaction's end"),
    "too old": unknown("the transaction is too old: the server has forgotten how it ended"),
    "given again": unknown(
        "the server has recovered from a crash, or is a promoted standby or a restored copy, and a transaction with "
        "this id committed: perhaps this one, perhaps a later one that got its id"
    ),
}


def prepare() -> Steps[None]:
    """Needs nothing."""
    yield from ()


def here() -> Steps[str]:
    """The place of the transaction in which this runs."""
    ((system, since, outer, inner, _),) = yield HERE
    newest = int(outer) + (int(inner) - int(outer)) % 2**32  # a lock has the lower half of the id
    return f"postgresql {system} {since} {outer} {newest}"


def ended(places: Sequence[Sequence[str]]) -> Steps[list[Verdict]]:
    """How they ended, by one question about all."""
    if not places:
        return []
    rows = yield _question(places)
    return [SAID[said] for _, said in rows]


def delete(places: Sequence[str]) -> Steps[None]:
    """There are no markers."""
    yield from ()


def _question(places: Sequence[Sequence[str]]) -> str:
    asked = ", ".join(
        f"({number}, '{system}', '{since}', CAST('{outer}' AS xid8), CAST('{inner}' AS xid8))"
        for number, (system, since, outer, inner) in enumerate(places)
    )
    return f"""
WITH asked (number, system, since, outer_id, inner_id) AS (VALUES {asked}),
server AS MATERIALIZED (
  SELECT CAST(system_identifier AS text) AS system, {SINCE} AS since, pg_is_in_recovery() AS standby,
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
      = lpad(upper(to_hex(timeline_id)), 8, '0') AS checkpoint_is_new,
    CAST(CAST(CAST(split_part(next_xid, ':', 1) AS numeric) * 4294967296
      + CAST(split_part(next_xid, ':', 2) AS numeric) AS text) AS xid8) AS next_id,
    redo_lsn = checkpoint_lsn AND pg_stat_get_bgwriter_stat_reset_time() >= pg_postmaster_start_time()
      AND current_setting('wal_level') <> 'minimal' AS checkpoint_ended_recovery
  FROM pg_control_system(), pg_control_checkpoint())
SELECT number, CASE
  WHEN server.system <> asked.system THEN 'elsewhere'
  WHEN standby THEN 'standby'
  WHEN server.since = asked.since THEN {_said("committed")}
  WHEN NOT checkpoint_is_new THEN 'in progress'
  WHEN inner_id >= next_id THEN 'aborted'
  WHEN checkpoint_ended_recovery THEN {_said("committed")}
  ELSE {_said("given again")} END
FROM asked, server ORDER BY number
"""


def _said(committed: str) -> str:
    """What is said of a transaction whose id the server knows."""
    outer, inner = "pg_xact_status(outer_id)", "pg_xact_status(inner_id)"
    return f"""CASE
    WHEN 'aborted' IN ({outer}, {inner}) THEN 'aborted'
    WHEN {outer} IS NULL OR {inner} IS NULL THEN 'too old'
    WHEN {outer} = 'committed' AND {inner} = 'committed' THEN '{committed}'
    ELSE 'in progress' END"""
