"""Limits the message bytes that one commit batch returns, over all kinds of reading commands.

    Pop, with or without a token, Pull, Peek, LookUp, Browse  ──▶  below the limit: it runs, its answer is counted
                                                              ──▶  else NEXT_BATCH: it runs in the next batch

One answer may have 16 MiB and a batch may have a thousand commands, so a batch without this limit could build
gigabytes. A deferred command has had no effect: it leased nothing and used no quota or wake-up. Sealed sets and replays
therefore need no special case. It runs before the other commands of its lane.

See docs/decisions/0038-bounded-answers.md.
"""

from typing import Any, Final

from popmq_server.contract.commands import (
    LookedUpPiece,
    LookUpPiece,
    PeekedPiece,
    PeekPiece,
    Pop,
    Pull,
    Pulled,
    Query,
)
from popmq_server.contract.commands import bytes_of as bytes_of_rows
from popmq_server.contract.commands.numbers import Page
from popmq_server.contract.commands.queries import Browse
from popmq_server.values.leased import Leased

#: Message bytes in the answers of one commit batch; the last answer may exceed the limit.
ANSWER_BYTES_MAX = 16 << 20
#: The same, for what is read in pieces (parked_pulls.py, lists.py): many bulk readers do not share one batch.
PIECES_BYTES_MAX = 1 << 20
#: Takes the place of an answer: the command did not run, and must run in the next batch.
NEXT_BATCH: Final = object()

#: Commands that read messages for their callers.
READS = (Pop, Pull, PeekPiece, LookUpPiece, Browse)
_ASKS = (Pop, Pull, PeekPiece, LookUpPiece, Query)
_PIECES = (Pull, Browse)
_ANSWERS = (Leased, Pulled, PeekedPiece, LookedUpPiece, Page)


def must_wait(command: Any, answered: int) -> bool:
    """Whether a command is one that reads, and its batch has reached the limit."""
    if answered < PIECES_BYTES_MAX:
        return False
    return isinstance(command, _PIECES) or (answered >= ANSWER_BYTES_MAX and isinstance(command, _ASKS))


def bytes_of(answer: Any) -> int:
    """Message bytes in an answer."""
    return bytes_of_rows(answer.rows) if isinstance(answer, _ANSWERS) else 0
