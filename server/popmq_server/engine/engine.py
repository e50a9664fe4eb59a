"""The Engine: the one seam between the faces (api/) and whatever stores messages.

A face turns requests into commands (commands.py) and answers into responses; it holds no rules. The embedded engine
(broker.py) runs commands on the local store.
"""

from collections.abc import AsyncGenerator
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
from popmq_server.engine.backup import Piece
from popmq_server.engine.consumers import Consumer
from popmq_server.engine.producers import Stream, StreamNumbers
from popmq_server.engine.rebalance import Assignment
from popmq_server.model.records import Subscription


class Engine(Protocol):
    """What a face may ask. Every method raises `Refused` for what is not done."""

    async def execute(self, command: Any) -> Any:
        """Runs one command; the answer is durable."""

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pop, waiting up to `wait_ms` when there is nothing."""

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Any:
        """Waits until a group has `min_ready` deliverable messages: (ready, Position)."""

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Pull, waiting up to `wait_ms` at the end of the queue."""

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Switches between POP and PULL; returns when all that was held stands where the other mode finds it."""

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Resets or clones offsets; returns the next ones when what was held is gone."""

    async def assignment(
        self, topic: str, group: str, client: str, strategy: str = "", broadcast: bool = False
    ) -> Assignment:
        """The queues that a client is to read, by a strategy where its group pulls."""

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """Takes or renews queues for a client; those that it has now."""

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """Gives queues free."""

    async def clients(self, group: str) -> tuple[list[Consumer], list[StreamNumbers]]:
        """Consumers with a session, and streams of producers."""

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """A group or a topic was deleted: what lives in memory under its name goes."""

    async def heartbeat(
        self, group: str, client: str, topics: frozenset[str], goodbye: bool, versioned: bool = True
    ) -> int:
        """Keeps or ends a session; the version of the group's membership, or 0 when it is not asked for."""

    async def join(self, client: str, topics: tuple[str, ...]) -> Stream:
        """A live producer, which is asked about half messages of these topics until `leave`."""

    def leave(self, stream: Stream) -> None:
        """The producer is gone."""

    async def next_check(self, stream: Stream) -> Check | None:
        """Waits for what to ask the producer next; None when the stream is over."""

    def checked(self, check: Check) -> None:
        """It was asked."""

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """A copy of all that is stored now, in pieces."""

    def gauges(self, group: str, topic: str) -> tuple[int, int]:
        """(parked Pops, sessions) of a group in a topic."""
