"""What every engine has. The other methods of Engine belong to capabilities, which an engine may lack (parts.py)."""

from typing import Any, Protocol

from popmq_server.contract.commands import Pop, Popped
from popmq_server.contract.commands.numbers import (
    Consumer,
    EngineInfo,
    StoreNumbers,
    StreamNumbers,
)
from popmq_server.contract.commands.queries import A, Query
from popmq_server.contract.commands.sessions import Assignment, Heartbeat


class Commands(Protocol):
    """Commands and queries, one at a time."""

    async def execute(self, command: Any) -> Any:
        """Runs one command; the answer has been committed."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; nothing changes. Of a list it joins the pieces, up to its `rows_max`."""


class Core(Commands, Protocol):
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
