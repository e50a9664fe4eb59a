"""Heartbeats: the sessions of the live clients of each group, which the queue assignment works on.

    a heartbeat     starts or renews a session; a goodbye ends it
    silence         SESSION_MS after its last heartbeat a session is over: it is dropped when its group is asked for
    version         changes whenever an assignment may change: clients ask for theirs again only then

Sessions live in memory. After a restart clients send heartbeats again; until then Pops work all the same, since
assignment balances load and grants no ownership.
"""

import bisect
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from popmq_server.clock import Clock
from popmq_server.contract.commands.sessions import EITHER
from popmq_server.errors import Refused
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import Terms

SESSION_MS = 120_000
#: Names of clients and of their topics in all sessions, some 100 MB: topics need not exist when a client names them.
NAMES_MAX = 400_000
#: The part of NAMES_MAX that one group may have, so that its clients leave room for those of others.
NAMES_OF_GROUP_MAX = 100_000
#: How often all groups are searched for silent clients when there is no room.
SEARCH_MS = 1000


class Session(NamedTuple):
    """One client of one group. `only`: the consume mode of a topic that it reads in one mode alone."""

    topics: frozenset[str]
    last_ms: int
    only: Mapping[str, str] = EITHER

    def reads(self, topic: str, mode: str) -> bool:
        """Whether it reads a topic while the group is in this mode; "": in any mode."""
        return topic in self.topics and (not mode or self.only.get(topic, mode) == mode)

    @property
    def names(self) -> int:
        """How many names it holds: the client's, and those of its topics."""
        return 1 + len(self.topics)


class _Members:
    """The sessions of one group, least recently renewed first, with their topics and a digest.

    Both are updated incrementally: 2,000 clients send a heartbeat every 30 s each, and recomputing them from all
    sessions every time took a third of the event loop.
    """

    __slots__ = ("_names", "digest", "held", "sessions", "topics")

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        #: The clients by name, if none has joined or left since they were sorted.
        self._names: list[str] | None = None
        self.topics: Counter[str] = Counter()
        #: The sum of Session.names.
        self.held = 0
        #: The sum of a hash of each client and what it reads: identifies the members, independent of their order.
        self.digest = 0

    def names(self) -> list[str]:
        """The clients, sorted. A returned list stays as it is; a change of the members makes another one."""
        if self._names is None:
            self._names = sorted(self.sessions)
        return self._names

    def put(self, client: str, session: Session) -> None:
        names = self._names if client in self.sessions else None
        self.remove(client)
        self.sessions[client], self._names = session, names
        self.held += session.names
        self.topics.update(session.topics)
        self.digest += _hash(client, session)

    def remove(self, client: str) -> None:
        session = self.sessions.pop(client, None)
        if session is not None:
            self._names = None
            self.held -= session.names
            self.topics -= Counter(session.topics)
            self.digest -= _hash(client, session)


def _hash(client: str, session: Session) -> int:
    return int.from_bytes(hash8(repr((client, sorted(session.topics), sorted(session.only.items())))), "big")


_NOBODY = _Members()


class Sessions:
    """Live clients by group. For one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, _Members] = {}
        #: The groups by name, if none has come or gone since they were sorted.
        self._names: list[str] | None = None
        #: The sum of _Members.held.
        self._held = 0
        self._searched_ms = 0

    def heartbeat(
        self, group: str, client: str, topics: frozenset[str], goodbye: bool, only: Mapping[str, str] = EITHER
    ) -> None:
        """Renews or ends a session. Raises Refused RATE_LIMITED for a session that needs more names than there may be.

        A session that does not grow is renewed in any case.
        """
        members, session = self._alive(group), Session(topics, self._clock.now_ms(), only)
        before = members.held
        if goodbye:
            members.remove(client)
        else:
            self._demand_room(members, client, session.names)
            if group not in self._groups:
                self._look_at_others()
                self._groups[group], self._names = _Members(), None
            members = self._groups[group]
            members.put(client, session)
        self._held += members.held - before

    def _demand_room(self, members: _Members, client: str, names: int) -> None:
        known = members.sessions.get(client)
        more = names - (known.names if known else 0)
        if more > 0 and self._held + more > NAMES_MAX and self._clock.now_ms() - self._searched_ms >= SEARCH_MS:
            self._searched_ms = self._clock.now_ms()
            for group in list(self._groups):
                self._alive(group)
        for held, most, whose in (
            (self._held, NAMES_MAX, "all groups"),
            (members.held, NAMES_OF_GROUP_MAX, "one group"),
        ):
            if more > 0 and held + more > most:
                raise Refused(
                    "RATE_LIMITED",
                    f"the live clients of {whose} may have {most:,} names in all, their own and those of their topics",
                    field="topics",
                    action="let each client name only the topics that it reads, and say goodbye for those that end",
                )

    def version(self, group: str, terms: Mapping[str, Terms]) -> int:
        """A number that changes whenever an assignment may change; a restart does not change it."""
        members = self._alive(group)
        known = [(topic, terms.get(topic)) for topic in sorted(members.topics)]
        text = repr((len(members.sessions), members.digest, known))
        return int.from_bytes(hash8(text), "big") >> 1

    def forget(self, group: str) -> None:
        """Drops the sessions of a deleted group."""
        if (members := self._groups.pop(group, None)) is not None:
            self._names = None
            self._held -= members.held

    def _look_at_others(self) -> None:
        """Drops two of the groups if they have fallen silent: nothing else asks for one that was used once."""
        for group in list(itertools.islice(self._groups, 2)):
            if self._alive(group) is not _NOBODY:
                self._groups[group] = self._groups.pop(group)  # others come first the next time

    def _alive(self, group: str) -> _Members:
        """The members of a group, without sessions that have timed out: these are dropped here."""
        members = self._groups.get(group, _NOBODY)
        oldest_ms = self._clock.now_ms() - SESSION_MS
        while members.sessions:
            client, session = next(iter(members.sessions.items()))
            if session.last_ms > oldest_ms:
                return members
            members.remove(client)
            self._held -= session.names
        if self._groups.pop(group, None) is not None:
            self._names = None
        return _NOBODY

    def clients(self, group: str, topic: str, mode: str = "") -> list[str]:
        """Live clients of a group that read a topic; with `mode`, those that read it in this consume mode."""
        return [client for client, session in self._alive(group).sessions.items() if session.reads(topic, mode)]

    def topics(self, group: str) -> tuple[str, ...]:
        """All topics that live clients of a group read."""
        return tuple(self._alive(group).topics)

    def count(self, group: str) -> int:
        """The number of live clients of a group."""
        return len(self._alive(group).sessions)

    def listed(
        self, group: str, behind: tuple[str, str] = ("", ""), rows_max: int = 0
    ) -> list[tuple[str, str, Session]]:
        """(group, client, session) of the live clients of one group, or of all, by name.

        At most `rows_max` of those after a (group, client); 0 = all. A page costs its rows, and a sort of the clients
        if one has joined or left.
        """
        found = []
        for name in self._from(behind[0]) if not group else [group][: group >= behind[0]]:
            members = self._alive(name)
            names = members.names()
            for place in range(bisect.bisect_right(names, behind[1]) if name == behind[0] else 0, len(names)):
                found.append((name, names[place], members.sessions[names[place]]))
                if len(found) == rows_max:
                    return found
        return found

    def _from(self, group: str) -> Iterator[str]:
        """The names of the groups from one on, as they are now."""
        if self._names is None:
            self._names = sorted(self._groups)
        names = self._names
        return itertools.islice(names, bisect.bisect_left(names, group), None)
