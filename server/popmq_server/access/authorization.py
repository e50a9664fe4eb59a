"""The Engine with access keys: checks the rights that each command needs, for both protocols in one place.

    api/ ── command, query ──▶ Guarded: NEEDS, ASKING ── does the caller's key allow it? ──▶ Engine

    send       Send, Stage, Recall, EndTransaction, a producer's stream    by topic
    receive    reads, acks, offsets of a group                         by topic and group; commands by handle: by group
    admin      topics, groups, schedules, repairs; and reading everything
    lists      contain only rows that the key may see                  ROWS
    sinks, owners, leases    as far as only the store knows whose they are     narrowing.py

Handles, recall handles and transaction ids cannot be guessed, so each proves the delivery or send that it came from. A
command that is missing in the tables is refused. The broker's own work does not pass through Guarded.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

from popmq_server import commands
from popmq_server.access.access_keys import BY_ADMIN, CALLER, Key, Need, denied, unauthenticated
from popmq_server.access.known_keys import Keys
from popmq_server.access.narrowing import NARROWED, of_token
from popmq_server.commands import (
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
    SetConsumeMode,
    Why,
    queries,
)
from popmq_server.commands.inspection import MessageLife
from popmq_server.commands.numbers import Consumer, EngineInfo, Rows, StoreNumbers, StreamNumbers
from popmq_server.commands.queries import A, Query
from popmq_server.commands.sessions import Assignment, Heartbeat
from popmq_server.commands.store import Piece
from popmq_server.errors import Refused
from popmq_server.model.message import RETRY_PREFIX
from popmq_server.model.records import Subscription
from popmq_server.seam.engine import Engine
from popmq_server.seam.producers import ProducerStream

Needs = tuple[Need, ...]

ADMIN = (Need("admin"),)
#: Any key suffices.
KNOWN = (Need("known"),)
#: No key suffices: no grant covers it, not even `*`.
NOBODY = (Need("nobody"),)


# Helpers for the tables below. `or_admin`: calls that operators make for a client, or that only read.


def _send(topic: str, or_admin: bool = False) -> Needs:
    return (Need("send", topic, "", or_admin),)


def _receive(topic: str, group: str, or_admin: bool = False) -> Needs:
    """Reading a topic; a retry topic belongs to the topic and group in its name."""
    if not topic.startswith(RETRY_PREFIX):
        return (Need("receive", topic, group, or_admin),)
    its_group, _, its_topic = topic.removeprefix(RETRY_PREFIX).partition("+")
    own = Need("receive", its_topic, its_group, or_admin)
    return (own, Need("receive", its_topic, group, or_admin)) if group else (own,)


def _look(topic: str, group: str) -> Needs:
    """Reading messages; without a topic, those of all topics."""
    return _receive(topic, group, or_admin=True) if topic else ADMIN


def _describe(topic: str) -> Needs:
    """A topic's existence and settings: any right on the topic suffices."""
    return _look(topic, "") if topic.startswith(RETRY_PREFIX) else (Need("describe", topic),)


def _of_group(command: Any) -> Needs:
    """Commands with handles, which determine the topic, or with an owner or a lease, whose topics the engine compares
    with what the key may receive (narrowing.py).
    """
    return _receive("", command.group)


def _of_pair(command: Any) -> Needs:
    return _receive(command.topic, command.group)


def _of_pair_or_admin(command: Any) -> Needs:
    return _receive(command.topic, command.group, or_admin=True)


def _of_stages(command: Any) -> Needs:
    """Each stage is found by its topic too, so the topics of the request are those of the messages."""
    return tuple(need for topic in {name.topic for name in command.stages} for need in _send(topic)) or _send("")


def _admin(_: Any) -> Needs:
    return ADMIN


def _nobody(_: Any) -> Needs:
    """A command or query that is missing in the tables."""
    return NOBODY


