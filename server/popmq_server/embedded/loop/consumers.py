"""The live consumers of groups: their sessions, queue assignments and queue locks.

    Heartbeat ──▶ sessions (heartbeats.py) ─┐
    SetConsumeMode,                         ├─▶ QueryAssignment (rebalance.py), computed on request: no client waits
    queues, share number ───────────────────┘   for another
    LockQueues ──▶ QueueLocks

For one event loop, all in memory. The engine answers whatever depends on the store.
"""

from collections.abc import Iterable

from popmq_server.clock import Clock
from popmq_server.contract.commands import (
    Assignment,
    AssignmentOf,
    Clients,
    Heartbeat,
    LockQueues,
    UnlockQueues,
    queries,
)
from popmq_server.contract.commands.numbers import Consumer
from popmq_server.contract.commands.sessions import LOCK_MS
from popmq_server.contract.rebalance import allocate, assign
from popmq_server.embedded.loop.heartbeats import Sessions
from popmq_server.embedded.loop.in_pieces import InPieces
from popmq_server.embedded.operations import Attend, TermsOf
from popmq_server.errors import invalid, no_queue, topic_not_found
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Terms


class QueueLocks:
    """The holder of each locked queue, by group and topic: one client of a group at a time reads a queue.

        LockQueues ──▶ unlocked, or timed out ──▶ locked for LOCK_MS ──▶ the same client: renewed
                       locked by another      ──▶ not in the answer

    In memory only: a restart drops all locks, and clients lock again. The locks are advisory among the consumers of a
    group; Pull does not check them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[tuple[str, str], dict[int, tuple[str, int]]] = {}

    def lock(self, group: str, topic: str, client: str, queues: Iterable[int]) -> list[int]:
        """Locks or renews queues; returns all that the client holds now, earlier ones included."""
        now_ms = self._clock.now_ms()
        held = self._locks.setdefault((group, topic), {})
        for queue in queues:
            holder, until_ms = held.get(queue, ("", 0))
            if holder == client or until_ms <= now_ms:
                held[queue] = (client, now_ms + LOCK_MS)
        return sorted(queue for queue, (name, until_ms) in held.items() if name == client and until_ms > now_ms)

    def unlock(self, group: str, topic: str, client: str, queues: Iterable[int]) -> None:
        """Unlocks those queues that this client holds; an empty `queues` unlocks all of its own."""
        held = self._locks.get((group, topic), {})
        for queue in list(queues) or list(held):
            if held.get(queue, ("", 0))[0] == client:
                del held[queue]
        if not held:
            self._locks.pop((group, topic), None)

    def leave(self, group: str, client: str) -> None:
        """Unlocks everything of a client that says goodbye, so that its successors need not wait."""
        for name, topic in [key for key in self._locks if key[0] == group]:
            self.unlock(name, topic, client, ())

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops the locks of a deleted group or topic: one created later under that name starts without locks."""
        for key in [key for key in self._locks if (group and key[0] == group) or (topic and key[1] == topic)]:
            del self._locks[key]


#: How often the writer learns that a group has members (well below any expiry), and how many entries are remembered.
ATTEND_EVERY_MS = 600_000
ATTENDED_MAX = 10_000
#: Clients whose leased messages one query counts.
HELD_AT_ONCE = 2000


