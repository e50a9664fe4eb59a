"""The Engine: the one interface between the protocols (api/) and the message store.

A protocol turns requests into commands (commands/) and answers into responses; it holds no rules. The embedded engine
(broker.py) runs commands on the local store.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from popmq_server.commands import (
    Available,
    Check,
    CloneOffsets,
    Pop,
    Popped,
    Pull,
    Pulled,
    ResetOffsets,
    SetConsumeMode,
)
from popmq_server.commands.numbers import Consumer, StoreNumbers, StreamNumbers
from popmq_server.commands.queries import A, Query
from popmq_server.commands.sessions import Assignment
from popmq_server.commands.store import Piece
from popmq_server.engine.producers import Stream
from popmq_server.model.records import Subscription


class Commands(Protocol):
    """Commands and queries, one at a time. Every method of the seam raises `Refused` for a request that it refuses."""

    async def execute(self, command: Any) -> Any:
        """Runs one command; the answer has been committed."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; nothing changes."""


class Engine(Commands, Protocol):
    """What a protocol may call."""

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pops, waiting up to `wait_ms` while no message is deliverable."""

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Any:
        """Waits until a group has `min_ready` deliverable messages: (ready, Position)."""

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Pulls, waiting up to `wait_ms` at the end of the queue."""

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Switches between POP and PULL; returns when everything leased before has been moved for the new mode."""

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Resets or clones offsets; returns the next offsets once everything that the group held before is removed."""

    async def assignment(
        self, topic: str, group: str, client: str, strategy: str = "", broadcast: bool = False
    ) -> Assignment:
        """Returns the queues assigned to a client; `strategy` applies where its group pulls."""

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """Locks or renews queues for a client; returns all that it holds now."""

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """Unlocks queues of a client."""

    async def clients(self, group: str) -> tuple[list[Consumer], list[StreamNumbers]]:
        """Consumers with a session, and streams of producers."""

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops in-memory state of a deleted group or topic."""

    async def heartbeat(
        self, group: str, client: str, topics: frozenset[str], goodbye: bool, versioned: bool = True
    ) -> int:
        """Renews or ends a session; returns the version of the group's assignments, or 0 with `versioned` False."""

    async def join(self, client: str, topics: tuple[str, ...]) -> Stream:
        """Registers a live producer that answers checks for half messages of these topics, until `leave`."""

    async def topics_of(self, transactions: Sequence[str]) -> frozenset[str]:
        """The topics of these transactions, for a check of rights; of an id that this engine did not make, none."""

    def leave(self, stream: Stream) -> None:
        """Unregisters a producer."""

    async def next_check(self, stream: Stream) -> Check | None:
        """Waits for the next check to write to a producer; None when the stream has ended."""

    def checked(self, check: Check) -> None:
        """Reports that the check was written to the producer."""

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """A copy of everything stored now, in pieces."""

    async def store_numbers(self) -> StoreNumbers:
        """The size of the store, and its free space."""

    def gauges(self, group: str, topic: str) -> tuple[int, int]:
        """(parked Pops, sessions) of a group in a topic."""
