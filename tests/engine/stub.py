"""A second engine: queues in memory, handles of its own form, and only the capabilities HAS.

It shows what both protocols need of an engine. Leases end by the clock; there are no retries with a backoff and no dead
letters: a message is delivered until it is acked. It does not ship: it keeps nothing, and no user needs an engine that
forgets; what users test against (popmq.testing) is the broker itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, cast

from popmq_proto.v1.popmq_pb2 import Message
from popmq_server.clock import Clock
from popmq_server.contract import commands as do
from popmq_server.contract.capabilities import CAPABILITIES
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import (
    ClientNumbers,
    ClusterBrokers,
    Consumer,
    EngineInfo,
    GroupNumbers,
    Rows,
    StoreNumbers,
    TopicNumbers,
)
from popmq_server.contract.commands.sessions import ClientAnswer
from popmq_server.contract.operations import A, Command, Query
from popmq_server.errors import (
    Refused,
    bad_handle,
    client_not_found,
    group_not_found,
    lapsed,
    topic_not_found,
)
from popmq_server.values.ids import GroupId
from popmq_server.values.records import Group, Topic

#: The capabilities that it has.
HAS = frozenset({"peek", "look_up"})
#: The promises that it keeps less strictly.
WEAKER = {
    "attempt_ids": "a Pop that is repeated leases other messages",
    "statistics": "what is ready and acked is known, the other numbers are not",
}
#: The numbers of a group that it does not know.
UNKNOWN = (
    *("in_flight", "backoff", "dropped", "quarantined", "oldest_ms", "filtered", "delayed", "read_ms"),
    *("bytes_behind", "dead_blocked"),
)


@dataclass
class Delivery:
    """A message for one group: its place, and its current or next lease."""

    topic: str
    offset: int
    attempt: int = 0
    handle: str = ""
    due_ms: int = 0


@dataclass
class StubEngine:
    """Topics of one queue. Every group sees every message once it has asked for the topic."""

    clock: Clock
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    stored: dict[str, list[tuple[bytes, int]]] = field(default_factory=dict)
    open: dict[tuple[str, str], dict[int, Delivery]] = field(default_factory=dict)
    next: dict[tuple[str, str], int] = field(default_factory=dict)
    handles: dict[str, tuple[str, Delivery]] = field(default_factory=dict)
    acked: dict[tuple[str, str], int] = field(default_factory=dict)
    members: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def info(self) -> EngineInfo:
        return EngineInfo("stub", frozenset(CAPABILITIES) - HAS, WEAKER)

    async def execute(self, command: Command[A]) -> A:
        return cast(A, HANDLERS[type(command)](self, command))

    async def ask(self, query: Query[A]) -> A:
        return cast(A, HANDLERS[type(query)](self, query))

    def _topics(self, query: queries.Topics) -> Rows[TopicNumbers]:
        return Rows(self._topic_numbers(name) for name in self._named(query.name))

    def _numbers(self, query: queries.Groups) -> Rows[GroupNumbers]:
        asked = query.group, query.topic
        read = {where for where in self.next if all(name in ("", own) for name, own in zip(asked, where, strict=True))}
        pairs = [asked] if all(asked) else sorted(read)
        return Rows(self._group_numbers(group, topic) for group, topic in pairs)

    def _settings(self, query: queries.GroupSettings) -> Rows[Group]:
        return Rows([self._group(query.name)] if query.name else self.groups.values())

    def _changes(self, command: do.ChangeInvisibleTime) -> list[do.Changed | do.Renewed | Refused]:
        return [self._change(command.group, one) for one in command.changes]

    def _group(self, name: str) -> Group:
        if name not in self.groups:
            raise group_not_found(name)
        return self.groups[name]

    def _named(self, name: str) -> list[str]:
        if name and name not in self.topics:
            raise topic_not_found(name)
        return [name] if name else sorted(self.topics)

    def _topic_numbers(self, name: str) -> TopicNumbers:
        count = len(self.stored[name])
        return TopicNumbers(self.topics[name], count, [(0, 0, count)], bytes=None, delayed=None, half=None)

    def _group_numbers(self, group: str, topic: str) -> GroupNumbers:
        """What is ready and acked is known; there are no retries, dead letters or owners; nothing else is counted."""
        where, now_ms = (group, topic), self.clock.now_ms()
        new = len(self.stored[topic]) - self.next[where] if where in self.next else 0
        due = sum(one.due_ms <= now_ms for one in self.open.get(where, {}).values())
        unknown: dict[str, Any] = dict.fromkeys(UNKNOWN)
        acked = self.acked.get(where, 0)
        return GroupNumbers(group, topic, ready=new + due, acked=acked, retry=0, dead=0, owners=0, **unknown)

    def _create_topic(self, command: do.CreateTopic) -> do.CreatedTopic:
        existed = command.name in self.topics
        settings = vars(command) | {"queues": 1, "keep_ms": 0, "topic_id": 0, "created_ms": self.clock.now_ms()}
        self.stored.setdefault(command.name, [])
        return do.CreatedTopic(self.topics.setdefault(command.name, Topic(**settings)), existed)

    def _create_group(self, command: do.CreateGroup) -> do.CreatedGroup:
        existed = command.name in self.groups
        settings = vars(command) | {"in_flight_max": 0, "subscription_expiry_ms": 0}
        made = Group(**settings, group_id=GroupId(0), created_ms=self.clock.now_ms())
        return do.CreatedGroup(self.groups.setdefault(command.name, made), existed)

    def _update_topic(self, command: do.UpdateTopic) -> Topic:
        self._named(command.name)
        return self.topics[command.name]

    def _delete_topic(self, command: do.DeleteTopic) -> None:
        self._named(command.name)
        del self.topics[command.name]

    def _update_group(self, command: do.UpdateGroup) -> Group:
        return self._group(command.name)

    def _delete_group(self, command: do.DeleteGroup) -> None:
        self._group(command.name)
        del self.groups[command.name]

    def _send(self, command: do.Send) -> do.Sent:
        self._named(command.topic)
        log, now_ms = self.stored[command.topic], self.clock.now_ms()
        first = len(log)
        log += [(entry.data, now_ms) for entry in command.entries if not isinstance(entry, Refused)]
        return do.Sent(0, first, False)

    async def pop(self, command: do.Pop, wait_ms: int) -> do.Popped:
        """Leases the messages that are due; never waits."""
        self._named(command.topic)
        group, where, now_ms = self._group(command.group), (command.group, command.topic), self.clock.now_ms()
        log, opened = self.stored[command.topic], self.open.setdefault(where, {})
        for offset in range(self.next.get(where, 0), len(log)):
            opened[offset] = Delivery(command.topic, offset)
        self.next[where] = len(log)
        due_ms = now_ms + (command.invisible_ms or group.invisible_ms)
        rows = []
        for delivery in [one for one in opened.values() if one.due_ms <= now_ms][: command.max_messages]:
            self._name(command.group, delivery)
            delivery.due_ms, delivery.attempt = due_ms, delivery.attempt + 1
            data, stored_ms = log[delivery.offset]
            rows.append((data, stored_ms, 0, delivery.offset, delivery.attempt, delivery.handle.encode()))
        return do.Popped(rows, now_ms, due_ms if rows else 0, len(opened) - len(rows))

    def _row(self, delivery: Delivery) -> do.ReadRow:
        data, stored_ms = self.stored[delivery.topic][delivery.offset]
        return data, stored_ms, 0, delivery.offset, delivery.attempt + 1

    def _peek(self, asked: do.Peek) -> list[do.ReadRow]:
        self._group(asked.group)
        opened = self.open.get((asked.group, asked.topic), {})
        new = range(self.next.get((asked.group, asked.topic), 0), len(self.stored[asked.topic]))
        due = [one for one in opened.values() if one.due_ms <= self.clock.now_ms()]
        rows = [self._row(one) for one in (*due, *(Delivery(asked.topic, offset) for offset in new))]
        return rows[: asked.messages_max]

    def _look_up(self, asked: do.LookUp) -> do.LookedUp:
        """Finds messages by key only, in one piece, newest first."""
        (name,) = self._named(asked.topic)
        log = list(enumerate(self.stored[name]))
        rows = [(data, ms, 0, at, 0) for at, (data, ms) in reversed(log) if asked.key in Message.FromString(data).keys]
        return do.LookedUp(rows[: asked.messages_max], len(rows) > asked.messages_max)

    def _leased(self, group: str, handle: str) -> Delivery:
        owner, delivery = self.handles.get(handle, ("", None))
        if delivery is None or owner != group:
            raise bad_handle("handle", "this engine did not make this handle for this group")
        opened = self.open[group, delivery.topic]
        over = delivery.due_ms <= self.clock.now_ms()
        if over or delivery.handle != handle or opened.get(delivery.offset) is not delivery:
            raise lapsed("handle")
        return delivery

    def _ack(self, command: do.Ack) -> do.Acked:
        group = command.group
        self._group(group)
        results: list[Refused | None] = []
        topics: dict[str, int] = {}
        for handle in map(str, command.handles):
            try:
                delivery = self._leased(group, handle)
                del self.open[group, delivery.topic][delivery.offset]
                topics[delivery.topic] = topics.get(delivery.topic, 0) + 1
                self.acked[group, delivery.topic] = self.acked.get((group, delivery.topic), 0) + 1
                results.append(None)
            except Refused as refused:
                results.append(refused)
        return do.Acked(results, topics)

    def _change(self, group: str, change: do.Change | Refused) -> do.Changed | do.Renewed | Refused:
        """An extension gives the delivery another handle; the old one lapses."""
        self._group(group)
        try:
            if isinstance(change, Refused):
                raise change
            delivery = self._leased(group, str(change.handle))
        except Refused as refused:
            return refused
        delivery.due_ms = self.clock.now_ms() + (change.delay_ms or 0)
        if change.kind != "extend":
            delivery.handle = ""
            return do.Changed(delivery.due_ms, False)
        self._name(group, delivery)
        return do.Renewed(delivery.due_ms, False, delivery.handle)

    def _name(self, group: str, delivery: Delivery) -> None:
        delivery.handle = f"stub-delivery:{next(self.numbers)}"
        self.handles[delivery.handle] = group, delivery

    def _assignment(self, asked: do.AssignmentOf) -> do.Assignment:
        self._named(asked.topic)
        self._group(asked.group)
        return do.Assignment(known=True, all=True, queues=())

    def _heartbeat(self, beat: do.Heartbeat) -> int:
        self._group(beat.group)
        self.members[beat.group, beat.client] = tuple(sorted(beat.topics))
        return 1

    def _ask_client(self, query: do.AskClient) -> ClientAnswer:
        raise client_not_found(query.client)

    def _clients(self, asked: do.Clients) -> ClientNumbers:
        """Nothing is known of a client but what it reads."""
        found = [(*member, topics) for member, topics in self.members.items() if asked.group in ("", member[0])]
        return ClientNumbers([Consumer(client, group, topics, None, None) for group, client, topics in found], [])


HANDLERS = (
    do.CreateTopic.by(StubEngine._create_topic)
    | do.CreateGroup.by(StubEngine._create_group)
    | do.UpdateTopic.by(StubEngine._update_topic)
    | do.DeleteTopic.by(StubEngine._delete_topic)
    | do.UpdateGroup.by(StubEngine._update_group)
    | do.DeleteGroup.by(StubEngine._delete_group)
    | do.Send.by(StubEngine._send)
    | do.Ack.by(StubEngine._ack)
    | do.ChangeInvisibleTime.by(StubEngine._changes)
    | do.RenewSession.by(lambda _, command: 0)
    | do.ReleaseSession.by(lambda _, command: 0)
    | do.Heartbeat.by(StubEngine._heartbeat)
    | do.AssignmentOf.by(StubEngine._assignment)
    | do.Clients.by(StubEngine._clients)
    | do.AskClient.by(StubEngine._ask_client)
    | do.Peek.by(StubEngine._peek)
    | do.LookUp.by(StubEngine._look_up)
    | queries.Topics.by(StubEngine._topics)
    | queries.Groups.by(StubEngine._numbers)
    | queries.GroupSettings.by(StubEngine._settings)
    | queries.HeldBy.by(lambda _, query: None)
    | queries.Subscriptions.by(lambda _, query: Rows())
    | queries.SessionHandle.by(lambda _, query: "")
    | queries.Brokers.by(lambda _, query: ClusterBrokers())
    | queries.StoreSize.by(lambda _, query: StoreNumbers(None, 1 << 20, 1 << 30, None))
).handlers
