"""The limits of one access key, so that one client program does not slow down all others.

    calls_per_s       a bucket of one second's calls. A call that finds it empty is refused, with a time to try again
                      that no other refused call has: many clients would else come again at the same moment
    connections       a connection belongs to the keys whose calls came over it, until it ends
    bytes_in_flight   requests that are being answered, and answers that their clients have not taken

A refusal is RATE_LIMITED with the time after which the call may succeed. Calls that end work (acks, renewals, goodbyes)
may use one more second's calls: a client that was refused can still finish what it began.
"""

from collections import Counter
from typing import NamedTuple

from popmq_server.errors import Refused

#: Upper bound of every limit in the file; more than any machine serves.
LIMIT_MAX = 1 << 40
#: The longest time to try again that a refused call gets, in ms; further calls share it.
_TURN_MAX_MS = 5_000
#: When a connection or an answer ends is not known, so this is a guess at when to try again, in ms.
_LATER_MS = 1_000


class KeyLimits(NamedTuple):
    """Limits of one key; 0 = none."""

    connections: int = 0
    calls_per_s: int = 0
    bytes_in_flight: int = 0


NO_LIMITS = KeyLimits()


class KeyLimited(Refused):
    """RATE_LIMITED: the access key has used up what it may have of the broker."""

    def __init__(self, name: str, limit: str, most: str, retry_ms: int) -> None:
        self._what = f"the access key {name!r} may have {most}"
        action = f"retry with backoff, or raise {limit} of [{name}] in the broker's access keys"
        super().__init__("RATE_LIMITED", self._what, field="access_key", action=action)
        self.tell(retry_ms)

    def tell(self, retry_ms: int) -> None:
        """Sets the time to wait, in the text too: RocketMQ's refusals have no other place for it."""
        self.retry_after_ms = max(retry_ms, 1)
        self.message = f"{self._what}; retry after {self.retry_after_ms} ms"


class KeyUse:
    """The present use of a key, and how often it was refused, by limit. For the event loop's thread."""

    __slots__ = (
        "_at_ms", "_name", "_peers", "_room", "_turn_ms", "answers", "bytes_in_flight", "calls", "held", "limited",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self._name = name
        self._peers: dict[str, int] = {}
        self._room: float | None = None
        self._at_ms = 0
        self._turn_ms = 0.0
        #: Bytes of messages that were read for answers; a part of `bytes_in_flight`.
        self.answers = 0
        self.bytes_in_flight = self.calls = self.held = 0
        self.limited: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        """Open connections whose calls carried the key."""
        return len(self._peers)

    def call(self, limits: KeyLimits, now_ms: int, settles: bool) -> None:
        """Counts a call. Raises Refused when the key has made its calls of this second."""
        self.calls += 1
        if not (most := limits.calls_per_s):
            return
        room = most if self._room is None else min(most, self._room + (now_ms - self._at_ms) * most / 1000)
        self._at_ms, self._room = now_ms, room
        missing = 1 - room - (most if settles else 0)
        if missing > 0:
            first = now_ms + missing * 1000 / most
            self._turn_ms = min(max(first, self._turn_ms + 1000 / most), now_ms + _TURN_MAX_MS)
            raise self._refused("calls_per_s", f"{most:,} calls a second", int(self._turn_ms - now_ms) + 1)
        self._room = room - 1

    def joins(self, limits: KeyLimits, peer: str) -> None:
        """Counts a call over the connection of `peer`. Raises Refused for a connection that is one too many."""
        if peer not in self._peers and limits.connections and len(self._peers) >= limits.connections:
            raise self._refused("connections", f"{limits.connections:,} connections", _LATER_MS)
        self._peers[peer] = self._peers.get(peer, 0) + 1

    def knows(self, peer: str) -> bool:
        """Whether the connection is counted already."""
        return peer in self._peers

    def leaves(self, peer: str) -> None:
        """Takes back one `joins`."""
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def begins(self, limits: KeyLimits, size: int) -> None:
        """Counts a request's bytes. A key that has nothing in flight may begin a request of any size."""
        most = limits.bytes_in_flight
        if most and self.bytes_in_flight and self.bytes_in_flight + size > most:
            raise self._refused("bytes_in_flight", f"{most:,} bytes in flight", _LATER_MS)
        self.bytes_in_flight += size

    def reads(self, limits: KeyLimits, size: int) -> None:
        """Counts messages that were read for an answer. A key without any may have an answer of any size."""
        most = limits.bytes_in_flight
        if most and self.answers and self.bytes_in_flight + size > most:
            raise self._refused("bytes_in_flight", f"{most:,} bytes in flight", _LATER_MS)
        self.answers += size
        self.bytes_in_flight += size

    def _refused(self, limit: str, most: str, retry_ms: int) -> "KeyLimited":
        self.limited[limit] += 1
        return KeyLimited(self._name, limit, most, retry_ms)
