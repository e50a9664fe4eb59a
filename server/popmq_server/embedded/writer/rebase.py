"""Rebase: corrects stored times after the wall clock was ahead and was set back.

    wall clock   ── right ──┐            ┌── right ──▶       a process takes the wall clock when it starts, and keeps
                            └─ ahead ────┘                   its own time from then on (clock.py)
    stored       times ≤ now: kept       times > now: moved back by (saved time - wall clock)

The last saved time is close to the time when the broker stopped, by the wrong clock. A lease that had a minute left
then has a minute left now: every stored time after now moves back by (saved time - wall clock). This covers timers
(leases and backoff, owners, delays, checks of half messages), records that are kept for a while (request numbers,
unique ids, ended transactions, stages, batches of sinks, redriven dead letters, idle lite topics and subscriptions),
and the times of chunks, which retention and lookups by timestamp use. The next mark of retention replaces those ahead
of the clock (marks.py). Messages, retry entries and history keep the wrong times.

A delivery time set by the sender (deliver_at_ms) is wall time and stays. A recall handle holds the due time of its
message, so `recall` also looks for the message at each amount that `meta` lists.

Rebase is one transaction before anything else runs: after a crash in the middle nothing has changed, and the next start
repeats it. It takes some 10 s for a million timers, or chunks that were stored by the wrong clock.
"""

import itertools
import json
import logging
import struct
from collections.abc import Callable
from typing import NamedTuple

from popmq_server.embedded.rules.sending import delay, stages, transaction, unique
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.keys import (
    DEDUP_VALUE,
    DUE_KEY,
    HDUE_KEY,
    NEVER,
    SCHED_KEY,
    TDONE_KEY,
    TSCHED_KEY,
    U64,
)
from popmq_server.embedded.store.lmdb import MapFull, Transaction
from popmq_server.embedded.store.store import Store
from popmq_server.errors import StartError
from popmq_server.values.records import Counters

log = logging.getLogger("popmq.rebase")

#: Rows that are read at once before they are changed.
_ROWS = 1000
_SAVED = Counters._fields.index("saved_ms") * U64.size

Row = tuple[bytes, bytes]


class Move(NamedTuple):
    """Moves times after `now_ms` back by `by_ms`; NEVER stays."""

    now_ms: int
    by_ms: int

    def __call__(self, ms: int) -> int:
        return ms - self.by_ms if self.now_ms < ms < NEVER else ms

    def seconds(self, seconds: int) -> int:
        return self(seconds * 1000) // 1000

    def fields(self, raw: bytes, layout: struct.Struct, *places: int) -> bytes:
        """Returns `raw` with these fields of its head moved."""
        fields = list(layout.unpack_from(raw))
        for place in places:
            fields[place] = self(fields[place])
        return layout.pack(*fields) + raw[layout.size :]


def rebase(store: Store, now_ms: int, by_ms: int) -> None:
    """Moves all stored times that are later than `now_ms`. Raises StartError if there is no room for it."""
    kv, move, count = store.begin(), Move(now_ms, by_ms), 0
    try:
        for name, change in _CHANGES.items():
            count += _rewrite(kv, name, move, change)
        counters = bytes(kv.get("meta", b"counters") or b"")
        kv.put("meta", b"counters", counters[:_SAVED] + U64.pack(now_ms) + counters[_SAVED + U64.size :])
        delay.note_move(kv, by_ms)
        kv.commit()
    except MapFull:
        kv.abort()
        raise StartError(
            f"the time that was saved last is {by_ms / 1000:.0f} s ahead of this machine's clock, and there is no room "
            "to set stored times right: start with a larger --max-size, or set the clock"
        ) from None
    log.warning(
        "the time that was saved last is %.0f s ahead of this machine's clock, which was wrong then: "
        "%d stored times were moved back by as much",
        by_ms / 1000,
        count,
    )