class Consumers:
    """`engine` answers the queries about topics and groups, and runs Attend."""

    def __init__(self, clock: Clock, engine: InPieces) -> None:
        self.sessions = Sessions(clock)
        self.locks = QueueLocks(clock)
        self._clock = clock
        self._engine = engine
        #: When the last Attend was sent, by group and a hash of the topics that its members may read.
        self._attended: dict[tuple[str, int], int] = {}

    async def _terms(self, group: str, topic: str) -> Terms:
        """The settings that decide a group's assignment in one topic. Raises Refused for names that do not exist."""
        terms = await self._engine.run(TermsOf(group, (topic,)))
        if topic not in terms:
            raise topic_not_found(topic)
        return terms[topic]

    async def assignment(self, asked: AssignmentOf) -> Assignment:
        """The queues of one client, of those that are shared among the clients that read in the group's consume mode.

        A retry topic has one queue, assigned to one of the clients that read its topic.
        """
        topic, group, client = asked.topic, asked.group, asked.client
        read, queues = topic, 0
        if topic.startswith(RETRY_PREFIX):
            name, _, read = topic.removeprefix(RETRY_PREFIX).partition("+")
            if name != group:
                raise invalid(
                    f"{topic!r} is the retry topic of group {name!r}, not of {group!r}",
                    field="topic",
                    action="name the retry topic of the group itself",
                )
            queues = 1
        terms = await self._terms(group, read)
        queues = queues or terms.queues
        if asked.broadcast:
            return Assignment(True, True, tuple(range(queues)), terms.mode)
        clients = self.sessions.clients(group, read, terms.mode)
        if client not in clients and client in self.sessions.clients(group, read):
            return Assignment(True, False, (), terms.mode)  # it waits until the group is switched back
        if terms.mode == "PULL":
            return allocate(queues, clients, client, asked.strategy)
        if terms.share_number == 0:
            return Assignment(True, True, ())
        return assign(queues, clients, client, terms.share_number)

    async def heartbeat(self, beat: Heartbeat) -> int:
        """Renews a session, or ends it together with its locks; returns the version of the group's assignments.

        The version costs a look-up of the terms of all topics of the group.
        """
        group = beat.group
        await self._engine.ask(queries.GroupSettings(group))
        self.sessions.heartbeat(group, beat.client, beat.topics, beat.goodbye, beat.only)
        await self._attend(group, beat.topics)
        if beat.goodbye:
            self.locks.leave(group, beat.client)
        if not beat.versioned:
            return 0
        terms = await self._engine.run(TermsOf(group, self.sessions.topics(group)))
        return self.sessions.version(group, terms)

    async def _attend(self, group: str, topics: frozenset[str]) -> None:
        """Tells the writer now and then that a group has members, so that its subscriptions do not expire."""
        now_ms, key = self._clock.now_ms(), (group, hash(topics))
        if topics and now_ms - self._attended.get(key, 0) >= ATTEND_EVERY_MS:
            if len(self._attended) >= ATTENDED_MAX:
                self._attended.clear()
            await self._engine.run(Attend(group, tuple(topics)))
            self._attended[key] = now_ms

    async def lock(self, asked: LockQueues) -> list[int]:
        """Locks or renews queues; returns all that the client holds now."""
        await self._check_queues(asked.topic, asked.group, asked.queues)
        return self.locks.lock(asked.group, asked.topic, asked.client, asked.queues)

    async def unlock(self, asked: UnlockQueues) -> None:
        """Unlocks queues."""
        await self._check_queues(asked.topic, asked.group, asked.queues)
        self.locks.unlock(asked.group, asked.topic, asked.client, asked.queues)

    async def _check_queues(self, topic: str, group: str, queues: tuple[int, ...]) -> None:
        """Refuses names that do not exist, and queues that the topic does not have."""
        terms = await self._terms(group, topic)
        for index, queue in enumerate(queues):
            if queue >= terms.queues:
                raise no_queue(topic, terms.queues, queue, f"queues[{index}]")

    async def listed(self, asked: Clients) -> list[Consumer]:
        """The live clients of one group or of all, each with its messages in flight."""
        if asked.group:
            await self._engine.ask(queries.GroupSettings(asked.group))  # refuses a group that does not exist
        live = self.sessions.listed(asked.group, asked.behind, asked.rows_max)
        held: dict[tuple[str, str], int] = {}
        for first in range(0, len(live), HELD_AT_ONCE):
            some = tuple((name, client) for name, client, _ in live[first : first + HELD_AT_ONCE])
            counts = await self._engine.ask(queries.HeldBy(some))
            held |= counts or {}
        return [
            Consumer(client, name, tuple(sorted(session.topics)), session.last_ms, held.get((name, client), 0))
            for name, client, session in live
        ]
