"""Live producers of transactions: one Stream for each open Session, and which of them is asked about a half message.

    Session opened, hello ──▶ join        checks of its topics come to it, in turn with the other streams of the topic
    stream closed, broken ──▶ leave       at once; what waited in it was never handed over, and does not count

    writer ── checks ──▶ hand ──▶ Stream: at most CHECKS_QUEUED_MAX wait ──▶ written to the client ──▶ counted
                                     full? the next stream of the topic; all full: the writer is told to hold its checks

A check that was taken to be written, but is not counted yet, holds its number: when the writer asks about the same half
message again meanwhile, it does not know of the first one and gives the number once more. That one is not handed on.

For one event loop. What is here is lost with the process, as the streams are.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from popmq_server.commands import Check
from popmq_server.errors import Refused, unavailable

#: Checks that wait for a slow producer; more are for another one, or for later.
CHECKS_QUEUED_MAX = 128
CHECKS_QUEUED_BYTES_MAX = 8 << 20


class StreamNumbers(NamedTuple):
    """A live stream, for lists."""

    client_id: str
    topics: tuple[str, ...]
    since_ms: int


class Stream:
    """One live producer. `next` is for who writes to it; everybody else only offers, or ends it."""

    def __init__(self, client_id: str, topics: frozenset[str], since_ms: int) -> None:
        self.client_id = client_id
        self.topics = topics
        self.since_ms = since_ms
        self.full = False
        self._waiting: dict[int, Check] = {}  # by txn id, in the order of their coming
        self._bytes = 0
        self._something = asyncio.Event()
        self._ended = False
        self._refused: Refused | None = None

    def offer(self, check: Check) -> bool:
        """Takes a check to be written, unless it is full. One that waits here already needs no second place."""
        if self.full or self._ended:
            return False
        if check.transaction.txn_id not in self._waiting:
            self._waiting[check.transaction.txn_id] = check
            self._bytes += len(check.data)
            self._something.set()
        self.full = len(self._waiting) >= CHECKS_QUEUED_MAX or self._bytes >= CHECKS_QUEUED_BYTES_MAX
        return True

    def withdraw(self, txn_id: int) -> None:
        """It waits in another stream now."""
        if (check := self._waiting.pop(txn_id, None)) is not None:
            self._freed(check)

    def _freed(self, check: Check) -> None:
        """A place is free. A full stream takes checks again when half of its places are, so that the writer is not
        told at every one.
        """
        self._bytes -= len(check.data)
        if len(self._waiting) <= CHECKS_QUEUED_MAX // 2 and self._bytes <= CHECKS_QUEUED_BYTES_MAX // 2:
            self.full = False

    async def next(self) -> Check | None:
        """The next check to write; None when the stream has ended. Raises the Refused that it was ended with."""
        while not self._ended and not self._waiting:
            self._something.clear()
            await self._something.wait()
        if self._refused is not None:
            raise self._refused
        if self._ended:
            return None
        check = self._waiting.pop(next(iter(self._waiting)))
        self._freed(check)
        return check

    def end(self, refused: Refused | None = None) -> None:
        """Nothing more is written to it. The first end counts."""
        if not self._ended:
            self._ended, self._refused = True, refused
            self._something.set()


class Producers:
    """All live streams; `changed` is called when another set of topics has somebody who can take checks."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._streams: list[Stream] = []
        self._by_topic: dict[str, deque[Stream]] = {}
        #: By txn id: in which stream a check waits to be written; one that is handed out again moves to another one.
        self._waits: dict[int, Stream] = {}
        #: By txn id: the number of a check that is not counted yet, and the stream that is writing it (None: written).
        self._uncounted: dict[int, tuple[int, Stream | None]] = {}
        self._closed = False

    def join(self, stream: Stream) -> None:
        """Raises Refused when the broker stops."""
        if self._closed:
            raise unavailable("the broker is stopping")
        self._streams.append(stream)
        for name in stream.topics:
            self._by_topic.setdefault(name, deque()).append(stream)

    def leave(self, stream: Stream) -> None:
        """Forgets a stream and what waits in it. A second time does nothing."""
        stream.end()
        if stream not in self._streams:
            return
        self._streams.remove(stream)
        for txn_id in [txn_id for txn_id, other in self._waits.items() if other is stream]:
            del self._waits[txn_id]
        for txn_id in [txn_id for txn_id, (_, writes) in self._uncounted.items() if writes is stream]:
            del self._uncounted[txn_id]
        for name in stream.topics:
            self._by_topic[name].remove(stream)
            if not self._by_topic[name]:
                del self._by_topic[name]
        self._changed()

    def hand(self, checks: list[Check]) -> None:
        """Offers each check to the streams of its topic, beginning with the one whose turn it is."""
        for check in checks:
            if check.number <= self._uncounted.get(check.transaction.txn_id, (0, None))[0]:
                continue  # the same number was told, or is about to be
            lot = self._by_topic.get(check.topic, deque())
            for _ in range(len(lot)):
                stream = lot[0]
                lot.rotate(-1)
                if stream.offer(check):
                    self._move(check.transaction.txn_id, stream)
                    break
        if any(stream.full for stream in self._streams):
            self._changed()

    def _move(self, txn_id: int, stream: Stream) -> None:
        before = self._waits.get(txn_id, stream)
        self._waits[txn_id] = stream
        if before is not stream:
            full = before.full
            before.withdraw(txn_id)
            if full and not before.full:
                self._changed()

    async def next_check(self, stream: Stream) -> Check | None:
        """`Stream.next`; with the place that becomes free the topics may have room again.

        Until it is `counted`, or its stream ends before it was `written`, nobody else is asked with its number.
        """
        full = stream.full
        check = await stream.next()
        if check is not None:
            self._waits.pop(check.transaction.txn_id, None)
            self._uncounted[check.transaction.txn_id] = check.number, stream
        if full and not stream.full:
            self._changed()
        return check

    def written(self, check: Check) -> None:
        """It was written, whatever becomes of its stream: it will be counted."""
        self._uncounted[check.transaction.txn_id] = check.number, None

    def counted(self, check: Check) -> None:
        """The store knows of it; what the writer hands out from now on has the next number."""
        if self._uncounted.get(check.transaction.txn_id, (0, None))[0] == check.number:
            del self._uncounted[check.transaction.txn_id]

    def listened(self) -> frozenset[str]:
        """The topics that somebody can take checks of now."""
        return frozenset().union(*(stream.topics for stream in self._streams if not stream.full))

    def streams(self) -> list[StreamNumbers]:
        """The live streams, in the order of their coming."""
        return [
            StreamNumbers(stream.client_id, tuple(sorted(stream.topics)), stream.since_ms) for stream in self._streams
        ]

    def close(self) -> None:
        """Ends all streams, and lets nobody join any more: the broker stops."""
        self._closed = True
        for stream in self._streams:
            stream.end(unavailable("the broker is stopping"))
