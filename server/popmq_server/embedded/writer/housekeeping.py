"""Maintenance jobs: removal of deleted topics and groups, sweeps, trims, moves of groups past dropped chunks; and once
a minute retention, lite topic and size checks, the clock of schedules, and removal of old request numbers, unique ids,
ended transactions, stages and idle subscriptions.

Each is a separate job (jobs.py), so a failing job does not stop the others. Each piece does a bounded amount of work in
the transaction that it is given; the next piece runs in a later transaction, with the commands that wait by then.

The position of the last piece is kept in memory only; an aborted transaction puts it back. A piece repeated after a
restart finds less to do.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from popmq_server.embedded.rules.delivery import sweep
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.operate import idle_subscriptions, purge
from popmq_server.embedded.rules.retention import by_size, floors, retention
from popmq_server.embedded.rules.schedules import occurrences
from popmq_server.embedded.rules.sending import dedup, stages, transaction, unique
from popmq_server.embedded.state.jobs import Job, Timed
from popmq_server.embedded.state.tx import Tx

log = logging.getLogger("popmq.clock")

TICK_MS = 60_000
#: A round of retention begins early after this many bytes of messages: the list of as many free pages has 32 KiB.
ROUND_BYTES = 16 << 20
#: The pause between two rounds then: at least, and for each topic, which a round looks at in some 30 µs.
ROUND_PAUSE_MS, PAUSE_PER_TOPIC_MS = 1000, 6
#: A broker's time and the machine's clock that are further apart than this are reported.
APART_MS = 60_000


def jobs(now_ms: int) -> tuple[Job, ...]:
    """All maintenance jobs. Removal comes first: deleted topics may be large."""
    minutely: tuple[tuple[str, Walk], ...] = (
        ("request numbers", dedup.Requests()),
        ("ended transactions", Stateless(transaction.forget)),
        ("stages", stages.Tidying()),
        ("unique ids", unique.ForgettingIds()),
        ("lite topics", lite_topics.IdleLiteTopics()),
        ("clock of schedules", Stateless(occurrences.turn)),
        ("clock of the machine", ClockWatch()),
        ("sizes of topics", by_size.Watching()),
        ("idle subscriptions", idle_subscriptions.Expiry(now_ms)),
    )
    return (
        Purging(),
        Sweeping(),
        Trimming(),
        Following(),
        Retaining(now_ms),
        *(Minutely(name, walk, now_ms) for name, walk in minutely),
    )


class Walk(Protocol):
    """A walk in pieces. It saves where the next one begins (Undo.save): an aborted piece runs again."""

    def run(self, tx: Tx) -> bool:
        """Runs one piece; returns whether there is more to do now."""


class Stateless:
    """A walk whose pieces always begin at the first row."""

    def __init__(self, piece: Callable[[Tx], bool]) -> None:
        self.run = piece


def _soonest(job: Job, tx: Tx, items: Iterable[Hashable]) -> int | None:
    """When the first item is due: now, or when its postponement ends; None if there are no items."""
    return min((max(tx.now_ms, job.not_before(item)) for item in items), default=None)


class Purging(Job):
    """Removes the records of deleted topics and groups, one piece of one of them at a time.

    It begins after the commit of the delete, when all rows to be removed are in the store.
    """

    name = "removal of deleted topics and groups"
    moved_by = frozenset({"purge"})

    def next_ms(self, tx: Tx) -> int | None:
        return _soonest(self, tx, tx.state.purges)

    def step(self, tx: Tx, work: Timed) -> None:
        deleted_now = {entity_id for entity_id, _ in tx.state.purges.changed_items()}
        for entity_id, kind in list(tx.state.purges.items()):
            if entity_id not in deleted_now and not self.waits(tx, entity_id):
                with self.apart(entity_id):
                    purge.step(tx, entity_id, kind, self.at_most(purge.PURGE_KEYS_MAX))
                return


class Sweeping(Job):
    """Continues resets and consume mode switches in the background, so they finish without their caller."""

    name = "sweep"
    moved_by = frozenset({"sweep"})

    def next_ms(self, tx: Tx) -> int | None:
        return _soonest(self, tx, tx.state.sweeps)

    def step(self, tx: Tx, work: Timed) -> None:
        for where in list(tx.state.sweeps):
            if not self.waits(tx, where):
                with self.apart(where):
                    sweep.step(tx, where)
                return


class Trimming(Job):
    """Trims topics to their size limit."""

    name = "trim"

    def next_ms(self, tx: Tx) -> int | None:
        return tx.now_ms if tx.state.trims else None

    def step(self, tx: Tx, work: Timed) -> None:
        by_size.trim(tx)


class Following(Job):
    """Moves groups past dropped chunks that they had not read."""

    name = "groups before dropped chunks"

    def next_ms(self, tx: Tx) -> int | None:
        return tx.now_ms if tx.state.lagging else None

    def step(self, tx: Tx, work: Timed) -> None:
        floors.go_on(tx, self.at_most(floors.POSITIONS_MAX))


class Retaining(Job):
    """Runs rounds of retention: once a minute, and earlier after ROUND_BYTES of messages.

    Rounds a minute apart would free the pages of a minute at once. Each commit that then looks for adjacent pages reads
    and writes the list of all free pages: a broker that took 35,000 messages/s fell to 10,000. Rounds that follow one
    another closely free few pages, which the next messages take. The pause grows with the number of topics, so that
    looking at them takes half a percent of the writer's time at most. With few messages the rounds stay a minute apart:
    a round ends the chunk that small commits share.
    """

    name = "retention"
    moved_by = frozenset({"meta"})  # the row of the counters has the end of the log

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._round = retention.Retention(self)
        #: When the next round begins, or its next piece: after a minute; after ROUND_BYTES.
        self._due_ms, self._soon_ms = now_ms + TICK_MS, now_ms + ROUND_PAUSE_MS
        #: The end of the log at the last piece of the last round.
        self._position = 0

    def next_ms(self, tx: Tx) -> int | None:
        stored = tx.state.counters[""].position - self._position
        return self._soon_ms if stored >= ROUND_BYTES else self._due_ms

    def step(self, tx: Tx, work: Timed) -> None:
        tx.state.undo.save(self, "_due_ms", "_soon_ms", "_position")
        position = tx.state.counters[""].position
        if self._round.run(tx):
            self._due_ms = self._soon_ms = tx.now_ms
            return
        self._position = position
        pause_ms = max(ROUND_PAUSE_MS, self._round.topics * PAUSE_PER_TOPIC_MS)
        self._due_ms, self._soon_ms = tx.now_ms + TICK_MS, tx.now_ms + min(TICK_MS, pause_ms)


class Minutely(Job):
    """Starts once a minute and runs in each transaction until the walk has no more to do.

    It then pauses for a minute, because some pieces visit entries again that they must keep.
    """

    moved_by = frozenset()

    def __init__(self, what: str, walk: Walk, now_ms: int) -> None:
        super().__init__()
        self.name = what
        self._walk = walk
        self._due_ms = now_ms + TICK_MS

    def next_ms(self, tx: Tx) -> int | None:
        return self._due_ms

    def step(self, tx: Tx, work: Timed) -> None:
        tx.state.undo.save(self, "_due_ms")
        more = self._walk.run(tx)
        self._due_ms = tx.now_ms if more else tx.now_ms + TICK_MS


class ClockWatch:
    """Logs that the machine's clock was set while the broker ran; once, until both clocks agree again."""

    def __init__(self) -> None:
        self.told = False

    def run(self, tx: Tx) -> bool:
        apart_ms = tx.wall_ms - tx.now_ms
        if abs(apart_ms) > APART_MS and not self.told:
            log.warning(
                "the machine's clock was set, it is %.0f s %s the broker's time: messages with a deliver_at are late; "
                "once the clock is right, a restart takes its time",
                abs(apart_ms) / 1000,
                "ahead of" if apart_ms > 0 else "behind",
            )
        tx.state.undo.save(self, "told")
        self.told = abs(apart_ms) > APART_MS
        return False