def _rewrite(kv: Transaction, name: str, move: Move, change: Callable[[Move, bytes, bytes], Row]) -> int:
    """Rewrites a table; returns the number of changed rows. No key grows, so no row is visited twice."""
    count, at = 0, b""
    while rows := [(key, bytes(value)) for key, value in itertools.islice(kv.scan(name, b"", at), _ROWS)]:
        for key, value in rows:
            moved = change(move, key, value)
            if moved != (key, value):
                if moved[0] != key:
                    kv.delete(name, key)
                kv.put(name, *moved)
                count += 1
        at = rows[-1][0] + b"\0"
    return count


def _due(move: Move, key: bytes, value: bytes) -> Row:
    due_ms, ck_id, sub = DUE_KEY.unpack(key)
    return DUE_KEY.pack(move(due_ms), ck_id, sub), value


def _ck(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, checkpoint.HEAD, checkpoint.HEAD_POPPED)


def _own(move: Move, key: bytes, value: bytes) -> Row:
    return key, _json(move, value, "lease_until_ms", "last_seen_ms")


def _topic(move: Move, key: bytes, value: bytes) -> Row:
    return key, _json(move, value, "idle_ms")


def _sub(move: Move, key: bytes, value: bytes) -> Row:
    return key, _json(move, value, "idle_ms", "warned_ms")


def _json(move: Move, value: bytes, *names: str) -> bytes:
    fields = json.loads(value)
    moved = fields | {name: move(fields[name]) for name in names if name in fields}
    return value if moved == fields else json.dumps(moved, ensure_ascii=False).encode()


def _sched(move: Move, key: bytes, value: bytes) -> Row:
    clock, due_ms, number, topic_id = SCHED_KEY.unpack(key)
    return (SCHED_KEY.pack(clock, move(due_ms), number, topic_id), value) if clock == delay.OUR_CLOCK else (key, value)


def _tsched(move: Move, key: bytes, value: bytes) -> Row:
    topic_id, clock, due_ms, number = TSCHED_KEY.unpack(key)
    return (TSCHED_KEY.pack(topic_id, clock, move(due_ms), number), value) if clock == delay.OUR_CLOCK else (key, value)


def _half(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, transaction.HALF, transaction.HALF_STORED, transaction.HALF_NEXT)


def _hdue(move: Move, key: bytes, value: bytes) -> Row:
    lane, due_ms, txn_id = HDUE_KEY.unpack(key)
    return HDUE_KEY.pack(lane, move(due_ms), txn_id), value


def _tdone(move: Move, key: bytes, value: bytes) -> Row:
    """The bucket in the key follows from the end time of the transaction."""
    moved = move.fields(value, transaction.DONE, transaction.DONE_ENDED)
    if moved == value:
        return key, value
    ended_ms = transaction.DONE.unpack_from(moved)[transaction.DONE_ENDED]
    return TDONE_KEY.pack(ended_ms // transaction.DONE_KEEP_MS, TDONE_KEY.unpack(key)[1]), moved


def _uid(move: Move, key: bytes, value: bytes) -> Row:
    """A bucket ends later than its ids, so the id decides: both move, or both stay."""
    moved = move.fields(value, unique.VALUE, 0)
    if moved == value:
        return key, value
    topic_id, end_s = unique.KEY_HEAD.unpack_from(key)
    return unique.KEY_HEAD.pack(topic_id, move.seconds(end_s)) + key[unique.KEY_HEAD.size :], moved


def _dedup(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, DEDUP_VALUE, 0)


def _gone(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, U64, 0)


def _idx(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, IDX_HEAD, 0)


def _staged(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, stages.STAGED, stages.STAGED_MS)


def _batch(move: Move, key: bytes, value: bytes) -> Row:
    return key, move.fields(value, stages.BATCH, stages.BATCH_MS)


_CHANGES: dict[str, Callable[[Move, bytes, bytes], Row]] = {
    "due": _due,
    "ck": _ck,
    "own": _own,
    "topic": _topic,
    "sub": _sub,
    "sched": _sched,
    "tsched": _tsched,
    "half": _half,
    "hdue": _hdue,
    "tdone": _tdone,
    "uid": _uid,
    "dedup": _dedup,
    "gone": _gone,
    "idx": _idx,
    "staged": _staged,
    "batch": _batch,
}
