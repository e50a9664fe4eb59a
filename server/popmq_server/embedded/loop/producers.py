"""Live producers of transactions: a CheckStream for each open Session, and which one gets the check of a half message.

    Session opened, hello ──▶ join        receives checks of its topics, round-robin with the topic's other streams
    stream closed, broken ──▶ close       at once; checks queued in it were not written, and do not count

    writer ── checks ──▶ hand ──▶ CheckStream: at most CHECKS_QUEUED_MAX wait ──▶ written to the client ──▶ counted
                                     full? the next stream of the topic; all full: the writer stops sending checks

Between being taken for writing and being counted, a check reserves its number. The writer does not know of it yet and
may issue the same number for that half message again; `hand` drops the duplicate.

For one event loop. Nothing here outlives the process, as the streams do not either.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from popmq_server.contract.commands import Check
from popmq_server.contract.commands.numbers import StreamNumbers
from popmq_server.errors import Refused, unavailable

#: Checks queued for a slow producer; further checks go to another producer, or come later.
CHECKS_QUEUED_MAX = 128
CHECKS_QUEUED_BYTES_MAX = 8 << 20


class CheckStream:
    """One live producer. Only the task that writes to it iterates over it; all others offer checks or end it."""

    def __init__(self, producers: "Producers", client_id: str, topics: frozenset[str], since_ms: int) -> None:
        self._producers = producers
        self._writing: Check | None = None
        self.client_id = client_id
        self.topics = topics
        self.since_ms = since_ms
        self.full = False
        self._queued: dict[str, Check] = {}  # by transaction, in order of arrival
        self._bytes = 0
        self._something = asyncio.Event()
        self._ended = False
        self._refused: Refused | None = None

    def offer(self, check: Check) -> bool:
        """Queues a check, unless the stream is full or ended. A check that is queued already takes no second place."""
        if self.full or self._ended:
            return False
        if check.transaction not in self._queued:
            self._queued[check.transaction] = check
            self._bytes += len(check.data)
            self._something.set()
        self.full = len(self._queued) >= CHECKS_QUEUED_MAX or self._bytes >= CHECKS_QUEUED_BYTES_MAX
        return True

    def withdraw(self, transaction: str) -> None:
        """Removes a check that moved to another stream."""
        if (check := self._queued.pop(transaction, None)) is not None:
            self._freed(check)

    def _freed(self, check: Check) -> None:
        """Frees the check's place. A full stream accepts checks again once it is half empty, so that the writer is not
        notified for every single place.
        """
        self._bytes -= len(check.data)
        if len(self._queued) <= CHECKS_QUEUED_MAX // 2 and self._bytes <= CHECKS_QUEUED_BYTES_MAX // 2:
            self.full = False

    def __aiter__(self) -> "CheckStream":
        return self

    async def __anext__(self) -> Check:
        """The next check to write. The one before was written, and is counted."""
        if self._writing is not None:
            written, self._writing = self._writing, None
            self._producers.written(written)
        if (check := await self._producers.next_check(self)) is None:
            raise StopAsyncIteration
        self._writing = check
        return check

    def close(self) -> None:
        """Drops it and its checks. Idempotent."""
        self._producers.leave(self)

    async def next(self) -> Check | None:
        """The next check to write; None when the stream has ended. Raises the Refused that `end` was called with."""
        while not self._ended and not self._queued:
            self._something.clear()
            await self._something.wait()
        if self._refused is not None:
            raise self._refused
        if self._ended:
            return None
        check = self._queued.pop(next(iter(self._queued)))
        self._freed(check)
        return check

    def end(self, refused: Refused | None = None) -> None:
        """Stops writing to the stream. Only the first call counts."""
        if not self._ended:
            self._ended, self._refused = True, refused
            self._something.set()


class Producers:
    """All live streams.

    `changed` is called when the set of topics whose streams accept checks may have changed. `count` counts a check that
    was written; it is done when the store has it.
    """

    def __init__(self, changed: Callable[[], None], count: Callable[[Check], "asyncio.Future[object]"]) -> None:
        self._changed, self._count = changed, count
        self._streams: list[CheckStream] = []
        self._by_topic: dict[str, deque[CheckStream]] = {}
        #: By transaction: the stream in which a check is queued; one that the writer repeats moves to another stream.
        self._waits: dict[str, CheckStream] = {}
        #: By transaction: the number of a check that is not counted yet, and the stream that writes it (None: written).
        self._uncounted: dict[str, tuple[int, CheckStream | None]] = {}
        self._closed = False

    def join(self, stream: CheckStream) -> None:
        """Raises Refused when the broker is stopping."""
        if self._closed:
            raise unavailable("the broker is stopping")
        self._streams.append(stream)
        for name in stream.topics:
            self._by_topic.setdefault(name, deque()).append(stream)

    def leave(self, stream: CheckStream) -> None:
        """Drops a stream and the checks queued in it. Idempotent."""
        stream.end()
        if stream not in self._streams:
            return
        self._streams.remove(stream)
        for name in [name for name, other in self._waits.items() if other is stream]:
            del self._waits[name]
        for name in [name for name, (_, writes) in self._uncounted.items() if writes is stream]:
            del self._uncounted[name]
        for name in stream.topics:
            self._by_topic[name].remove(stream)
            if not self._by_topic[name]:
                del self._by_topic[name]
        self._changed()

    def hand(self, checks: list[Check]) -> None:
        """Offers each check to the streams of its topic, round-robin."""
        for check in checks:
            if check.number <= self._uncounted.get(check.transaction, (0, None))[0]:
                continue  # a check with this number is being written, or was
            streams = self._by_topic.get(check.topic, deque())
            for _ in range(len(streams)):
                stream = streams[0]
                streams.rotate(-1)
                if stream.offer(check):
                    self._move(check.transaction, stream)
                    break
        if any(stream.full for stream in self._streams):
            self._changed()

    def _move(self, transaction: str, stream: CheckStream) -> None:
        before = self._waits.get(transaction, stream)
        self._waits[transaction] = stream
        if before is not stream:
            full = before.full
            before.withdraw(transaction)
            if full and not before.full:
                self._changed()

    async def next_check(self, stream: CheckStream) -> Check | None:
        """Like `CheckStream.next`, and reports when the stream has room again.

        The check's number stays reserved until it is `counted`, or until its stream ends before it was `written`.
        """
        full = stream.full
        check = await stream.next()
        if check is not None:
            self._waits.pop(check.transaction, None)
            self._uncounted[check.transaction] = check.number, stream
        if full and not stream.full:
            self._changed()
        return check

    def written(self, check: Check) -> None:
        """Counts a check that was written, whatever happens to its stream."""
        self._uncounted[check.transaction] = check.number, None
        self._count(check).add_done_callback(lambda _: self.counted(check))

    def counted(self, check: Check) -> None:
        """Releases the check's number: the store has counted it, and the writer issues the next number from now on."""
        if self._uncounted.get(check.transaction, (0, None))[0] == check.number:
            del self._uncounted[check.transaction]

    def listened(self) -> frozenset[str]:
        """The topics with at least one stream that accepts checks."""
        return frozenset().union(*(stream.topics for stream in self._streams if not stream.full))

    def streams(self) -> list[StreamNumbers]:
        """The live streams, oldest first."""
        return [
            StreamNumbers(stream.client_id, tuple(sorted(stream.topics)), stream.since_ms) for stream in self._streams
        ]

    def close(self) -> None:
        """Ends all streams and refuses new ones: the broker stops."""
        self._closed = True
        for stream in self._streams:
            stream.end(unavailable("the broker is stopping"))
