"""Sessions: which clients of which groups have sent this gateway a heartbeat lately. In memory alone."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from popmq_server.contract.commands.sessions import EITHER, AsksClient
from popmq_server.errors import Refused

#: After its last heartbeat; brokers forget a member after as long.
SESSION_S = 120.0
#: Names of clients and of their topics in all sessions, some 100 MB: topics need not exist when a client names them.
NAMES_MAX = 400_000
#: (group, client)
Key = tuple[str, str]


class Session(NamedTuple):
    """One client of one group. `only`: the consume mode of a topic that it reads in one mode alone."""

    topics: frozenset[str]
    last_ms: int
    last_s: float
    only: Mapping[str, str] = EITHER
    asks: AsksClient | None = None

    def reads(self, topic: str, mode: str) -> bool:
        """Whether it reads a topic while the group is in this mode."""
        return topic in self.topics and self.only.get(topic, mode) == mode

    @property
    def names(self) -> int:
        """How many names it holds."""
        return 1 + len(self.topics)


class Sessions:
    """Of one process. `ended`: called for each that was silent for too long."""

    def __init__(self, now_ms: Callable[[], int], ended: Callable[[Key], None]) -> None:
        self._now_ms, self._ended = now_ms, ended
        self._loop = asyncio.get_running_loop()
        #: The longest silent first.
        self._sessions: OrderedDict[Key, Session] = OrderedDict()
        self._names = 0

    def renew(self, key: Key, topics: frozenset[str], only: Mapping[str, str], asks: AsksClient | None = None) -> None:
        """A heartbeat. Raises Refused RATE_LIMITED for one that needs more names than there may be."""
        session = Session(topics, self._now_ms(), self._loop.time(), only, asks)
        known = self._sessions.get(key)
        if known is not None:  # however late: it is no silent one
            self._sessions[key] = known._replace(last_s=session.last_s)
            self._sessions.move_to_end(key)
        self._end_silent()
        more = session.names - (known.names if known else 0)
        if more > 0 and self._names + more > NAMES_MAX:
            raise Refused(
                "RATE_LIMITED",
                f"the clients of a gateway may have {NAMES_MAX:,} names in all, their own and those of their topics",
                field="topics",
                action="let each client name only the topics that it reads, and say goodbye for those that end",
            )
        self._names += more
        self._sessions[key] = session
        self._sessions.move_to_end(key)

    def end(self, key: Key) -> None:
        """A goodbye."""
        session = self._sessions.pop(key, None)
        self._names -= session.names if session else 0

    def get(self, key: Key) -> Session | None:
        """The live session."""
        self._end_silent()
        return self._sessions.get(key)

    def of_group(self, group: str) -> Iterator[tuple[str, Session]]:
        """The live clients of a group."""
        self._end_silent()
        return ((client, session) for (name, client), session in self._sessions.items() if name == group)

    def asks(self, client: str) -> AsksClient | None:
        """Asks a live client of any group."""
        self._end_silent()
        return next((each.asks for (_, name), each in self._sessions.items() if name == client and each.asks), None)

    def _end_silent(self) -> None:
        while self._sessions:
            key, session = next(iter(self._sessions.items()))
            if self._loop.time() - session.last_s < SESSION_S:
                return
            self.end(key)
            self._ended(key)
