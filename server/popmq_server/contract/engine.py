"""The Engine: the one interface between the protocols (protocols/) and the message store.

A protocol turns requests into commands (commands/) and answers into responses; it holds no rules. The embedded engine
(loop/broker.py) runs commands on the local store; tests/engine/stub.py is a second one.

    Commands       execute, ask                                     every part of protocols/
    BasicEngine    the same, pop, sessions, size of the store       what every engine has
    Polling        wait_available, pull                             parked calls
    Inspection     peek, look_up, search, why                       single messages
    Sessions       locks of queues                                  consumers that pull
    Admin          redrive, consume mode, offsets, backup           operators
    CheckStreams   producers that are asked about their half messages

All but Commands and BasicEngine belong to capabilities, which an engine may lack (capabilities.py).

A part of protocols/ takes a smaller protocol where one suffices; those of protocols/rocketmq share a base that takes
Engine.
Every method raises `Refused` for a request that the engine refuses. Handles, recall handles and transaction ids are
texts that the engine makes and reads.

See docs/decisions/0041-the-seam.md.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from popmq_server.contract.commands import (
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
    Search,
    Searched,
    SetConsumeMode,
    Why,
)
from popmq_server.contract.commands.inspection import DeadLetterReasons, MessageLife, ReasonsFound
from popmq_server.contract.commands.numbers import (
    Consumer,
    EngineInfo,
    StoreNumbers,
    StreamNumbers,
)
from popmq_server.contract.commands.queries import A, Query
from popmq_server.contract.commands.sessions import Assignment, Heartbeat
from popmq_server.contract.commands.store import Piece
from popmq_server.errors import Refused
from popmq_server.values.records import Subscription


class Commands(Protocol):
    """Commands and queries, one at a time."""

    async def execute(self, command: Any) -> Any:
        """Runs one command; the answer has been committed."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; nothing changes. Of a list it joins the pieces, up to its `rows_max`."""


class BasicEngine(Commands, Protocol):
    """Pops, sessions, and the size of the store."""

    def info(self) -> EngineInfo:
        """The engine's name, and the capabilities that it lacks; always the same."""

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pops, waiting up to `wait_ms` while no message is deliverable."""

    async def heartbeat(self, beat: Heartbeat) -> int:
        """Renews or ends a session; returns the version of the group's assignments, or 0 if it is not `versioned`."""

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

    async def store_numbers(self) -> StoreNumbers:
        """The size of the store, and its free space. Those of topics and groups are queries."""


class RoomForAnswers(Protocol):
    """Room for the answers of calls: an engine asks for it before and after it reads messages (answer_room.py)."""

    def check(self) -> None:
        """Raises Refused when an answer to the running call would have no room."""

    def hold(self, size: int) -> None:
        """Holds `size` bytes of messages until the running call is over. Raises Refused when there is no room."""


class Polling(Commands, Protocol):
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

    async def search(self, asked: Search) -> Searched:
        """The messages of all queues of a topic, newest or oldest first, or those with a text."""

    async def dead_letter_reasons(self, asked: DeadLetterReasons) -> ReasonsFound:
        """The reasons of a group's dead letters, with their numbers."""

    async def why(self, asked: Why) -> list[MessageLife]:
        """The histories of all messages with an id, in one consistent view."""


class Sessions(Commands, Protocol):
    """Locks of queues, for consumers that pull."""

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """Locks or renews queues for a client; returns all that it holds now."""

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """Unlocks queues of a client."""


class Admin(Commands, Protocol):
    """What operators do, beside commands."""

    async def redrive(self, asked: Redrive) -> Redriven:
        """Redrives some or all dead letters. After a crash midway the rest is still there: call again."""

    async def discard(self, asked: Redrive) -> Redriven:
        """Removes some or all dead letters. After a crash midway the rest is still there: call again."""

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Switches between POP and PULL; returns when what was leased or waiting is moved for it."""

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Resets or clones offsets; returns the next offsets once everything that the group held before is removed."""

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """A copy of everything stored now, in pieces."""


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


class Engine(Polling, Inspection, Sessions, CheckStreams, Admin, BasicEngine, Protocol):
    """What protocols/ serves: an engine with all capabilities, or one that refuses those that it lacks (`limited`)."""
