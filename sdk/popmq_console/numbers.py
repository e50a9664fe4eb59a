"""The numbers of the broker: one GetStats at a time however many pages are open, and the history for the charts.

    page, page, page ──▶ stats() ──one GetStats, used again for a while──▶ broker
                     ──▶ history() ──one GetHistory for each topic and group──▶ broker

Both are those that the caller's key may see. Nothing is stored here: the broker keeps an hour of its numbers, and
Prometheus is the place for longer charts.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

import popmq

#: Stats with this many rows are asked for this much more rarely: the broker answers them beside its messages.
ROWS_PER_S = 1000
#: Times `every_s` that a history is used again: a new point comes every 30 s.
HISTORY_TIMES = 5
#: Histories that are used again; beyond them the oldest is asked for anew.
HISTORIES_MAX = 64


class Sums(NamedTuple):
    """The sums of all topics and groups."""

    sent: float  # messages a second, over the last minute
    popped: float
    acked: float
    backlog: int  # unfinished messages of all groups
    in_flight: float | None
    dead: int
    oldest_s: float | None


def backlog(row: popmq.GroupStats) -> int:
    """The number of messages that a group has not finished in a topic, as far as it is known."""
    return row.backlog


def total(values: Iterable[float | None]) -> float | None:
    """Their sum; None if one of them is unknown."""
    found = list(values)
    return None if None in found else sum(value for value in found if value is not None)


def greatest(values: Iterable[float | None]) -> float | None:
    """The greatest, 0 of none; None if one of them is unknown."""
    found = list(values)
    return None if None in found else max((value for value in found if value is not None), default=0.0)


def sums(stats: popmq.Stats) -> Sums:
    """Sums up. Dead letters are counted for each group once, since each of its rows has all of them.

    The age is the greatest one: a mean would hide the one group that does not work.
    """
    groups = stats.groups
    return Sums(
        sum(row.sent_per_s for row in stats.topics),
        sum(row.popped_per_s for row in groups),
        sum(row.acked_per_s for row in groups),
        sum(map(backlog, groups)),
        total(row.in_flight for row in groups),
        sum({row.group: row.dead for row in groups}.values()),
        greatest(row.oldest_age for row in groups),
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
        #: By topic and group: when it was asked for, and the answer.
        self._histories: dict[tuple[str, str], tuple[float, popmq.History]] = {}

    async def stats(self) -> popmq.Stats:
        """The numbers of all topics and groups that the key may see. Raises PopMQError."""
        async with self._lock:
            stats = self._stats
            if stats is None or time.monotonic() - self._asked_s >= self._good_for_s(stats):
                asked_s = time.monotonic()
                stats = self._stats = await self._client.broker.stats()
                # Not when the answer came: it is as old as the question. Without an answer the old one stays old.
                self._asked_s = asked_s
        return stats

    async def history(self, topic: str = "", group: str = "") -> popmq.History:
        """The numbers of the last hour, of a topic, a group, or everything that the key may see. Raises PopMQError."""
        now_s, key = time.monotonic(), (topic, group)
        asked_s, history = self._histories.get(key, (0.0, None))
        if history is None or now_s - asked_s >= HISTORY_TIMES * self._every_s:
            history = await self._client.broker.history(topic, group)
            self._histories.pop(key, None)
            self._histories[key] = now_s, history
            if len(self._histories) > HISTORIES_MAX:
                del self._histories[next(iter(self._histories))]
        return history

    @property
    def pause_s(self) -> float:
        """Seconds between two looks at the numbers, so that a broker with very many topics is asked rarely."""
        return self._good_for_s(self._stats) if self._stats else 0.0

    def forget(self) -> None:
        """Drops the numbers after a change, so that the next page gets new ones."""
        self._stats = None
        self._histories.clear()

    def _good_for_s(self, stats: popmq.Stats) -> float:
        return max(self._every_s / 2, (len(stats.topics) + len(stats.groups)) / ROWS_PER_S)


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
