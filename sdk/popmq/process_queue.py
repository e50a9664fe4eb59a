"""The cache of a pull consumer for one queue. Pure: no socket, no thread, no clock; the caller holds a lock.

         committed                                                  next_offset
    ─────────┬───────────────────────────────────────────────────────────┬──────────▶ offsets of the queue
      done   │ in hand │ done │ ready │ later │ ready … (cached)         │ not pulled yet
             └ smallest offset that is still cached

`add` caches messages in the order of their offsets, `take` delivers them. A message stays cached until `done`, so the
committed offset cannot pass a stuck message, and the consumer that takes over starts at it. `later` are messages that
`again` has delayed. An orderly queue delivers one message at a time, and a delayed one blocks the later ones.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from popmq.duration import Duration, in_seconds

M = TypeVar("M")

#: Statuses of a pull whose offset cannot be read: the queue is restarted at the offset that the broker gives.
ILLEGAL = frozenset({"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_LOGIC_QUEUE"})

#: Statuses of a pull that reached the end of its queue. (The offsets of a retry topic seldom show its end: its entries
#: are numbered across all groups.)
AT_END = frozenset({"NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"})

#: The limit that stops the pulling of a queue; "": none.
Limit = Literal["", "count", "bytes", "span"]


def met_end(status: str, next_offset: int, max_offset: int) -> bool:
    """Whether a pull with this answer read to the end of its queue."""
    return next_offset >= max_offset or status in AT_END


@dataclass(frozen=True, slots=True)
class FlowControl:
    """Limits of what is cached of one queue. Beyond them it is not pulled; checked every `pause` seconds.

    Each limit is checked before a pull, so a batch can exceed it. `span` is the distance from the smallest cached
    offset to the greatest that was pulled, done or not: after a takeover from a consumer with a stuck message, no more
    than that is delivered again. (RocketMQ's clients count cached messages only.) Orderly queues ignore `span`.
    """

    count: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int = 2000
    pause: float = 0.05  # given as any duration

    if TYPE_CHECKING:  # what may be given; `pause` is seconds

        def __init__(
            self, count: int = 1000, bytes: int = 100 * 1024 * 1024, span: int = 2000, pause: Duration = 0.05
        ) -> None: ...

    def __post_init__(self) -> None:
        in_seconds(self, "pause")


class ProcessQueue(Generic[M]):
    """The messages of one queue from their pull until they are settled.

    `next_offset` is where the next pull reads. `max_offset` is the end of the queue in the broker's last answer.
    `leaving`: nothing more is delivered, messages that are out still count. `dropped`: another consumer has the queue,
    nothing of it counts any more. `locked_until`: until when, on the client's clock, the lock of an orderly queue is
    certain; other queues need no lock.
    """

    def __init__(self, offset: int, max_offset: int = 0, orderly: bool = False) -> None:
        self.next_offset = offset
        self.max_offset = max_offset
        self.orderly = orderly
        self.drained = False  # the last answer reached its end
        self.leaving = False
        self.dropped = False
        self.locked_until = -math.inf if orderly else math.inf
        self.bytes = 0
        self._greatest = offset - 1
        self._sizes: dict[int, int] = {}  # of every cached message, by its offset, in their order
        self._ready: deque[tuple[int, M]] = deque()
        self._later: list[tuple[float, int, M]] = []  # a heap

    # ── What it holds ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def count(self) -> int:
        """Cached messages: not delivered yet, delayed, or delivered."""
        return len(self._sizes)

    @property
    def in_hand(self) -> int:
        """Messages that were delivered and are not done."""
        return len(self._sizes) - len(self._ready) - len(self._later)

    @property
    def span(self) -> int:
        """The distance between the smallest cached offset and the greatest offset that was pulled."""
        return self._greatest - next(iter(self._sizes)) if self._sizes else 0

    @property
    def committed(self) -> int:
        """The offset to commit: everything below is done. The smallest cached offset or, when nothing is cached, the
        next offset to pull, which is also past messages that the filter excludes or that are gone.
        """
        return next(iter(self._sizes), self.next_offset)

    @property
    def handled(self) -> int:
        """The same counted by messages only: the smallest cached offset, or the one after the greatest that was pulled.
        For a retry topic, whose offsets are shared by all groups.
        """
        return next(iter(self._sizes), self._greatest + 1)

    @property
    def backlog(self) -> int:
        """Messages not done yet, an estimate: the offsets to the end, and the cached messages."""
        return max(0, self.max_offset - self.next_offset) + self.count

    @property
    def at_end(self) -> bool:
        """Whether nothing is known to pull or to deliver."""
        return self.drained and not self._ready and not self._later

    def limit(self, flow: FlowControl) -> Limit:
        """The first limit that is exceeded."""
        if self.count > flow.count:
            return "count"
        if self.bytes > flow.bytes:
            return "bytes"
        if self.span > flow.span and not self.orderly:
            return "span"
        return ""

    def locked(self, now: float) -> bool:
        """Whether this client may read it: false only for an orderly queue whose lock is no longer certain."""
        return now < self.locked_until

    # ── What happens to it ───────────────────────────────────────────────────────────────────────────────────────────

    def add(self, messages: Iterable[tuple[int, int, M]], status: str, next_offset: int, max_offset: int) -> bool:
        """Caches the answer to a pull from `next_offset`: rows of (offset, bytes, message), by rising offset.

        False: the offset cannot be read, and nothing was cached. The next offset never decreases: a smaller one belongs
        to a queue that was deleted.
        """
        if status in ILLEGAL or next_offset < self.next_offset:
            return False
        for offset, size, message in messages:
            self._sizes[offset] = size
            self._greatest = offset
            self.bytes += size
            self._ready.append((offset, message))
        self.next_offset = next_offset
        self.max_offset = max_offset
        self.drained = met_end(status, next_offset, max_offset)
        return True

    def take(self, now: float) -> M | None:
        """Delivers the next message; None: there is none, or it is delayed."""
        if self.dropped or self.leaving or not self.locked(now) or (self.orderly and self.in_hand):
            return None
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        if self._ready and not (self.orderly and self._later):
            return self._ready.popleft()[1]
        return None

    def waiting(self, now: float) -> bool:
        """Whether `take` would deliver a message, provided the lock is held."""
        if self.dropped or self.leaving or (self.orderly and self.in_hand):
            return False
        if self._later and (self.orderly or self._later[0][0] <= now):
            return self._later[0][0] <= now
        return bool(self._ready)

    def again_at(self) -> float | None:
        """When the next delayed message may be taken."""
        return self._later[0][0] if self._later and not self.dropped else None

    def again(self, offset: int, at: float, message: M) -> None:
        """Delays a message that was delivered until `at`."""
        if offset in self._sizes:
            heapq.heappush(self._later, (at, offset, message))

    def done(self, offset: int) -> None:
        """Removes a message that was delivered and is settled."""
        self.bytes -= self._sizes.pop(offset, 0)

    def drop(self) -> None:
        """Ends it: another consumer has the queue."""
        self.dropped = True
