"""Producers that stay connected, since the engine asks them about their half messages: a capability of its own."""

from collections.abc import Sequence
from typing import Protocol

from popmq_server.contract.commands import Check
from popmq_server.contract.core import Commands
from popmq_server.errors import Refused


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