#: What each command needs. Commands under _admin that no protocol sends (Sweep, Listen, …) are the broker's own.
NEEDS: dict[type, Callable[[Any], Needs]] = {
    commands.Send: lambda command: _send(command.topic),
    commands.Stage: lambda command: _send(command.topic),
    commands.CommitBatch: lambda command: _of_stages(command),
    commands.DropStages: lambda command: _of_stages(command),
    commands.Recall: lambda command: _send(command.topic, or_admin=True),
    EndTransaction: lambda _: _send("", or_admin=True),  # and send on the topics of its transactions: Guarded.execute
    Pop: _of_pair,
    Pull: _of_pair,
    commands.Ack: _of_group,
    commands.ChangeInvisibleTime: _of_group,
    commands.AttachOwner: _of_pair,
    commands.RenewOwner: _of_group,
    commands.AckUpTo: _of_group,
    commands.EndLease: lambda command: _receive("", command.group, or_admin=True),
    commands.ReleaseOwner: lambda command: _receive("", command.group, or_admin=True),
    Available: _of_pair,
    commands.SetFilter: _of_pair_or_admin,
    SetConsumeMode: _of_pair_or_admin,
    commands.UpdateOffsets: _of_pair,
    commands.QueryOffsets: _of_pair_or_admin,
    commands.SendBack: _of_pair,
    commands.SyncLite: _of_pair,
    commands.RenewSession: lambda _: KNOWN,  # the holder's name contains the access key: leases.holder
    commands.ReleaseSession: lambda _: KNOWN,
} | dict.fromkeys(
    (
        commands.SetMaxSize,
        commands.CreateTopic,
        commands.UpdateTopic,
        commands.DeleteTopic,
        commands.PurgeTopic,
        commands.CreateGroup,
        commands.UpdateGroup,
        commands.DeleteGroup,
        commands.CreateSchedule,
        commands.DeleteSchedule,
        commands.PauseSchedule,
        commands.RunSchedule,
        ResetOffsets,
        CloneOffsets,
        commands.ResumeMessageGroup,
        commands.Sweep,
        commands.CountChecks,
        commands.Attend,
        commands.Listen,
        *(commands.PeekPiece, commands.LookUpPiece, commands.Trace, commands.WhyPiece),
        *(commands.RedrivePiece, commands.FindDeadLetters),
    ),
    _admin,
)


def _group(group: str) -> Needs:
    return _receive("", group, or_admin=True)


def _sent_to(topic: str) -> Needs:
    """Messages that are sent and not visible yet; those of all topics are for admin."""
    return _send(topic, or_admin=True) if topic else ADMIN


def _named_group(group: str) -> Needs:
    """Numbers of one group; lists of all groups that ROWS does not filter are for admin."""
    return _group(group) if group else ADMIN


#: What each query needs. Separate from NEEDS, so that a query cannot be run through `execute`, which does not filter
#: rows.
ASKING: dict[type[Query[Any]], Callable[[Any], Needs]] = {
    queries.Topics: lambda query: _describe(query.name) if query.name else KNOWN,
    queries.TopicNames: _admin,  # the broker's own: Guarded.topics_of
    queries.Groups: lambda query: (
        *(_describe(query.topic) if query.topic else KNOWN),
        *(_receive(query.topic, query.group, or_admin=True) if query.group else ()),
    ),
    queries.GroupSettings: lambda query: _group(query.name) if query.name else KNOWN,
    queries.TermsOf: lambda query: tuple(need for topic in query.topics for need in _receive(topic, query.group)),
    queries.HeldBy: lambda query: tuple(need for group, _ in query.clients for need in _group(group)),
    queries.SessionHandle: lambda query: _receive("", query.group),  # of the caller's client: leases.holder
    queries.Subscriptions: lambda query: _named_group(query.group),
    queries.Leases: lambda query: _of_pair_or_admin(query) if query.topic or query.group else ADMIN,
    queries.Owners: lambda query: _named_group(query.group),
    queries.MessageGroups: _of_pair_or_admin,
    queries.Delayed: lambda query: _sent_to(query.topic),
    queries.Transactions: lambda query: _sent_to(query.topic),
    queries.Schedules: _admin,
    queries.Browse: lambda query: _look(query.topic, ""),
    queries.Store: lambda _: KNOWN,
}

#: In these lists a key sees the rows that it could have asked for by name.
ROWS: dict[type[Query[Any]], Callable[[Any], Needs]] = {
    queries.Topics: lambda row: _describe(row.topic.name),
    queries.Groups: lambda row: _receive(row.topic, row.group, or_admin=True),
    queries.GroupSettings: lambda row: _group(row.name),
}


