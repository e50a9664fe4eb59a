"""The Engine: the one interface between the protocols (api/) and the message store.

A protocol turns requests into commands (commands/) and answers into responses; it holds no rules. The embedded engine
(broker.py) runs commands on the local store.

    Commands       execute, ask                                        every part of api/
    Core           the same, pop, sessions, numbers                    what every engine has
    Polling        wait_available, pull                                calls that wait
    Inspection     peek, look_up, why                                  single messages
    Sessions       locks of queues                                     consumers that pull
    CheckStreams   producers that are asked about their transactions
    Admin          redrive, consume mode, offsets, backup              operators

A part of api/ takes the protocol that it uses where that is less than all. Every method raises `Refused` for a request
that the engine refuses. Handles, recall handles and transaction ids are texts that the engine makes and reads.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from popmq_server.commands import (
    Available,
    Check,
    CloneOffsets,
    LookedUp,
    LookUp,
    Peek,
    Pop,
    Popped,
    Pull,
    Pulled,
    ReadRow,
    Redrive,
    Redriven,
    ResetOffsets,
    SetConsumeMode,
    Why,
)
from popmq_server.commands.inspection import MessageLife
from popmq_server.commands.numbers import Consumer, EngineInfo, StoreNumbers, StreamNumbers
from popmq_server.commands.queries import A, Query
from popmq_server.commands.sessions import Assignment
from popmq_server.commands.store import Piece
from popmq_server.errors import Refused
from popmq_server.model.records import Subscription


class Commands(Protocol):
    """Commands and queries, one at a time."""

    async def execute(self, command: Any) -> Any:
        """Runs one command; the answer has been committed."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; nothing changes. Of a list it joins the pieces, up to its `rows_max`."""


class Core(Commands, Protocol):
    """What every engine has. The other methods of Engine belong to capabilities, which an engine may lack."""

    def info(self) -> EngineInfo:
        """The engine's name, and the capabilities that it lacks; always the same."""

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pops, waiting up to `wait_ms` while no message is deliverable."""

    async def heartbeat(
        self, group: str, client: str, topics: frozenset[str], goodbye: bool, versioned: bool = True
    ) -> int:
        """Renews or ends a session; returns the version of the group's assignments, or 0 with `versioned` False."""

    async def assignment(
        self, topic: str, group: str, client: str, strategy: str = "", broadcast: bool = False
    ) -> Assignment:
        """Returns the queues assigned to a client; `strategy` applies where its group pulls."""

    async def clients(
        self, group: str, behind: tuple[str, str] = ("", ""), rows_max: int = 0
    ) -> tuple[list[Consumer], list[StreamNumbers]]:
        """Consumers with a session, and streams of producers. At most `rows_max` (0 = all) of the consumers after a
        (group, client), by name; streams come after the last of them.
        """

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops in-memory state of a deleted group or topic."""

    async def store_numbers(self) -> StoreNumbers:
        """The size of the store, and its free space."""

    def gauges(self, group: str, topic: str) -> tuple[int, int]:
        """(parked Pops, sessions) of a group in a topic."""


class Polling(Core, Protocol):
    """Calls that wait for messages."""

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Any:
        """Waits until a group has `min_ready` deliverable messages: (ready, Position)."""

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Pulls, waiting up to `wait_ms` at the end of the queue."""


class Inspection(Commands, Protocol):
    """Looks at single messages; nothing changes. An engine may search in pieces, and joins them."""

    async def peek(self, asked: Peek) -> list[ReadRow]:
        """The messages that the group's next Pop would deliver."""

    async def look_up(self, asked: LookUp) -> LookedUp:
        """A topic's messages by id or key, the newest first."""

    async def why(self, asked: Why) -> list[MessageLife]:
        """The histories of all messages with an id, in one consistent view."""


class Sessions(Core, Protocol):
    """Locks of queues, for consumers that pull."""

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """Locks or renews queues for a client; returns all that it holds now."""

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """Unlocks queues of a client."""


class ProducerStream(Protocol):
    """A live producer, as `join` returned it."""

    topics: frozenset[str]

    def end(self, refused: Refused | None = None) -> None:
        """Ends its checks: `next_check` returns None, or raises `refused`. Only the first call counts."""


class CheckStreams(Commands, Protocol):
    """Producers that answer checks of their half messages."""

    async def join(self, client: str, topics: tuple[str, ...]) -> ProducerStream:
        """Registers a live producer that answers checks for half messages of these topics, until `leave`."""

    def leave(self, stream: ProducerStream) -> None:
        """Unregisters a producer."""

    async def next_check(self, stream: ProducerStream) -> Check | None:
        """Waits for the next check to write to a producer; None when the stream has ended."""

    def checked(self, check: Check) -> None:
        """Reports that the check was written to the producer."""

    async def topics_of(self, transactions: Sequence[str]) -> frozenset[str]:
        """The topics of these transactions, for a check of rights. Ids that this engine did not make have no topic."""


class Admin(Core, Protocol):
    """What operators do, beside commands."""

    async def redrive(self, asked: Redrive) -> Redriven:
        """Redrives some or all dead letters. After a crash midway the rest is still there: call again."""

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Switches between POP and PULL; returns when everything leased before has been moved for the new mode."""

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Resets or clones offsets; returns the next offsets once everything that the group held before is removed."""

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """A copy of everything stored now, in pieces."""


class Engine(Polling, Inspection, Sessions, CheckStreams, Admin, Protocol):
    """An engine with all capabilities, or one that refuses those that it lacks (limited.py): what api/ serves."""
