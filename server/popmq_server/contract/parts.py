"""The parts of an engine that belong to capabilities, which one may lack (capabilities.py)."""

from collections.abc import AsyncGenerator
from typing import Any, Protocol

from popmq_server.contract.commands import (
    Available,
    CloneOffsets,
    LookedUp,
    LookUp,
    Peek,
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
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.core import Commands
from popmq_server.values.records import Subscription


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