def _seen(life: MessageLife, key: Key) -> MessageLife:
    """A message with those of its groups that the key may see."""
    groups = [one for one in life.groups if all(map(key.may, _look(life.topic, one.group)))]
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
        key = self._allow(NEEDS.get(kind, _nobody)(command))
        if kind is EndTransaction:
            await self._allow_ends(command)
        elif kind in NARROWED:
            command = NARROWED[kind](command, key)
        return await self._engine.execute(command)

    async def ask(self, query: Query[A]) -> A:
        """Answers one query; lists contain only the rows that the key may see."""
        key = self._allow(ASKING.get(type(query), _nobody)(query))
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
            self._allow(_send(topic, or_admin=True))

    async def topics_of(self, transactions: Sequence[str]) -> frozenset[str]:
        """Needs admin: it tells the topic of a transaction."""
        self._allow(ADMIN)
        return await self._engine.topics_of(transactions)

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Needs receive. A key that is withdrawn while the Pop waits still gets its messages."""
        key = self._allow(_of_pair(command))
        if command.token is not None:
            command = of_token(command, key)
        return await self._engine.pop(command, wait_ms)

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Any:
        """Needs receive."""
        self._allow(_of_pair(command))
        return await self._engine.wait_available(command, min_ready, wait_ms)

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Needs receive."""
        self._allow(_of_pair(command))
        return await self._engine.pull(command, wait_ms)

    async def peek(self, asked: Peek) -> list[ReadRow]:
        """Needs receive, or admin."""
        self._allow(_of_pair_or_admin(asked))
        return await self._engine.peek(asked)

    async def look_up(self, asked: LookUp) -> LookedUp:
        """Needs receive, or admin, on the topic."""
        self._allow(_look(asked.topic, ""))
        return await self._engine.look_up(asked)

    async def why(self, asked: Why) -> list[MessageLife]:
        """Needs receive, or admin, on the topic and group; needs admin for all topics. Shows groups of the key only."""
        key = self._allow(_look(asked.topic, asked.group))
        return [_seen(life, key) for life in await self._engine.why(asked)]

    async def redrive(self, asked: Redrive) -> Redriven:
        """Needs admin."""
        self._allow(ADMIN)
        return await self._engine.redrive(asked)

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Needs receive, or admin: a new group that pulls sets its own mode."""
        self._allow(_of_pair_or_admin(command))
        return await self._engine.set_consume_mode(command)

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """Needs admin."""
        self._allow(ADMIN)
        return await self._engine.move(command)

    async def assignment(
        self, topic: str, group: str, client: str, strategy: str = "", broadcast: bool = False
    ) -> Assignment:
        """Needs receive."""
        self._allow(_receive(topic, group))
        return await self._engine.assignment(topic, group, client, strategy, broadcast)

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """Needs receive."""
        self._allow(_receive(topic, group))
        return await self._engine.lock_queues(topic, group, client, queues)

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """Needs receive."""
        self._allow(_receive(topic, group))
        await self._engine.unlock_queues(topic, group, client, queues)

    async def clients(
        self, group: str, behind: tuple[str, str] = ("", ""), rows_max: int = 0
    ) -> tuple[list[Consumer], list[StreamNumbers]]:
        """Needs receive, or admin, on the group; needs admin for all groups."""
        self._allow(_named_group(group))
        return await self._engine.clients(group, behind, rows_max)

    async def heartbeat(self, beat: Heartbeat) -> int:
        """Needs receive on every topic."""
        self._allow(tuple(need for topic in sorted(beat.topics) or [""] for need in _receive(topic, beat.group)))
        return await self._engine.heartbeat(beat)

    async def join(self, client: str, topics: tuple[str, ...]) -> ProducerStream:
        """Needs send on every topic: checks contain whole messages."""
        self._allow(tuple(need for topic in topics for need in _send(topic)) or _send(""))
        return await self._engine.join(client, topics)

    def leave(self, stream: ProducerStream) -> None:
        """Needs nothing: the caller owns the stream, even if its key is gone."""
        self._engine.leave(stream)

    async def next_check(self, stream: ProducerStream) -> Check | None:
        """Needs send. A withdrawn key gets no more messages."""
        check = await self._engine.next_check(stream)
        self._allow(tuple(need for topic in stream.topics for need in _send(topic)))
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
