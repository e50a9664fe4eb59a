"""A commit batch: its commands, the outcome of its transactions, and the refusal of commands without room.

A batch limits the message bytes that it returns, over all kinds of reading commands:

    Pop, with or without a token, Pull, Peek, LookUp, Browse  ──▶  below the limit: it runs, its answer is counted
                                                              ──▶  else NEXT_BATCH: it runs in the next batch

One answer may have 16 MiB and a batch may have a thousand commands, so a batch without this limit could build
gigabytes. A deferred command has had no effect: it leased nothing and used no quota or wake-up. Sealed sets and replays
therefore need no special case. It runs before the other commands of its lane.

See docs/decisions/0038-bounded-answers.md.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from popmq_server.clock import stopwatch
from popmq_server.contract.commands import (
    Ack,
    EndTransaction,
    ForgetResults,
    Pop,
    Pull,
    Pulled,
    Send,
    Settle,
    Stage,
    StoreResults,
)
from popmq_server.contract.commands import bytes_of as bytes_of_rows
from popmq_server.contract.commands.numbers import CommitNumbers, CountedRows, DelayedMessage, EventNumbers, Page
from popmq_server.contract.commands.queries import Browse, Delayed
from popmq_server.contract.operations import Operation, Query
from popmq_server.embedded.operations import (
    LookedUpPiece,
    LookUpPiece,
    PeekedPiece,
    PeekPiece,
    RedrivePiece,
    ResultsPiece,
    SomeResults,
)
from popmq_server.embedded.state import space
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.jobs import Timed
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused
from popmq_server.values.leased import Leased

#: Bytes that a Pop writes besides its members: CheckPoint, lease, positions.
POP_BYTES = 16 << 10


class Committed(NamedTuple):
    """The outcome of one `run`."""

    results: list[Any]  # for each command its answer, an exception, or NEXT_BATCH: it did not run
    woken: set[tuple[str | None, str]]
    wrote: bool  # whether there was anything to commit
    seconds: float = 0.0  # the whole batch, fsync included
    timed: Timed = Timed([], [], [], [])
    arrived: Collection[tuple[str | None, str]] = ()  # queues whose parked Pulls look again
    resulted: Collection[tuple[str, str]] = ()  # results whose waiting GetResults look again
    events: Sequence[Event] = ()  # for the metrics; they are in the log already
    failures: Sequence[str] = ()  # the job of each piece or item that failed, for the metrics
    broken: Sequence[str] = ()  # the name of each invariant that was broken, for the metrics
    served: Collection[tuple[str, str]] = ()  # Tx.served


def numbers_of(committed: Committed) -> CommitNumbers:
    """What the metrics count of a commit batch."""
    timed = committed.timed
    events = list(map(_numbers_of_event, committed.events)) if committed.events else []
    count = len(committed.results)
    late = timed.late_ms, timed.released_late_ms, len(timed.given_up)
    failed = committed.failures, committed.broken
    return CommitNumbers(committed.wrote, count, committed.seconds, *late, events, *failed)


def _numbers_of_event(event: Event) -> EventNumbers:
    return EventNumbers(event.kind, event.group, event.topic, event.messages)


class Batch:
    """The commands of one commit batch, and the answer of each."""

    def __init__(self, commands: Sequence[Operation[object]]) -> None:
        self.commands = commands
        #: When it began, on the stopwatch.
        self.began = stopwatch()
        count = len(commands)
        self.results: list[object] = [None] * count
        #: Message bytes in the answers of its committed transactions, and with those of the running one.
        self.answered = self.answering = 0
        #: Whether commands may be run as one: coalescing.py.
        self.as_one = count > 1

    def lane(self, index: int) -> int:
        return self.commands[index].lane

    def leave_out(self, poisoned: "Poisoned", order: list[int]) -> None:
        """Prepares the next run: without the command that failed, or each command by itself."""
        if poisoned.index is None:
            self.as_one = False
        else:
            order.remove(poisoned.index)


TimesWork = Callable[[Tx], Timed]


def nothing(_: Tx) -> Timed:
    return Timed([], [], [], [])


def joined(results: list[object], parts: list[Committed]) -> Committed:
    """The combined outcome of several transactions of one batch."""
    timed = Timed(
        *(list(itertools.chain.from_iterable(kind)) for kind in zip(*(part.timed for part in parts), strict=True))
    )
    woken = set().union(*(part.woken for part in parts))
    arrived = set().union(*(part.arrived for part in parts))
    resulted = set[tuple[str, str]]().union(*(part.resulted for part in parts))
    events = [event for part in parts for event in part.events]
    failures = [name for part in parts for name in part.failures]
    broken = [name for part in parts for name in part.broken]
    wrote = any(part.wrote for part in parts)
    return Committed(
        results,
        woken,
        wrote,
        timed=timed,
        arrived=arrived,
        resulted=resulted,
        events=events,
        failures=failures,
        broken=broken,
    )


def refusal_of(tx: Tx, command: Operation[object]) -> Refused | None:
    """The refusal of a command that has no room, or None. Handlers check the room for anything else they write."""
    if isinstance(command, Send | Stage):
        fits = tx.room.has(space.STORE, command.bytes + space.MESSAGE_BYTES * len(command.entries))
    elif isinstance(command, Settle) and (command.sends or command.results):
        size = sum(send.bytes + space.MESSAGE_BYTES * len(send.entries) for send in command.sends)
        size += command.results_bytes + space.MESSAGE_BYTES * len(command.results)
        fits = tx.room.has(space.STORE, size)
    elif isinstance(command, Ack):
        stores = space.messages_bytes([command.bytes]) + space.MESSAGE_BYTES * len(command.results)
        fits = not command.results or tx.room.has(space.STORE, stores)
    elif isinstance(command, StoreResults):
        stores = space.messages_bytes([command.bytes]) + space.MESSAGE_BYTES * len(command.results)
        fits = tx.room.has(space.STORE, stores)
    elif isinstance(command, Pop):
        fits = tx.room.has(space.POP, POP_BYTES + space.ENTRY_BYTES * command.max_messages)
    elif command.takes_room():
        fits = tx.room.has(
            space.GROW if isinstance(command, EndTransaction | ForgetResults | RedrivePiece) else space.POP
        )
    else:
        return None
    return None if fits else tx.room.refusal()


class TooManyPoisoned(Exception):
    """Too many commands of a transaction were poisoned: the rest runs in parts."""


class Poisoned(Exception):
    """A command wrote and then raised: the transaction cannot be used. None: several that were run as one.

    `full`: a put met a full map.
    """

    def __init__(self, index: int | None, *, full: bool = False) -> None:
        super().__init__(index)
        self.index, self.full = index, full


# ── The message bytes of answers ─────────────────────────────────────────────────────────────────────────────────────

#: Message bytes in the answers of one commit batch; the last answer may exceed the limit.
ANSWER_BYTES_MAX = 16 << 20
#: The limit for reads in pieces (parked_pulls.py, in_pieces.py): many bulk readers do not share one batch.
PIECES_BYTES_MAX = 256 << 10
#: Takes the place of an answer: the command did not run, and must run in the next batch.
NEXT_BATCH: Final = object()

#: Commands that read messages for their callers.
READS = (Pop, Pull, PeekPiece, LookUpPiece, ResultsPiece, Browse, Delayed)
_ASKS = (Pop, Pull, PeekPiece, LookUpPiece, Query)
_PIECES = (Pull, Browse)
_ANSWERS = (Leased, Pulled, PeekedPiece, LookedUpPiece, SomeResults, Page)


def must_wait(command: Operation[object], answered: int) -> bool:
    """Whether a command is one that reads, and its batch has reached the limit."""
    if answered < PIECES_BYTES_MAX:
        return False
    return isinstance(command, _PIECES) or (answered >= ANSWER_BYTES_MAX and isinstance(command, _ASKS))


def answer_bytes(answer: object) -> int:
    """Message bytes in an answer."""
    if isinstance(answer, CountedRows):
        return sum(len(row.data) for row in answer.rows if isinstance(row, DelayedMessage))
    return bytes_of_rows(answer.rows) if isinstance(answer, _ANSWERS) else 0
