"""The Engine with access keys: checks the rights that each command needs, for both protocols in one place.

    protocols/ ── command, query ──▶ Guarded: `needs`     ── does the caller's key allow it? ──▶ Engine

    send       Send, Stage, Recall, Reschedule, EndTransaction, a producer's stream    by topic
    receive    reads, acks, offsets of a group                         by topic and group; commands by handle: by group
    admin      topics, groups, schedules, repairs; and reading everything
    lists      contain only rows that the key may see                                        `shown`
    sinks, owners, leases    as far as only the store knows whose they are                   `narrowed`

Each class of commands and queries says what it needs (contract/operations.py). Handles, recall handles and transaction
ids cannot be guessed, so each proves the delivery or send that it came from. The broker's own work does not pass
through Guarded.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable

from popmq_server.contract.commands import (
    Available,
    Check,
    EndTransaction,
    Pop,
    Popped,
    Pull,
    Pulled,
    Ready,
    TopicsOf,
)
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.engine import Engine, ProducerStream
from popmq_server.contract.operations import A, Command, Query
from popmq_server.contract.rights import ADMIN, KNOWN, NOBODY, Needs, sends
from popmq_server.errors import Refused
from popmq_server.protocols.access.access_keys import (
    BY_ADMIN,
    CALLER,
    Key,
    denied,
    unauthenticated,
)
from popmq_server.protocols.access.known_keys import Keys


class Guarded:
    """An Engine that enforces the caller's key. Every method raises Refused UNAUTHENTICATED, PERMISSION_DENIED.

    It inherits nothing: a method added to Engine is unavailable to the protocols until it is written here.
    """

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys

    def _caller(self) -> Key:
        """The caller's key, if the key file still contains it."""
        key = CALLER.get()
        if isinstance(key, Refused):
            raise key
        if key is None or not self._keys.holds(key):
            raise unauthenticated("the access key of this call was removed or replaced")
        return key

    def _allow(self, needs: Needs) -> Key:
        """The caller's key, if it covers all needs. Almost every method here calls it."""
        key = self._caller()
        for need in needs:
            if not key.may(need):
                raise denied(key, need)
            if need.or_admin and not key.may(need._replace(or_admin=False)):
                BY_ADMIN.set(True)
        return key

    async def execute(self, command: Command[A]) -> A:
        """Executes one command. No key suffices for a query that comes as a command, whose answer nothing would cut to
        what the key may see.
        """
        key = self._allow(command.needs() if isinstance(command, Command) else NOBODY)
        if isinstance(command, EndTransaction):
            await self._allow_ends(command)
        return await self._engine.execute(command.narrowed(key))

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; shows only what the key may see."""
        key = self._allow(query.needs())
        return query.shown(await self._engine.ask(query.narrowed(key)), key)

    async def _allow_ends(self, command: EndTransaction) -> None:
        """Checks the topic of each transaction. The engine refuses ids that it did not make or whose topic is gone."""
        transactions = tuple(end.transaction for end in command.ends if not isinstance(end, Refused))
        for topic in await self._engine.ask(TopicsOf(transactions)):
            self._allow(sends(topic, or_admin=True))

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Needs receive. A key that is withdrawn while the Pop waits still gets its messages."""
        key = self._allow(command.needs())
        return await self._engine.pop(command.narrowed(key), wait_ms)

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Ready:
        """Needs receive."""
        self._allow(command.needs())
        return await self._engine.wait_available(command, min_ready, wait_ms)

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Needs receive."""
        self._allow(command.needs())
        return await self._engine.pull(command, wait_ms)

    async def join(self, client: str, topics: tuple[str, ...]) -> ProducerStream:
        """Needs send on every topic, also for each check: they contain whole messages."""
        needs = tuple(need for topic in topics for need in sends(topic)) or sends("")
        self._allow(needs)
        return _GuardedStream(await self._engine.join(client, topics), lambda: self._allow(needs))

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """Needs admin: a backup contains every message."""
        self._allow(ADMIN)
        return self._engine.backup(bytes_per_s)

    def info(self) -> EngineInfo:
        """Any key may ask for the capabilities."""
        self._allow(KNOWN)
        return self._engine.info()


class _GuardedStream:
    """A producer's checks, as long as its key may get them. A withdrawn key gets no more messages."""

    def __init__(self, stream: ProducerStream, allow: Callable[[], object]) -> None:
        self._stream, self._allow = stream, allow
        self.topics, self.end, self.close = stream.topics, stream.end, stream.close

    def __aiter__(self) -> AsyncIterator[Check]:
        return self

    async def __anext__(self) -> Check:
        check = await anext(self._stream)
        self._allow()
        return check
