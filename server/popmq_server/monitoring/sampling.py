"""Samples the numbers of the broker for its history, and keeps the history in a file across a restart.

    every STEP_MS     rates from the counters of the metrics; the other numbers from the engine, PAGE_ROWS at a time
    every SAVE_MS     the file, written by a thread; once more when the broker stops

An engine with a store of its own is not asked while nothing was committed: its numbers are then those of the sample
before, only older.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import replace
from operator import add
from typing import NamedTuple, Protocol

from popmq_server.clock import Clock, pause
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers, R
from popmq_server.contract.commands.queries import Listing
from popmq_server.contract.life import Kept
from popmq_server.contract.operations import A, Query
from popmq_server.errors import Refused
from popmq_server.monitoring import history_format
from popmq_server.monitoring.history import (
    STEP_MS,
    UNKNOWN,
    BrokerPoint,
    History,
    Pair,
    PairPoint,
    TopicPoint,
    oldest,
)
from popmq_server.monitoring.metrics import Metrics

log = logging.getLogger("popmq.history")

SAVE_MS = 60_000
#: Rows that the engine is asked for at once; it answers such a page within some milliseconds.
PAGE_ROWS = 50
#: Between two pages, so that the calls of clients do not wait for a sample: one of 3,000 rows takes two seconds.
PAGE_PAUSE_S = 0.03
#: Things whose numbers are noted in one turn of the event loop: some 1 ms.
NOTED_A_TURN = 100
#: Waits of a thread that moved a fake clock.
SETTLE_S = 10.0
#: The calls that a group's messages are counted by.
_POPS, _ACKS = ("Pop", "Pull"), ("Ack", "UpdateOffsets")


class _Group(NamedTuple):
    """The numbers of a group in a topic; `oldest_ms`: when its oldest message was stored, 0 = it has none."""

    pair: Pair
    backlog: int
    in_flight: float
    retries: int
    dead: int
    oldest_ms: int | None

    def age_s(self, now_ms: int) -> float:
        """The age of its oldest message; 0 = it has none."""
        if self.oldest_ms is None:
            return UNKNOWN
        return max(0, now_ms - self.oldest_ms) / 1000 if self.oldest_ms else 0.0


def _group(row: GroupNumbers) -> _Group:
    return _Group((row.group, row.topic), row.backlog, _float(row.in_flight), row.retries, row.dead, row.oldest_ms)


def _float(number: int | None) -> float:
    return UNKNOWN if number is None else number


class _Since:
    """Increases of counters since the sample before. `totals`: their present values."""

    def __init__(self, before: dict[Hashable, float], over_s: float) -> None:
        self._before, self._over_s = before, over_s
        self.totals: dict[Hashable, float] = {}

    def more(self, key: Hashable, total: float) -> float:
        """A counter that has less than before began again, with its topic or group."""
        self.totals[key] = total
        before = self._before.get(key, 0.0)
        return total - before if total >= before else total

    def per_s(self, key: Hashable, total: float) -> float:
        """Returns the increase of a counter per second."""
        return self.more(key, total) / self._over_s


class SampledEngine(Protocol):
    """The engine."""

    async def ask(self, query: Query[A]) -> A:
        """Answers one query."""


class Sampler:
    """Fills the history of `metrics`. `used_bytes`: of its store. Use it inside one event loop.

    `kept`: None: the history begins with each start.
    """

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        engine: SampledEngine,
        used_bytes: Callable[[], Awaitable[int]],
        kept: Kept | None,
    ) -> None:
        self._clock, self._metrics, self._engine, self._used_bytes, self._kept = (
            clock,
            metrics,
            engine,
            used_bytes,
            kept,
        )
        self._sampled_ms = self._saved_ms = clock.now_ms()
        self._due_ms = self._sampled_ms + STEP_MS
        self._commits = -1
        self._topics: list[tuple[str, float]] = []
        self._groups: list[_Group] = []
        self._used = 0
        self._since = _Since({}, 1)
        self._sampling = asyncio.Lock()
        self._saving: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Reads the file, and samples from now on."""
        if self._kept is not None and (raw := self._kept.read()):
            try:
                self._metrics.history = history_format.read(raw, self._clock.now_ms())
            except ValueError as error:
                log.warning("the charts begin now: the history of before cannot be read, %s", error)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._unsubscribe = self._clock.subscribe(self._moved)
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        while True:
            left_s = self._clock.seconds_to(self._due_ms)
            await pause(STEP_MS / 1000 if left_s is None else left_s)
            await self._look()

    def _moved(self) -> None:
        """Called on the thread that moved a fake clock; returns when the sample that is due is there."""
        looked = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        if threading.get_ident() != self._thread:
            looked.result(SETTLE_S)

    async def _look(self) -> None:
        """Samples, and saves, if it is time for it."""
        async with self._sampling:
            now_ms = self._clock.now_ms()
            if now_ms < self._due_ms:
                return
            self._due_ms = now_ms + STEP_MS
            try:
                await self._sample(now_ms)
            except Exception:  # the broker goes on without this point
                log.exception("a sample failed")
            if now_ms - self._saved_ms >= SAVE_MS:
                self._saved_ms = now_ms
                await self._save()

    async def _sample(self, now_ms: int) -> None:
        try:
            await self._refresh()
        except Refused as refused:  # too busy: the rates are known in any case
            log.debug("the other numbers are those of the sample before: %s", refused)
        since = self._since = _Since(self._since.totals, (now_ms - self._sampled_ms) / 1000)
        self._sampled_ms = now_ms
        history = self._metrics.history
        history.begin(now_ms)
        topics = await self._note_topics(history, since)
        pairs = await self._note_groups(history, since, now_ms)
        history.end(topics, pairs, BrokerPoint(*self._late_s(since), self._used))

    async def _refresh(self) -> None:
        """Asks the engine, unless nothing was committed since it was asked before. Raises Refused."""
        commits = self._metrics.commits
        if commits == self._commits and self._metrics.has_store:
            return
        topics = [
            (row.topic.name, _float(row.bytes))
            async for row in self._pages(queries.Topics())
            if not row.topic.is_dead_letter
        ]
        self._groups = [_group(row) async for row in self._pages(queries.Groups())]
        self._topics, self._used, self._commits = topics, await self._used_bytes(), commits

    async def _pages(self, query: Listing[R]) -> AsyncIterator[R]:
        """The rows of a list, page by page."""
        after = ""
        while True:
            rows = await self._engine.ask(replace(query, after=after, rows_max=PAGE_ROWS))
            for row in rows:
                yield row
            if not (after := rows.after):
                return
            await pause(PAGE_PAUSE_S)

    async def _note_topics(self, history: History, since: "_Since") -> TopicPoint:
        """Notes each topic; returns the sums."""
        messages, sizes, total = self._metrics.messages, self._metrics.bytes, list(TopicPoint())
        for number, (topic, stored) in enumerate(self._topics, 1):
            key = "Send", "", topic
            sent = since.per_s(key, messages.value(*key)), since.per_s(("bytes", *key), sizes.value(*key))
            row = TopicPoint(*sent, stored)
            total = list(map(add, total, row))
            history.note_topic(topic, row)
            if number % NOTED_A_TURN == 0:
                await pause(0)
        return TopicPoint(*total)

    async def _note_groups(self, history: History, since: "_Since", now_ms: int) -> PairPoint:
        """Notes each group in each topic; returns the sums, of dead letters those of each group once."""
        total, dead, oldest_s = list(PairPoint()), dict[str, int](), 0.0
        for number, one in enumerate(self._groups, 1):
            age_s = one.age_s(now_ms)
            popped, acked = self._per_s(since, one.pair, _POPS), self._per_s(since, one.pair, _ACKS)
            row = PairPoint(popped, acked, one.backlog, one.in_flight, one.retries, age_s, one.dead)
            total, oldest_s = list(map(add, total, row)), oldest(oldest_s, age_s)
            dead[one.pair[0]] = one.dead
            history.note_pair(one.pair, row)
            if number % NOTED_A_TURN == 0:
                await pause(0)
        return PairPoint(*total)._replace(oldest_s=oldest_s, dead=sum(dead.values()))

    def _per_s(self, since: "_Since", pair: Pair, methods: tuple[str, str]) -> float:
        """Messages a second by these calls: a group either pops or pulls a topic."""
        messages = self._metrics.messages
        return sum(since.per_s(key, messages.value(*key)) for key in ((method, *pair) for method in methods))

    def _late_s(self, since: "_Since") -> tuple[float, float]:
        """The mean lateness of leases and of delayed messages since the sample before; 0 if none was due.

        Unknown if the engine counts no commits, which say it.
        """
        if not self._metrics.has_store:
            return UNKNOWN, UNKNOWN
        late = {name: since.more(name, total) for name, total in self._metrics.lateness.items()}
        return (
            late["revived_late_ms"] / 1000 / max(1, late["revived"]),
            late["delayed_late_ms"] / 1000 / max(1, late["delayed_released"]),
        )

    async def _save(self) -> None:
        """Writes the file, in a thread; while it runs no sample begins."""
        self._saving = self._loop.run_in_executor(None, self._write)
        await asyncio.shield(self._saving)

    def _write(self) -> None:
        if self._kept is None or not self._metrics.history.number:
            return
        try:
            self._kept.write(history_format.written(self._metrics.history))
        except Exception:  # as a sample: neither the broker nor its stop depends on it
            log.exception("the numbers of the charts are not written")

    async def stop(self) -> None:
        """Ends the sampling, and writes the file for the last time."""
        self._unsubscribe()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._saving is not None:
            await self._saving
        await asyncio.to_thread(self._write)
