"""A commit batch: its commands, the outcome of its transactions, and the refusal of commands without room."""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from popmq_server.contract.commands import (
    LANES,
    EndTransaction,
    Pop,
    RedrivePiece,
    Send,
    Stage,
    needs_room,
)
from popmq_server.embedded.state import space
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.jobs import Timed
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused

#: Bytes that a Pop writes besides its members: CheckPoint, lease, positions.
POP_BYTES = 16 << 10


class Committed(NamedTuple):
    """The outcome of one `run`."""

    results: list[Any]  # for each command an answer, an exception, or answers.NEXT_BATCH: it did not run
    woken: set[tuple[str | None, str]]
    wrote: bool  # whether there was anything to commit
    seconds: float = 0.0  # the whole batch, fsync included
    timed: Timed = Timed([], [], [], [])
    arrived: Collection[tuple[str | None, str]] = ()  # queues whose parked Pulls look again
    events: Sequence[Event] = ()  # for the metrics; they are in the log already
    failures: Sequence[str] = ()  # the job of each piece or item that failed, for the metrics


class Batch:
    """The commands of one commit batch, and the answer of each."""

    def __init__(self, commands: list[Any]) -> None:
        self.commands = commands
        count = len(commands)
        self.results: list[Any] = [None] * count
        #: Message bytes in the answers of its committed transactions: answers.py.
        self.answered = 0
        #: Whether commands may be run as one: coalescing.py.
        self.as_one = count > 1

    def lane(self, index: int) -> int:
        return LANES[type(self.commands[index])]

    def leave_out(self, poisoned: "Poisoned", order: list[int]) -> None:
        """Prepares the next run: without the command that failed, or each command by itself."""
        if poisoned.index is None:
            self.as_one = False
        else:
            order.remove(poisoned.index)


TimesWork = Callable[[Tx], Timed]


def nothing(_: Tx) -> Timed:
    return Timed([], [], [], [])


def joined(results: list[Any], parts: list[Committed]) -> Committed:
    """The combined outcome of several transactions of one batch."""
    timed = Timed(
        *(list(itertools.chain.from_iterable(kind)) for kind in zip(*(part.timed for part in parts), strict=True))
    )
    woken = set().union(*(part.woken for part in parts))
    arrived = set().union(*(part.arrived for part in parts))
    events = [event for part in parts for event in part.events]
    failures = [name for part in parts for name in part.failures]
    wrote = any(part.wrote for part in parts)
    return Committed(results, woken, wrote, timed=timed, arrived=arrived, events=events, failures=failures)


def refusal_of(tx: Tx, command: Any) -> Refused | None:
    """The refusal of a command that has no room, or None. Handlers check the room for anything else they write."""
    if isinstance(command, Send | Stage):
        fits = tx.room.has(space.STORE, command.bytes + space.MESSAGE_BYTES * len(command.entries))
    elif isinstance(command, Pop):
        fits = tx.room.has(space.POP, POP_BYTES + space.ENTRY_BYTES * command.max_messages)
    elif needs_room(command):
        fits = tx.room.has(space.GROW if isinstance(command, EndTransaction | RedrivePiece) else space.POP)
    else:
        return None
    return None if fits else tx.room.refusal()


class TooManyPoisoned(Exception):
    """Too many commands of a transaction were poisoned: the rest runs in parts."""


class Poisoned(Exception):
    """A command wrote and then raised: the transaction cannot be used. None: several that were run as one."""

    def __init__(self, index: int | None) -> None:
        super().__init__(index)
        self.index = index
