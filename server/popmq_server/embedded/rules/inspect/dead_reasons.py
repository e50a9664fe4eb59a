"""The reasons of dead letters: how many have each, when the first and the last came.

Reasons are counted by their headline (values/reasons.py). A piece reads PIECE_LETTERS dead letters and no state
in memory, so it may run in any thread (loop/aside.py).
"""

from typing import NamedTuple

from popmq_server.contract.commands.inspection import ReasonNumbers
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.topics.log import Log, entries, over_hole
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.reasons import exception_in, headline

#: Dead letters that one piece reads, and bytes of them: a few milliseconds.
PIECE_LETTERS = 200
PIECE_BYTES = 1 << 20


class ReasonsPiece(NamedTuple):
    """The answer of a piece. `at`: the offset to go on at."""

    looked_at: int
    at: int


def count(
    kv: Transaction, topic_id: int, at: int, stop: int, origin: str, sums: dict[str, ReasonNumbers]
) -> ReasonsPiece:
    """Adds dead letters from an offset on to the sums. `origin`: only those from this topic; "" = from all."""
    units = entries(kv, topic_id, 0, at, min(PIECE_LETTERS, stop - at))
    if not units:
        return ReasonsPiece(0, over_hole(kv, topic_id, 0, at, stop))
    log, looked_at, left = Log(kv), 0, PIECE_BYTES
    for offset, position, size in units:
        if left <= 0:
            break
        at, left = offset + 1, left - size
        if deadletter.is_gone(kv, topic_id, 0, offset):
            continue
        looked_at += 1
        read = log.fetch(topic_id, position, size)
        opened = deadletter.opened(read[1]) if read else None
        if opened is not None and origin in ("", opened[1].topic):
            _add(sums, opened[1], offset)
    return ReasonsPiece(looked_at, at)


def _add(sums: dict[str, ReasonNumbers], origin: deadletter.Origin, offset: int) -> None:
    reason = headline(origin.reason)
    new = ReasonNumbers(reason, 0, origin.dead_ms, origin.dead_ms, offset, exception_in(reason))
    known = sums.get(reason, new)
    first_ms, last_ms = min(known.first_ms, origin.dead_ms), max(known.last_ms, origin.dead_ms)
    sums[reason] = ReasonNumbers(reason, known.messages + 1, first_ms, last_ms, offset, known.exception)
