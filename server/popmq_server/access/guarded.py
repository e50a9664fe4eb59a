"""The Engine behind access keys: before each command stands what it needs, for both faces in the same place.

    api/ ── command ──▶ Guarded: NEEDS, LOOKS ── the caller's key may? ──▶ Engine

    send       Send, Recall, EndTransaction, a producer's stream       by topic
    receive    all that reads, acks, moves the offsets of a group      by topic and group; what names handles by group
    admin      topics, groups, repairs; and looking at everything
    lists      show what the key may see                               ROWS

A handle, a recall handle or a transaction id is worth as much as the delivery or the send that gave it: they cannot be
guessed. What is not in the tables is done for nobody. Work that the broker does by itself does not pass here.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any

from popmq_server import commands
from popmq_server.access.access_keys import CALLER, Key, Keys, Need, denied, unauthenticated
from popmq_server.commands import (
    Available,
    Check,
    CloneOffsets,
    EndTransaction,
    Look,
    Pop,
    Popped,
    Pull,
    Pulled,
    ResetOffsets,
    SetConsumeMode,
)
from popmq_server.engine.backup import Piece
from popmq_server.engine.consumers import Consumer
from popmq_server.engine.engine import Engine
from popmq_server.engine.producers import Stream, StreamNumbers
from popmq_server.engine.rebalance import Assignment
from popmq_server.errors import Refused
from popmq_server.model.message import RETRY_PREFIX
from popmq_server.model.records import Subscription

Needs = tuple[Need, ...]

ADMIN = (Need("admin"),)
#: Any key will do.
KNOWN = (Need("known"),)
#: No key will do: no grant covers it, not even `*`.
NOBODY = (Need("nobody"),)


# Words for the tables below. `or_admin`: what operators do in place of a client, or only look at.


def _send(topic: str, or_admin: bool = False) -> Needs:
    return (Need("send", topic, "", or_admin),)


def _receive(topic: str, group: str, or_admin: bool = False) -> Needs:
    """Reading a topic; a retry topic belongs to the pair that its name says."""
    if not topic.startswith(RETRY_PREFIX):
        return (Need("receive", topic, group, or_admin),)
    its_group, _, its_topic = topic.removeprefix(RETRY_PREFIX).partition("+")
    own = Need("receive", its_topic, its_group, or_admin)
    return (own, Need("receive", its_topic, group, or_admin)) if group else (own,)


def _look(topic: str, group: str) -> Needs:
    """Looking at messages; without a topic at those of all."""
    return _receive(topic, group, or_admin=True) if topic else ADMIN


def _describe(topic: str) -> Needs:
    """That a topic is there, and its settings: for whoever does anything with it."""
    return _look(topic, "") if topic.startswith(RETRY_PREFIX) else (Need("describe", topic),)


def _of_group(command: Any) -> Needs:
    """Commands that name deliveries by handles, or an owner: they know their topic, and the group is named."""
    return _receive("", command.group)


def _of_pair(command: Any) -> Needs:
    return _receive(command.topic, command.group)


def _of_pair_or_admin(command: Any) -> Needs:
    return _receive(command.topic, command.group, or_admin=True)


def _looks(command: Look) -> Needs:
    """A question is as secret as what it asks for."""
    needs = LOOKS.get(command.what)
    return NOBODY if needs is None else needs(*command.arguments)


def _admin(_: Any) -> Needs:
    return ADMIN


#: What each command needs. Those marked by _admin that no face sends (Sweep, Listen, …) are the broker's own.
NEEDS: dict[type, Callable[[Any], Needs]] = {
    commands.Send: lambda command: _send(command.topic),
    commands.Recall: lambda command: _send(command.topic, or_admin=True),
    EndTransaction: lambda _: _send("", or_admin=True),  # and the topics of its transactions: Guarded.execute
    Pop: _of_pair,
    Pull: _of_pair,
    commands.Ack: _of_group,
    commands.RenewSession: lambda _: KNOWN,  # of a client of the same key: the face names it so
    commands.ReleaseSession: lambda _: KNOWN,
    commands.ChangeInvisibleTime: _of_group,
    commands.AttachOwner: _of_pair,
    commands.RenewOwner: _of_group,
    commands.AckUpTo: _of_group,
    commands.ReleaseOwner: lambda command: _receive("", command.group, or_admin=True),
    Available: _of_pair,
    commands.SetFilter: _of_pair_or_admin,
    SetConsumeMode: _of_pair_or_admin,
    commands.UpdateOffsets: _of_pair,
    commands.QueryOffsets: _of_pair_or_admin,
    commands.SendBack: _of_pair,
    commands.SyncLite: _of_pair,
    commands.RenewSession: lambda _: KNOWN,  # by names that the face makes of the access key and the client's id
    commands.ReleaseSession: lambda _: KNOWN,
    commands.Peek: _of_pair_or_admin,
    commands.LookUp: lambda command: _look(command.topic, ""),
    commands.Trace: lambda command: _look(command.topic, command.group),
    commands.Why: lambda command: _look(command.topic, command.group),
    Look: lambda command: _looks(command),
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
        ResetOffsets,
        CloneOffsets,
        commands.ResumeMessageGroup,
        commands.Redrive,
        commands.FindLetters,
        commands.Sweep,
        commands.CountChecks,
        commands.Attend,
        commands.Listen,
    ),
    _admin,
)


def _group(group: str) -> Needs:
    return _receive("", group, or_admin=True)


def _named_group(group: str, *_: Any) -> Needs:
    """Of one group; lists of all that cannot be cut by rows are for admin."""
    return _group(group) if group else ADMIN


#: The same for each question of stats.py, by its arguments.
LOOKS: dict[str, Callable[..., Needs]] = {
    "topics": lambda topic: _describe(topic) if topic else KNOWN,
    "groups": lambda topic, group: (
        *(_describe(topic) if topic else KNOWN),
        *(_receive(topic, group, or_admin=True) if group else ()),
    ),
    "group_settings": lambda group: _group(group) if group else KNOWN,
    "terms": lambda group, topics: tuple(need for topic in topics for need in _receive(topic, group)),
    "held_by": _named_group,
    "subscriptions": _named_group,
    "leases": lambda topic, group, *_: _receive(topic, group, or_admin=True) if topic or group else ADMIN,
    "owners": _named_group,
    "message_groups": lambda topic, group, *_: _receive(topic, group, or_admin=True),
    "delayed": lambda topic, *_: _send(topic, or_admin=True) if topic else ADMIN,
    "transactions": lambda topic, _: _send(topic, or_admin=True) if topic else ADMIN,
    "browse": lambda topic, *_: _look(topic, ""),
    "store": lambda: KNOWN,
}

#: Of these lists a key sees the rows that it could have asked for by name.
ROWS: dict[str, Callable[[Any], Needs]] = {
    "topics": lambda row: _describe(row.topic.name),
    "groups": lambda row: _receive(row.topic, row.group, or_admin=True),
    "group_settings": lambda row: _group(row.name),
}


class Guarded:
    """An engine that does what the caller's key allows. Every method raises Refused UNAUTHENTICATED, PERMISSION_DENIED.

    It inherits nothing: a method that the protocol gets later is not there for the faces until it is written here.
    """

    def __init__(self, engine: Engine, keys: Keys) -> None:
        self._engine = engine
        self._keys = keys
        self._topics: dict[int, str] = {}  # names by id, for ever: ids are given once

    def _caller(self) -> Key:
        """Who calls, if the file of the keys still says so."""
        key = CALLER.get()
        if isinstance(key, Refused):
            raise key
        if key is None or not self._keys.holds(key):
            raise unauthenticated("the access key of this call was withdrawn, or is another one by now")
        return key

    def _allow(self, needs: Needs) -> Key:
        """The caller's key, if it allows all that is needed: the one gate that everything here passes."""
        key = self._caller()
        for need in needs:
            if not key.may(need):
                raise denied(key, need)
        return key

    async def execute(self, command: Any) -> Any:
        """One command; of lists the rows that the key may see."""
        key = self._allow(NEEDS.get(type(command), lambda _: NOBODY)(command))
        if isinstance(command, EndTransaction):
            await self._allow_ends(command)
        answer = await self._engine.execute(command)
        visible = ROWS.get(command.what) if isinstance(command, Look) else None
        return answer if visible is None else [row for row in answer if all(map(key.may, visible(row)))]

    async def _allow_ends(self, command: EndTransaction) -> None:
        """A transaction belongs to its topic. One whose topic is gone is for the engine to refuse."""
        topic_ids = {end.transaction.topic_id for end in command.ends if not isinstance(end, Refused)}
        if not topic_ids <= self._topics.keys():
            rows = await self._engine.execute(Look("topics", ("",)))
            self._topics |= {row.topic.topic_id: row.topic.name for row in rows}
        for topic_id in topic_ids & self._topics.keys():
            self._allow(_send(self._topics[topic_id], or_admin=True))

    async def pop(self, command: Pop, wait_ms: int) -> Popped:
        """Pop; a key that is withdrawn meanwhile still gets what it waits for."""
        self._allow(_of_pair(command))
        return await self._engine.pop(command, wait_ms)

    async def wait_available(self, command: Available, min_ready: int, wait_ms: int) -> Any:
        """As receive."""
        self._allow(_of_pair(command))
        return await self._engine.wait_available(command, min_ready, wait_ms)

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """As receive."""
        self._allow(_of_pair(command))
        return await self._engine.pull(command, wait_ms)

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """As receive: a new group that pulls says so first."""
        self._allow(_of_pair_or_admin(command))
        return await self._engine.set_consume_mode(command)

    async def move(self, command: ResetOffsets | CloneOffsets) -> dict[int, int]:
        """For admin."""
        self._allow(ADMIN)
        return await self._engine.move(command)

    async def assignment(
        self, topic: str, group: str, client: str, strategy: str = "", broadcast: bool = False
    ) -> Assignment:
        """As receive."""
        self._allow(_receive(topic, group))
        return await self._engine.assignment(topic, group, client, strategy, broadcast)

    async def lock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> list[int]:
        """As receive."""
        self._allow(_receive(topic, group))
        return await self._engine.lock_queues(topic, group, client, queues)

    async def unlock_queues(self, topic: str, group: str, client: str, queues: tuple[int, ...]) -> None:
        """As receive."""
        self._allow(_receive(topic, group))
        await self._engine.unlock_queues(topic, group, client, queues)

    async def clients(self, group: str) -> tuple[list[Consumer], list[StreamNumbers]]:
        """Of one group; those of all are for admin."""
        self._allow(_named_group(group))
        return await self._engine.clients(group)

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """For admin."""
        self._allow(ADMIN)
        self._engine.forget(group=group, topic=topic)

    async def heartbeat(
        self, group: str, client: str, topics: frozenset[str], goodbye: bool, versioned: bool = True
    ) -> int:
        """As receive, of every topic."""
        self._allow(tuple(need for topic in sorted(topics) or [""] for need in _receive(topic, group)))
        return await self._engine.heartbeat(group, client, topics, goodbye, versioned)

    async def join(self, client: str, topics: tuple[str, ...]) -> Stream:
        """As send, of every topic: checks hold whole messages."""
        self._allow(tuple(need for topic in topics for need in _send(topic)) or _send(""))
        return await self._engine.join(client, topics)

    def leave(self, stream: Stream) -> None:
        """For whoever has the stream, also when the key is gone."""
        self._engine.leave(stream)

    async def next_check(self, stream: Stream) -> Check | None:
        """As send; a key that was withdrawn gets no message any more."""
        check = await self._engine.next_check(stream)
        self._allow(tuple(need for topic in stream.topics for need in _send(topic)))
        return check

    def checked(self, check: Check) -> None:
        """For whoever has the check."""
        self._engine.checked(check)

    def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """For admin: it holds every message."""
        self._allow(ADMIN)
        return self._engine.backup(bytes_per_s)

    def gauges(self, group: str, topic: str) -> tuple[int, int]:
        """Numbers beside a row of `groups`."""
        return self._engine.gauges(group, topic)
