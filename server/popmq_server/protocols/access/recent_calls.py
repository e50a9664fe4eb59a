"""The clients that popped, pulled or sent lately, also those without a session: what each call leaves behind.

    Pop, Pull, Send, also of apache.rocketmq.v2 ──▶ `began` ──▶ a CallCount of (connection, key, client id, what, names)
    ListSessions ──▶ `listed` ──▶ the uses as rows: one for each client and group, and one for what it sent

A call costs one look-up, so everything else is done where rows are listed. Send and Pull of popmq.v1 name no client:
they count for the client that pops or sends heartbeats over the same connection, if there is exactly one, else for the
host. In memory, for one event loop, bounded in time and number.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import unquote

from popmq_server import logs
from popmq_server.clock import Clock
from popmq_server.protocols.access.access_keys import CALLER, Key

#: How long a use is shown after its last call.
RECENT_MS = 300_000
#: Uses remembered, some 5 MB. With one more, those whose last call is longest ago are forgotten.
USES_MAX = 10_000

#: `beats`: heartbeats; they make no row, but tell which client a connection belongs to.
What = Literal["pops", "pulls", "sends", "beats"]


class Name(NamedTuple):
    """A row's key: a client, and the kind of its calls. `key`, `client_id`, `group`: "" for none."""

    peer: str  # the connection
    key: str
    client_id: str
    what: What
    group: str
    topic: str


class CallCount:
    """How often a client did one thing, and when last."""

    __slots__ = ("calls", "last_ms", "name")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.calls = 0
        self.last_ms = 0


@dataclass(slots=True)
class RecentCaller:
    """The recent calls of one client for one group; with an empty group, what it sent and read without a group."""

    client_id: str
    key: str
    host: str
    group: str
    topics: set[str] = field(default_factory=set)
    last_ms: int = 0
    pops: int = 0
    pulls: int = 0
    sends: int = 0

    def add(self, use: CallCount) -> None:
        """Counts a use."""
        self.topics.add(use.name.topic)
        self.last_ms = max(self.last_ms, use.last_ms)
        setattr(self, use.name.what, getattr(self, use.name.what) + use.calls)


class RecentCalls:
    """Both protocols share one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, str, str, What, str, str], CallCount] = {}

    def began(self, what: What, group: str, topic: str, client_id: str = "") -> CallCount:
        """Counts a call, before it waits for messages. A refused one is taken back: its names may not exist."""
        call, key = logs.CALL.get(), CALLER.get()
        peer, whose = call.peer() if call is not None else "", key.name if isinstance(key, Key) else ""
        name = (peer, whose, client_id, what, group, topic)
        use = self._uses.get(name) or self._added(Name(*name))
        use.calls += 1
        use.last_ms = self._clock.now_ms()
        return use

    def refused(self, use: CallCount) -> None:
        """Takes a call back."""
        use.calls -= 1
        if use.calls <= 0:
            self._uses.pop(use.name, None)

    def _added(self, name: Name) -> CallCount:
        if len(self._uses) >= USES_MAX:
            self._forget()
        use = self._uses[name] = CallCount(name)
        return use

    def _forget(self) -> None:
        """Makes room: drops what is no longer shown, else the oldest, many at once, so that a flood scans seldom."""
        self._drop_old()
        if len(self._uses) >= USES_MAX:
            for use in heapq.nsmallest(USES_MAX // 16 + 1, self._uses.values(), lambda use: use.last_ms):
                del self._uses[use.name]

    def _drop_old(self) -> None:
        since_ms = self._clock.now_ms() - RECENT_MS
        for use in [use for use in self._uses.values() if use.last_ms <= since_ms]:
            del self._uses[use.name]

    def listed(self, group: str = "") -> list[RecentCaller]:
        """A row for each client and group. `group` "": of all groups, and a row for each client that sent."""
        self._drop_old()
        known = _clients(self._uses.values())
        rows: dict[tuple[str, ...], RecentCaller] = {}
        for use in self._uses.values():
            name = use.name
            if name.what == "beats" or (group and name.group != group):
                continue
            client_id, host = name.client_id or known.get((name.peer, name.key), ""), host_of(name.peer)
            whose = client_id, name.key, host, name.group
            row = rows.get(whose)
            if row is None:
                row = rows[whose] = RecentCaller(*whose)
            row.add(use)
        return list(rows.values())


def _clients(uses: Iterable[CallCount]) -> dict[tuple[str, str], str]:
    """The client id of each connection and key, where the calls name exactly one: a proxy has many clients on one."""
    found: dict[tuple[str, str], str] = {}
    for use in uses:
        if use.name.client_id:
            over = use.name.peer, use.name.key
            found[over] = use.name.client_id if found.get(over, use.name.client_id) == use.name.client_id else ""
    return found


def host_of(peer: str) -> str:
    """The host of a connection: "ipv4:10.0.0.7:51234" is 10.0.0.7, "ipv6:[::1]:5" is ::1."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
