"""A process queue: what a pull consumer knows of one queue. Pure: no socket, no thread, no clock; its caller locks.

         committed                                                  next_offset
    ─────────┬───────────────────────────────────────────────────────────┬──────────▶ offsets of the queue
      done   │ in hand │ done │ ready │ later │ ready … (cached)         │ not pulled yet
             └ smallest offset that is still cached

Messages come in by `add`, in the order of their offsets, and go out by `take`. A message counts as cached until `done`:
so one that is stuck pins the committed offset, and whoever takes the queue over begins at it. `later` is what was put
off by `again`. In an orderly queue one message at a time is out, and one that was put off holds up those behind it.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

M = TypeVar("M")

#: Statuses of a pull after which the offset was no place to read from: the queue is begun again, where the broker says.
ILLEGAL = frozenset({"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_LOGIC_QUEUE"})

#: Statuses of a pull that met the end of its queue. (A retry topic seldom is at its end by the numbers: its entries are
#: numbered across all groups.)
AT_END = frozenset({"NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"})

#: The limit that holds a queue back, or "" for none.
Limit = Literal["", "count", "bytes", "span"]


def met_end(status: str, next_offset: int, max_offset: int) -> bool:
    """Whether a pull with this answer read to the end of its queue."""
    return next_offset >= max_offset or status in AT_END


@dataclass(frozen=True, slots=True)
class FlowControl:
    """How much of one queue is cached before it is pulled no further; looked at again every `pause` seconds.

    Each limit is what may be there before one more pull: a batch can exceed it. `span` is from the smallest cached
    offset to the greatest that came, done or not: whoever takes over from a consumer with one stuck message repeats no
    more than that. (The reference looks at cached ones only, and so is stopped by one stuck message for no longer than
    the others take.) An orderly queue, which is done in order, has no use for it.
    """

    count: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int = 2000
    pause: float = 0.05


class ProcessQueue(Generic[M]):
    """The messages of one queue between the pull and the end of their handlers.

    `next_offset` is where the next pull reads. `max_offset` is the end of the queue as the broker said last. `leaving`:
    nothing more is handed out, what is in hand still counts. `dropped`: somebody else has the queue now, nothing of it
    counts any more. `locked_until` is, on the client's clock, when the lock of an orderly queue is no longer certain;
    others need none.
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
        """Messages that are cached: not handed out, put off, or in hand."""
        return len(self._sizes)

    @property
    def in_hand(self) -> int:
        """Messages that were handed out and are not done."""
        return len(self._sizes) - len(self._ready) - len(self._later)

    @property
    def span(self) -> int:
        """The distance between the smallest cached offset and the greatest of all messages that came."""
        return self._greatest - next(iter(self._sizes)) if self._sizes else 0

    @property
    def committed(self) -> int:
        """What may be committed: everything below is done. The smallest cached offset, or where the next pull reads:
        behind the greatest offset that was seen, and behind what did not match the filter or cannot be read any more.
        """
        return next(iter(self._sizes), self.next_offset)

    @property
    def handled(self) -> int:
        """The same by messages alone: the smallest cached offset, or the one behind the greatest that came. Where
        offsets are numbers that others use too, it does not move on without a reason.
        """
        return next(iter(self._sizes), self._greatest + 1)

    @property
    def backlog(self) -> int:
        """Messages that this consumer has not done, an estimate: offsets to the end, and what is cached."""
        return max(0, self.max_offset - self.next_offset) + self.count

    @property
    def at_end(self) -> bool:
        """Whether, as far as is known, there is nothing left to pull and nothing left to hand out."""
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
        """Whether this client may read it: always, but for an orderly queue whose lock is not certain any more."""
        return now < self.locked_until

    # ── What happens to it ───────────────────────────────────────────────────────────────────────────────────────────

    def add(self, messages: Iterable[tuple[int, int, M]], status: str, next_offset: int, max_offset: int) -> bool:
        """Takes in the answer to a pull from `next_offset`: rows of offset, bytes, message, by rising offset.

        False: that was no place to read from, and nothing was taken in. The next offset never goes down: one that would
        is an offset of a queue that is not there any more.
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
        """Hands out the next message; None: there is none, or it is not its time."""
        if self.dropped or self.leaving or not self.locked(now) or (self.orderly and self.in_hand):
            return None
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        if self._ready and not (self.orderly and self._later):
            return self._ready.popleft()[1]
        return None

    def waiting(self, now: float) -> bool:
        """Whether a `take` would hand something out, given the lock."""
        if self.dropped or self.leaving or (self.orderly and self.in_hand):
            return False
        if self._later and (self.orderly or self._later[0][0] <= now):
            return self._later[0][0] <= now
        return bool(self._ready)

    def again_at(self) -> float | None:
        """When the next message that was put off may be taken."""
        return self._later[0][0] if self._later and not self.dropped else None

    def again(self, offset: int, at: float, message: M) -> None:
        """Puts a message that was handed out off until `at`."""
        if offset in self._sizes:
            heapq.heappush(self._later, (at, offset, message))

    def done(self, offset: int) -> None:
        """Forgets a message that was handed out: it is done with."""
        self.bytes -= self._sizes.pop(offset, 0)

    def drop(self) -> None:
        """Ends it: somebody else has the queue."""
        self.dropped = True
