"""Releases delayed messages: appends due messages to their queues, in order of due time.

One call moves at most RELEASE_MESSAGES_MAX messages. The append and the delete share one transaction, so a message gets
into its queue exactly once. The writer repeats the call between client commands, so a large backlog of due
messages does not delay requests, even if they became due while the broker was down. Messages leave in order of their
due times.

    sched   both clocks:  ▲due 10:00  ▲10:05  ▲10:05 …      merged by due time, up to the time of its clock
            our clock:    ▲09:58  ▲10:02 …                  → one list per topic → Placing.make_visible

A wall clock that is slower than the broker's time holds up the messages that need both clocks. It may be corrected at
any moment without notice, so while such a message is overdue, the job checks the wall clock every WALL_LOOK_MS.

A full store releases nothing, just as it refuses Pops (space.py). Where the free pages of a full map lie apart, a long
message may find no adjacent ones although there is room. It waits, and the messages after it are released (jobs.py).
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.sending import delay
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.topics import quarantine
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.jobs import (
    NO_PAGES_MS,
    RETRY_MS,
    Job,
    JobFailed,
    Skipped,
    Timed,
)
from popmq_server.embedded.state.space import GROW, MESSAGE_BYTES
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import SCHED_KEY
from popmq_server.values.outgoing import Outgoing

#: Per transaction; one message is always allowed.
RELEASE_MESSAGES_MAX = 1000
RELEASE_BYTES_MAX = 4 << 20
#: How often to check a lagging wall clock: well below the promised lateness, at negligible cost.
WALL_LOOK_MS = 100


class ReleasingDelayed(Job):
    """Schedules the release of delayed messages; one step is one piece.

    Only the attempt to store a message shows that it lacks adjacent pages. After such a failure the pieces have one
    message, until it fails alone and is skipped.
    """

    name = "delayed messages"
    moved_by = frozenset({"sched"})

    def __init__(self) -> None:
        super().__init__()
        self._skipped = {clock: Skipped(bytes((clock,))) for clock in delay.CLOCKS}
        #: The keys of the messages of the current piece.
        self._tried: list[bytes] = []

    def next_ms(self, tx: Tx) -> int | None:
        """When the first delayed message is due, or its clock is to be checked again; None without any."""
        times = []
        for clock, skipped in self._skipped.items():
            if (again_ms := skipped.next_ms()) is not None:
                times.append(again_ms)
            first = next(tx.kv.scan_keys("sched", bytes((clock,)), skipped.start), None)
            if first is not None:
                due_ms = SCHED_KEY.unpack(first)[1]
                lags_ms = due_ms - delay.due_by(tx, clock) if due_ms <= tx.now_ms else 0
                times.append(tx.now_ms + min(lags_ms, WALL_LOOK_MS) if lags_ms > 0 else due_ms)
        return min(times, default=None)

    def step(self, tx: Tx, work: Timed) -> None:
        again = [each for each in self._skipped.values() if each.is_time(tx.now_ms)]
        for skipped in again:
            skipped.go_back()
        messages_max = 1 if again else self.at_most(RELEASE_MESSAGES_MAX)
        due = _due(tx, self._skipped, messages_max, self.at_most(RELEASE_BYTES_MAX))
        self._tried = [each.key for each in due]
        if due:
            work.released_late_ms.extend(_release(tx, due))
        elif not again:
            self.postpone(tx.now_ms + RETRY_MS)

    def failed(self, failure: JobFailed, now_ms: int) -> None:
        """Skips a message that found no pages, if it was the only one of its piece; the others go on at once."""
        if not failure.no_pages or len(self._tried) != 1:
            super().failed(failure, now_ms)
            return
        self.stepped = False
        self.postpone(now_ms + NO_PAGES_MS)
        self._skipped[self._tried[0][0]].lacks_pages(self._tried[0], now_ms)


class _DueMessage(NamedTuple):
    """One entry of `sched`, copied: later puts move the bytes that a scan returned."""

    key: bytes
    raw: bytes


def _release(tx: Tx, due: list[_DueMessage]) -> list[int]:
    """Moves due messages to their queues, each topic's in order of due time; returns the lateness of each in ms."""
    late_ms: list[int] = []
    gone: Counter[int] = Counter()
    ready: dict[int, list[Outgoing]] = {}
    for key, raw in due:
        clock, due_ms, number, topic_id = SCHED_KEY.unpack(key)
        if due_ms > delay.due_by(tx, clock):
            broken("delayed_never_early", ("sched", key), due_ms=due_ms, clock=clock)
        delay.remove(tx, key)
        if topic_id not in tx.state.topics:
            continue
        gone[topic_id] += 1
        message = delay.read(raw)
        if message is None:
            quarantine.set_aside_pending(tx, topic_id, number, raw)
            continue
        ready.setdefault(topic_id, []).append(message)
        late_ms.append(delay.due_by(tx, clock) - due_ms)
    for topic_id, count in gone.items():
        topic_counts.add(tx, topic_id, delayed=-count)
    for topic_id, messages in ready.items():
        Placing(tx, tx.state.topics[topic_id]).make_visible(list(enumerate(messages)))
    return late_ms


def _due(tx: Tx, skipped: dict[int, Skipped], messages_max: int, bytes_max: int) -> list[_DueMessage]:
    """Due entries from the start of each clock, soonest first, within the limits of one piece and the free room.

    Checks the room for twice their size: each is stored a second time.
    """
    found: list[_DueMessage] = []
    size = 0
    entries = (_due_by(tx, clock, each.start) for clock, each in skipped.items())
    for key, value in heapq.merge(*entries, key=delay.by_due):
        size += len(value)
        size += MESSAGE_BYTES
        if len(found) == messages_max or (found and size > bytes_max) or not tx.room.has(GROW, 2 * size):
            break
        found.append(_DueMessage(key, bytes(value)))
    return found


def _due_by(tx: Tx, clock: int, start: bytes) -> Iterator[delay.Entry]:
    """The due entries of one clock from a key on."""
    until_ms = delay.due_by(tx, clock)
    entries = delay.pending(tx.kv, clock, start)
    return itertools.takewhile(lambda entry: SCHED_KEY.unpack(entry[0])[1] <= until_ms, entries)
