"""Heartbeats and assignments: which queues a client of a group reads.

    Heartbeat ─▶ a session here; where queues are shared also member connections, which all gateways and native clients
                 see ─▶ a version: a hash of the members and of all else that an assignment follows from
    assignment   the members by the living master with the lowest name (38), the mode of the group (402), and the
                 strategies of contract/rebalance.py over the queues of the layout: the same at every gateway

Queues are shared where a group pulls or has a share number; elsewhere each client reads all of them. As in RocketMQ,
all members of a group share the queues of each of its topics, so they have to read the same topics.
"""

import contextlib
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from popmq_remoting.requests import members
from popmq_remoting.requests.members import Membership, MemberSubscription
from popmq_server.cluster import names
from popmq_server.cluster.members.connections import MemberConnections
from popmq_server.cluster.members.locks import Locks
from popmq_server.cluster.members.sessions import Key, Session, Sessions
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import Assignment, AssignmentOf, Heartbeat
from popmq_server.contract.rebalance import NOT_KNOWN, allocate, assign
from popmq_server.errors import Refused, invalid, unavailable
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Subscription


class _Shared(NamedTuple):
    """A topic whose queues the clients of a group share."""

    topic: str
    mode: str
    share_number: int


class Members:
    """Knows the members of groups, and which queues each reads."""

    def __init__(self, shared: Shared, locks: Locks, members_max: int) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._modes, self._background = shared.layouts, shared.modes, shared.background
        self._locks = locks
        self.sessions = Sessions(shared.now_ms, self._silent)
        self.connections = MemberConnections(shared.brokers, members_max)

    async def heartbeat(self, beat: Heartbeat) -> int:
        """The version of the group's assignments. Raises Refused."""
        group, key = await self._groups.get(beat.group), (beat.group, beat.client)
        topics = await self._all_shared(group, beat.topics)
        if beat.goodbye:
            self.sessions.end(key)
            await self._leave(key)
        else:
            await self._renew(beat, topics)
        return await self._version(group, topics) if beat.versioned else 0

    async def _all_shared(self, group: Group, topics: Iterable[str]) -> list[_Shared]:
        return [each for name in sorted(topics) if (each := await self._shared(group, name)) is not None]

    async def _shared(self, group: Group, topic: str) -> _Shared | None:
        """A topic that need not exist."""
        how = await self._modes.of_name(topic, group.name)
        share_number = how.share_number or group.share_number
        return _Shared(topic, how.mode, share_number) if how.pulls or share_number else None

    async def _renew(self, beat: Heartbeat, topics: list[_Shared]) -> None:
        """A client that reads in the other mode alone is no member: it would get queues that it does not read."""
        read = [each for each in topics if beat.only.get(each.topic, each.mode) == each.mode]
        if read:
            self.connections.check_room(beat.client)
        self.sessions.renew((beat.group, beat.client), beat.topics, beat.only, beat.asks)
        if read:
            await self._join((beat.group, beat.client), read)
        else:
            await self.connections.leave(beat.client, names.broker_group(beat.group))

    async def _join(self, key: Key, read: list[_Shared]) -> None:
        group, client = key
        kind = "CONSUME_PASSIVELY" if any(each.mode == "PULL" for each in read) else "CONSUME_POP"
        subscriptions = tuple(MemberSubscription(names.broker_topic(each.topic)) for each in read)
        await self.connections.join(client, Membership(names.broker_group(group), subscriptions, kind))

    async def _align(self, group: Group, topic: str, mode: str) -> None:
        """Makes the clients here that read a topic in this mode its members, and no others.

        Their heartbeats may be older than the mode of the group.
        """
        known, read = names.broker_group(group.name), names.broker_topic(topic)
        for client, session in list(self.sessions.of_group(group.name)):
            if self.connections.reads(client, known, read) != session.reads(topic, mode):
                with contextlib.suppress(Refused):  # no room, or no broker: its next heartbeat is told so
                    await self._follow((group.name, client), session, group)

    async def _follow(self, key: Key, session: Session, group: Group) -> None:
        topics = await self._all_shared(group, session.topics)
        if read := [each for each in topics if session.reads(each.topic, each.mode)]:
            self.connections.check_room(key[1])
            await self._join(key, read)
        else:
            await self.connections.leave(key[1], names.broker_group(group.name))

    async def _leave(self, key: Key) -> None:
        group, client = key
        await self.connections.leave(client, names.broker_group(group))
        await self._locks.leave(group, client)

    def _silent(self, key: Key) -> None:
        self._background.start("the end of a silent member", self._leave(key))

    async def _version(self, group: Group, topics: list[_Shared]) -> int:
        """Changes whenever an assignment may change."""
        known = [*topics]
        queues = [await self._queues(each.topic) for each in known]
        ids = await self.ids(group.name) if known else []
        text = repr((ids, known, queues)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1

    async def _queues(self, topic: str) -> int:
        """0 for a topic that does not exist."""
        try:
            return len(await self._layouts.of(await self._topics.get(topic)))
        except Refused as refused:
            if refused.code != "TOPIC_NOT_FOUND":
                raise
            return 0

    async def ids(self, group: str) -> list[str]:
        """All members, as one master has them: masters may differ for some seconds. Raises Refused UNAVAILABLE."""
        last = unavailable("no broker can be asked for the members of a group")
        for broker in await self._brokers.masters():
            request = members.member_ids(names.broker_group(group))
            try:
                return await self._brokers.call(Asked(broker, group=group), request, members.ids)
            except Refused as refused:
                last = refused
        raise last

    async def assignment(self, asked: AssignmentOf) -> Assignment:
        """Raises Refused."""
        read, is_retry = _read_topic(asked)
        topic, group = await self._topics.get(read), await self._groups.get(asked.group)
        how: Subscription = await self._modes.of(topic, group.name)
        queues = 1 if is_retry else len(await self._layouts.of(topic))
        if asked.broadcast:
            return Assignment(True, True, tuple(range(queues)), how.mode)
        session = self.sessions.get((asked.group, asked.client))
        if session is not None and read in session.topics and not session.reads(read, how.mode):
            return Assignment(True, False, (), how.mode)  # it waits until the group is switched back
        if session is not None and read not in session.topics:
            return NOT_KNOWN._replace(mode=how.mode)
        share_number = how.share_number or group.share_number
        if not how.pulls and not share_number:
            return Assignment(True, True, ())
        await self._align(group, read, how.mode)
        ids = await self.ids(group.name)
        if how.pulls:
            return allocate(queues, ids, asked.client, asked.strategy)
        return assign(queues, ids, asked.client, share_number)


def _read_topic(asked: AssignmentOf) -> tuple[str, bool]:
    """The topic whose readers share a topic's queues: of a retry topic, its origin. Raises Refused INVALID_FIELD."""
    if not asked.topic.startswith(RETRY_PREFIX):
        return asked.topic, False
    group, _, read = asked.topic.removeprefix(RETRY_PREFIX).partition("+")
    if group != asked.group:
        raise invalid(
            f"{asked.topic!r} is the retry topic of group {group!r}, not of {asked.group!r}",
            field="topic",
            action="name the retry topic of the group itself",
        )
    return read, True


BY_MEMBERS = Heartbeat.awaited_by(Members.heartbeat) | AssignmentOf.awaited_by(Members.assignment)
