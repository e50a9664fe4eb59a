"""The next-state relation of Life.tla in Python, function by function, with the same names in lower case.

test_relation.py compares the graphs of both, state by state and step by step. Time is in ticks there; replay.py uses
the same functions with milliseconds, and handles as nonces.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """Where a message is for one group: ready, leased, backoff, retry, done or dead; "" before it is sent.

    `attempts`: counted deliveries. `nonce`: names the last delivery. `left`: time until the lease or the delay is over.
    """

    at: str = ""
    attempts: int = 0
    nonce: int | str = 0
    left: float = 0


ABSENT = Row()


def moved(row: Row, place: str, left: float) -> Row:
    return row._replace(at=place, left=left)


# ── Calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def can_pop(row: Row) -> bool:
    return row.at in ("ready", "retry")


def popped(row: Row, nonce: int | str, lease: float) -> Row:
    return Row("leased", row.attempts + 1, nonce, lease)


def lives(row: Row, nonce: int | str) -> bool:
    return row.at == "leased" and row.nonce == nonce


def acked(row: Row) -> Row:
    return moved(row, "done", 0)


def extended(row: Row, left: float) -> Row:
    return moved(row, "leased", left)


def rejected(row: Row) -> Row:
    return moved(row, "dead", 0)


def released(row: Row, delay: float, max_attempts: int) -> Row:
    if row.attempts >= max_attempts:
        return moved(row, "dead", 0)
    return moved(row, "backoff" if delay else "retry", delay)


def uncounted(row: Row, delay: float) -> Row:
    return moved(row, "backoff" if delay else "retry", delay)._replace(attempts=row.attempts - 1)


# ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def can_expire(row: Row) -> bool:
    return row.at == "leased" and row.left == 0


def expired(row: Row, max_attempts: int) -> Row:
    return moved(row, "dead" if row.attempts >= max_attempts else "retry", 0)


def can_wake(row: Row) -> bool:
    return row.at == "backoff" and row.left == 0


def woken(row: Row) -> Row:
    return moved(row, "retry", 0)


def ticked(row: Row, by: float) -> Row:
    return row._replace(left=max(0, row.left - by))


def steps(row: Row, max_attempts: int, max_pops: int) -> Iterator[tuple[str, Row]]:
    """Every step from a row, by the names of LifeGraph.tla; times in ticks, nonces from 1 to `max_pops`."""
    if row == ABSENT:
        yield "Send", moved(row, "ready", 0)
    if can_pop(row) and isinstance(row.nonce, int) and row.nonce < max_pops:
        yield "Pop", popped(row, row.nonce + 1, 1)
    if lives(row, row.nonce):
        yield "Ack", acked(row)
        yield "Extend", extended(row, 2)
        yield "Reject", rejected(row)
        yield "ReleaseNow", released(row, 0, max_attempts)
        yield "ReleaseLater", released(row, 1, max_attempts)
        yield "SnoozeNow", uncounted(row, 0)
        yield "SnoozeLater", uncounted(row, 1)
    if can_expire(row):
        yield "Expire", expired(row, max_attempts)
    if can_wake(row):
        yield "Wake", woken(row)
    if row.left > 0:
        yield "Tick", ticked(row, 1)
