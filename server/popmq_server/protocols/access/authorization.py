"""The Engine with access keys: checks the rights that each command needs, for both protocols in one place.

    protocols/ ── command, query ──▶ Guarded: needs.py    ── does the caller's key allow it? ──▶ Engine

    send       Send, Stage, Recall, EndTransaction, a producer's stream    by topic
    receive    reads, acks, offsets of a group                         by topic and group; commands by handle: by group
    admin      topics, groups, schedules, repairs; and reading everything
    lists      contain only rows that the key may see
    sinks, owners, leases    as far as only the store knows whose they are     narrowing.py

Handles, recall handles and transaction ids cannot be guessed, so each proves the delivery or send that it came from. A
command that is missing in the tables (needs.py) is refused. The broker's own work does not pass through Guarded.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from popmq_server.contract.commands import (
    Available,
    Check,
    CloneOffsets,
    EndTransaction,
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
    Rows,
    StoreNumbers,
    StreamNumbers,
)
from popmq_server.contract.commands.queries import A, Query
from popmq_server.contract.commands.sessions import Assignment, Heartbeat
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.engine import Engine, ProducerStream
from popmq_server.errors import Refused
from popmq_server.protocols.access.access_keys import (
    BY_ADMIN,
    CALLER,
    Key,
    denied,
    unauthenticated,
)
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.access.narrowing import NARROWED, of_token
from popmq_server.protocols.access.needs import (
    ADMIN,
    ASKING,
    KNOWN,
    NEEDS,
    ROWS,
    Needs,
    looks,
    named_group,
    nobody,
    of_pair,
    of_pair_or_admin,
    receives,
    sends,
)
from popmq_server.values.message import dead_letter_topic
from popmq_server.values.records import Subscription


def _seen(life: MessageLife, key: Key) -> MessageLife:
    """A message with those of its groups that the key may see."""
    groups = [one for one in life.groups if all(map(key.may, looks(life.topic, one.group)))]
    return life._replace(groups=groups)


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

    async def execute(self, command: Any) -> Any:
        """Executes one command."""
        kind = type(command)
        key = self._allow(NEEDS.get(kind, nobody)(command))
        if kind is EndTransaction:
            await self._allow_ends(command)
        elif kind in NARROWED:
            command = NARROWED[kind](command, key)
        return await self._engine.execute(command)

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; lists contain only the rows that the key may see."""
        key = self._allow(ASKING.get(type(query), nobody)(query))
        if type(query) in NARROWED:
            query = NARROWED[type(query)](query, key)
        answer = await self._engine.ask(query)
        visible = ROWS.get(type(query))
        if visible is None:
            return answer
        rows: Any = answer
        return cast(A, Rows((row for row in rows if all(map(key.may, visible(row)))), rows.after))

    async def _allow_ends(self, command: EndTransaction) -> None:
        """Checks the topic of each transaction. The engine refuses ids that it did not make or whose topic is gone."""
        transactions = [end.transaction for end in command.ends if not isinstance(end, Refused)]
        for topic in await self._engine.topics_of(transactions):
            self._allow(sends(topic, or_admin=True))

    async def topics_of(self, transactions: Sequence[str]) -> frozenset[str]:
        """Needs admin: it tells the topic of a transaction."""
        self._allow(ADMIN)
        return await self._engine.topics_of(transactions)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Needs receive. A key that is withdrawn while the Pop waits still gets its messages."""
        key = self._allow(of_pair(command))
        if command.token is not None:
            command = of_token(command, key)
        return await self._engine.pop(command, wait_ms)

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Any:
        """Needs receive."""
        self._allow(of_pair(command))
        return await self._engine.wait_available(command, min_ready, wait_ms)

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Needs receive."""
        self._allow(of_pair(command))
        return await self._engine.pull(command, wait_ms)

    async def peek(self, asked: Peek) -> list[ReadRow]:
        """Needs receive, or admin."""
        self._allow(of_pair_or_admin(asked))
        return await self._engine.peek(asked)

    async def look_up(self, asked: LookUp) -> LookedUp:
        """Needs receive, or admin, on the topic."""
        self._allow(looks(asked.topic, ""))
        return await self._engine.look_up(asked)

    async def search(self, asked: Search) -> Searched:
        """Needs receive, or admin, on the topic."""
        self._allow(looks(asked.topic, ""))
        return await self._engine.search(asked)

    async def why(self, asked: Why) -> list[MessageLife]:
        """Needs receive, or admin, on the topic and group; needs admin for all topics. Shows groups of the key only."""
        key = self._allow(looks(asked.topic, asked.group))
        return [_seen(life, key) for life in await self._engine.why(asked)]

    async def redrive(self, asked: Redrive) -> Redriven:
        """Needs admin."""
        self._allow(ADMIN)
        return await self._engine.redrive(asked)

    async def discard(self, asked: Redrive) -> Redriven:
        """Needs admin, as redrive."""
        self._allow(ADMIN)
        return await self._engine.discard(asked)

    async def dead_letter_reasons(self, asked: DeadLetterReasons) -> ReasonsFound:
        """Needs receive, or admin, on the dead-letter topic; needs admin for given-up half messages."""
        self._allow(looks(dead_letter_topic(asked.group), "") if asked.group else ADMIN)
        return await self._engine.dead_letter_reasons(asked)

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Needs receive, or admin: a new group that pulls sets its own mode."""
        self._allow(of_pair_or_admin(command))
        return await self._engine.set_consume_mode(command)

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Needs admin."""
        self._allow(ADMIN)
        return await self._engine.move(command)

    async def assignment(
        self, topic: str, group: str, client: str, strategy: str = "", broadcast: bool = False
    ) -> Assignment:
        """Needs receive."""
        self._allow(receives(topic, group))
        return await self._engine.assignment(topic, group, client, strategy, broadcast)

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """Needs receive."""
        self._allow(receives(topic, group))
        return await self._engine.lock_queues(topic, group, client, queues)

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """Needs receive."""
        self._allow(receives(topic, group))
        await self._engine.unlock_queues(topic, group, client, queues)

    async def clients(
        self, group: str, behind: tuple[str, str] = ("", ""), rows_max: int = 0
    ) -> tuple[list[Consumer], list[StreamNumbers]]:
        """Needs receive, or admin, on the group; needs admin for all groups."""
        self._allow(named_group(group))
        return await self._engine.clients(group, behind, rows_max)

    async def heartbeat(self, beat: Heartbeat) -> int:
        """Needs receive on every topic."""
        self._allow(tuple(need for topic in sorted(beat.topics) or [""] for need in receives(topic, beat.group)))
        return await self._engine.heartbeat(beat)

    async def join(self, client: str, topics: tuple[str, ...]) -> ProducerStream:
        """Needs send on every topic: checks contain whole messages."""
        self._allow(tuple(need for topic in topics for need in sends(topic)) or sends(""))
        return await self._engine.join(client, topics)

    def leave(self, stream: ProducerStream) -> None:
        """Needs nothing: the caller owns the stream, even if its key is gone."""
        self._engine.leave(stream)

    async def next_check(self, stream: ProducerStream) -> Check | None:
        """Needs send. A withdrawn key gets no more messages."""
        check = await self._engine.next_check(stream)
        self._allow(tuple(need for topic in stream.topics for need in sends(topic)))
        return check

    def checked(self, check: Check) -> None:
        """Needs nothing: the caller owns the check."""
        self._engine.checked(check)

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """Needs admin: a backup contains every message."""
        self._allow(ADMIN)
        return self._engine.backup(bytes_per_s)

    def info(self) -> EngineInfo:
        """For any key."""
        self._allow(KNOWN)
        return self._engine.info()

    async def store_numbers(self) -> StoreNumbers:
        """For any key."""
        self._allow(KNOWN)
        return await self._engine.store_numbers()
