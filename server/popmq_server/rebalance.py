"""Who reads which queue: sessions, and the broker-side rebalance.

`assign` is pure and is the reference's allocation for pop consumers (S1.27–S1.34): a share number s lets each queue be
read by 1 + s clients. Sessions live in memory: after a restart clients heartbeat again, and until then a Pop works all
the same, since assignment is advice about load, not ownership.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from popmq_server.clock import Clock

SESSION_MS = 120_000
HEARTBEAT_MS = 30_000


class Assignment(NamedTuple):
    """`known` False: keep what you had. `all`: pop without naming queues. Else exactly `queues`."""

    known: bool
    all: bool
    queues: tuple[int, ...]


def assign(queues: int, clients: Sequence[str], client: str, share_number: int) -> Assignment:
    """The queues of one client; the same result wherever it is computed, since both lists are sorted.

    Clients that are unknown yet are told so, which is not the same as being told to read nothing (S1.22).
    """
    ring = sorted(set(clients))
    if client not in ring:
        return Assignment(False, False, ())
    if share_number <= 0 or share_number >= len(ring) - 1:
        return Assignment(True, True, ())
    place = ring.index(client)
    if len(ring) > queues:
        return Assignment(True, False, (place % queues,))
    mine = {
        queue for step in range(share_number + 1) for queue in average(queues, len(ring), (place + step) % len(ring))
    }
    return Assignment(True, False, tuple(sorted(mine)))


def average(queues: int, clients: int, place: int) -> range:
    """The share of one client when queues are dealt out in equal stretches (S3.19), for clients ≤ queues."""
    size, more = divmod(queues, clients)
    start = place * size + min(place, more)
    return range(start, start + size + (place < more))


class Session(NamedTuple):
    """One client of one group."""

    topics: frozenset[str]
    last_ms: int


class Sessions:
    """Live clients by group; for one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, Session]] = {}

    def heartbeat(self, group: str, client: str, topics: frozenset[str], goodbye: bool) -> None:
        """Renews or ends a session."""
        members = self._alive(group)
        if goodbye:
            members.pop(client, None)
        else:
            members[client] = Session(topics, self._clock.now_ms())

    def version(self, group: str, share_number: int, queues: dict[str, int]) -> int:
        """A number that is another one whenever `assign` could answer otherwise; a restart does not change it."""
        members = sorted((client, sorted(session.topics)) for client, session in self._alive(group).items())
        sizes = [[queues.get(topic, 0) for topic in topics] for _, topics in members]
        digest = hashlib.blake2b(repr((share_number, members, sizes)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _alive(self, group: str) -> dict[str, Session]:
        """Live sessions of a group; those that fell silent are dropped when somebody looks."""
        members = self._groups.setdefault(group, {})
        oldest_ms = self._clock.now_ms() - SESSION_MS
        gone = [client for client, session in members.items() if session.last_ms <= oldest_ms]
        for client in gone:
            del members[client]
        return members

    def clients(self, group: str, topic: str) -> list[str]:
        """Live clients of a group that read a topic."""
        return [client for client, session in self._alive(group).items() if topic in session.topics]

    def topics(self, group: str) -> tuple[str, ...]:
        """All topics that live clients of a group read."""
        return tuple(set().union(*(session.topics for session in self._alive(group).values())))

    def count(self, group: str) -> int:
        """Live clients of a group."""
        return len(self._alive(group))
