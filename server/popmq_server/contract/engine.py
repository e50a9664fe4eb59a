"""The Engine: the one interface between the protocols (protocols/) and the message store.

A protocol turns requests into commands and queries (commands/) and answers into responses; it holds no rules. The
embedded engine (embedded/loop/broker.py) runs them on the local store, the one of gateways (cluster/engine.py) on the
brokers of a RocketMQ cluster.

    Commands         execute, ask            commands and queries, each with the type of its answer
    BasicEngine      also info, pop          what every engine has, whatever it lacks
    Polling          also pull, wait_available
    CheckStreams     producers that are asked about their half messages
    Engine           all of them, and a backup
    RoomForAnswers   what an engine is given: room for the messages that it reads

Parts of protocols/ take a smaller protocol where one suffices. Every method raises `Refused` for a request that the
engine refuses. Handles, recall handles and transaction ids are texts that the engine makes and reads.

See docs/decisions/0041-the-seam.md and docs/decisions/0049-commands-declared-once.md.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from popmq_server.contract.commands import Available, Check, Pop, Popped, Pull, Pulled, Ready
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.operations import A, Command, Query
from popmq_server.errors import Refused


class Commands(Protocol):
    """Commands and queries, one at a time."""

    async def execute(self, command: Command[A]) -> A:
        """Runs one command; the answer has been committed."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; nothing changes. Of a list it joins the pieces, up to its `rows_max`."""


class BasicEngine(Commands, Protocol):
    """What every engine has, whatever it lacks."""

    def info(self) -> EngineInfo:
        """The engine's name, and the capabilities that it lacks; always the same."""

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pops, waiting up to `wait_ms` while no message is deliverable."""


class Polling(BasicEngine, Protocol):
    """Calls that wait for messages."""

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Ready:
        """Waits until a group has `min_ready` deliverable messages."""

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Pulls, waiting up to `wait_ms` at the end of the queue."""


class ProducerStream(Protocol):
    """A live producer, as `join` returned it: an iterator over the checks to write to it.

    Asking for the next check says that the one before was written.
    """

    topics: frozenset[str]

    def __aiter__(self) -> AsyncIterator[Check]: ...

    async def __anext__(self) -> Check: ...

    def end(self, refused: Refused | None = None) -> None:
        """Ends its checks: the iteration stops, or raises `refused`. Only the first call counts."""

    def close(self) -> None:
        """Unregisters the producer. A check that was taken last and not written goes to another one."""


class CheckStreams(Commands, Protocol):
    """Producers that answer checks of their half messages."""

    async def join(self, client: str, topics: tuple[str, ...]) -> ProducerStream:
        """Registers a live producer that answers checks for half messages of these topics, until it is closed."""


class Engine(Polling, CheckStreams, Protocol):
    """What protocols/ serves: an engine with all capabilities, or one that refuses those that it lacks (`limited`)."""

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """A copy of everything stored now, in pieces."""


class RoomForAnswers(Protocol):
    """Room for the answers of calls: an engine asks for it before and after it reads messages (answer_room.py)."""

    def check(self) -> None:
        """Raises Refused when an answer to the running call would have no room."""

    def hold(self, size: int) -> None:
        """Holds `size` bytes of messages until the running call is over. Raises Refused when there is no room."""
