"""The numbers of the broker: one GetStats at a time however many pages are open, and an hour of samples.

    page, page, page ──▶ stats() ──one GetStats, used again for a while──▶ broker
    every SAMPLE_S   ──▶ stats() ──▶ samples: sums over all topics and groups, for the charts

The sums are those that the caller's key may see. Nothing is stored: after a restart the charts begin again, and
Prometheus is the place for longer ones.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import popmq

SAMPLE_S = 5.0
HOUR_S = 3600.0
#: Stats with this many rows are asked for this much more rarely: the broker answers them beside its messages.
ROWS_PER_S = 1000


class Sample(NamedTuple):
    """The sums of all topics and groups at one time (seconds since 1970 UTC)."""

    time_s: float
    sent: float  # messages a second, over the last minute
    popped: float
    acked: float
    backlog: int  # unfinished messages of all groups
    in_flight: int
    dead: int
    oldest_s: float
    used: int  # bytes of the store
    free: int  # bytes of the disk
    revived: int = 0  # since the broker's start: leases that ended, and how late in sum
    revived_late_ms: int = 0
    released: int = 0  # delayed messages that became visible, and how late in sum
    released_late_ms: int = 0
    leases_late_s: float = 0.0  # the mean since the sample before
    delayed_late_s: float = 0.0


def backlog(row: popmq.GroupStats) -> int:
    """The number of messages that a group has not finished in a topic."""
    return row.ready + row.retry + row.backoff + row.in_flight + row.waiting


def sample(stats: popmq.Stats, time_s: float) -> Sample:
    """Sums up. Dead letters are counted for each group once, since each of its rows has all of them.

    The age is the greatest one: a mean would hide the one group that does not work.
    """
    groups, store = stats.groups, stats.store
    return Sample(
        time_s,
        sum(row.sent_per_s for row in stats.topics),
        sum(row.popped_per_s for row in groups),
        sum(row.acked_per_s for row in groups),
        sum(map(backlog, groups)),
        sum(row.in_flight for row in groups),
        sum({row.group: row.dead for row in groups}.values()),
        max((row.oldest_age for row in groups), default=0.0),
        store.used_bytes,
        store.disk_free_bytes,
        store.revived,
        store.revived_late_ms,
        store.delayed_released,
        store.delayed_late_ms,
    )


def with_lateness(latest: Sample, before: Sample) -> Sample:
    """The sample with the mean lateness since the one before; 0 without an event, and after a restart."""

    def mean_s(count: int, late_ms: int) -> float:
        return max(late_ms, 0) / count / 1000 if count > 0 else 0.0

    return latest._replace(
        leases_late_s=mean_s(latest.revived - before.revived, latest.revived_late_ms - before.revived_late_ms),
        delayed_late_s=mean_s(latest.released - before.released, latest.released_late_ms - before.released_late_ms),
    )


class Numbers:
    """The numbers for one login: those that its key may see.

    `every_s`: seconds that an answer is used again. With many topics it is used longer, because the broker answers a
    GetStats beside its messages, in proportion to the rows.
    """

    def __init__(self, client: popmq.AsyncClient, every_s: float) -> None:
        self._client = client
        self._every_s = every_s
        self._lock = asyncio.Lock()
        self._stats: popmq.Stats | None = None
        self._asked_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.samples: deque[Sample] = deque(maxlen=int(HOUR_S / SAMPLE_S))

    async def stats(self) -> popmq.Stats:
        """The numbers of all topics and groups that the key may see. Raises PopMQError."""
        self._collect()
        async with self._lock:
            stats = self._stats
            if stats is None or time.monotonic() - self._asked_s >= self._good_for_s(stats):
                asked_s = time.monotonic()
                stats = self._stats = await self._client.stats()
                # Not when the answer came: it is as old as the question. Without an answer the old one stays old.
                self._asked_s = asked_s
                self._keep(sample(stats, time.time()))
        return stats

    @property
    def pause_s(self) -> float:
        """Seconds between two looks at the numbers, so that a broker with very many topics is asked rarely."""
        return self._good_for_s(self._stats) if self._stats else 0.0

    def forget(self) -> None:
        """Drops the numbers after a change, so that the next page gets new ones."""
        self._stats = None

    def _good_for_s(self, stats: popmq.Stats) -> float:
        return max(self._every_s / 2, (len(stats.topics) + len(stats.groups)) / ROWS_PER_S)

    def _keep(self, latest: Sample) -> None:
        before = self.samples[-1] if self.samples else latest
        if before is latest or latest.time_s - before.time_s >= SAMPLE_S * 0.9:
            self.samples.append(with_lateness(latest, before))

    def _collect(self) -> None:
        """Starts collecting, once; it ends with the login.

        It continues without an open page, so that the charts have no gap when a user returns.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._sampling())

    async def _sampling(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            with contextlib.suppress(popmq.PopMQError):  # a gap in the charts; the page itself says what is wrong
                await self.stats()

    async def stop(self) -> None:
        """Ends the collection."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


def by_topic(rows: Iterable[popmq.GroupStats]) -> dict[str, list[popmq.GroupStats]]:
    """The rows of groups by topic."""
    found: dict[str, list[popmq.GroupStats]] = {}
    for row in rows:
        found.setdefault(row.topic, []).append(row)
    return found


def by_group(rows: Iterable[popmq.GroupStats]) -> dict[str, list[popmq.GroupStats]]:
    """The rows of groups by group."""
    found: dict[str, list[popmq.GroupStats]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return found
