"""Periodic maintenance: jobs that run in bounded pieces; a failing job is postponed, and the others run.

    Job.next_ms   when a piece is due                 Timetable.next_ms   the earliest of all: the writer's timer
    Job.step      one piece, in a given transaction   Timetable.run       a piece of each due job (timetable.py)

A piece that raises aborts the transaction that it shares with commands and other jobs. `JobFailed` names the job, and
the item if the job has items (a lease, a deleted topic). `Core` postpones that item, or the whole job, and runs the
others again, so a failing piece does not block them:

    it raised                 POSTPONE_MS, and it is logged
    it met a full map         RETRY_MS, with its limits halved; each committed piece doubles them again
    … with a single item      the item, so long that about one of the postponed items is tried in RETRY_MS

Postponements are in memory only: after a restart each job is tried at once.

See docs/decisions/0013-background-jobs.md.
"""

import abc
import contextlib
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from popmq_server.contract.commands import Check
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.lmdb import MapFull
from popmq_server.errors import NoRoom

#: Delay before a job or item that raised is tried again.
POSTPONE_MS = 60_000
#: Delay before a job or item that found no room is tried again: any ack may free room.
RETRY_MS = 1000
#: Delay of the other items after one that found no pages: such an attempt costs an aborted transaction.
NO_PAGES_MS = 10
#: Maximum number of times the limits of a job are halved: 4,096 members become one.
HALVINGS_MAX = 12


class Timed(NamedTuple):
    """The work of the jobs in one commit batch: on leases, delayed messages and half messages."""

    late_ms: list[int]  # how late each lease was revived
    released_late_ms: list[int]  # how late each delayed message was released
    checks: list[Check]  # checks of half messages, for live producers
    given_up: list[str]  # half messages that were given up, one sentence each


class JobFailed(Exception):
    """A piece raised: the transaction must be aborted. `item`: the failed item of the job; None = the whole job.

    `full`: it found no room; `no_pages`: a put found no page, or no adjacent ones.
    """

    def __init__(self, job: "Job", item: Hashable, *, full: bool, no_pages: bool = False) -> None:
        named = item.hex() if isinstance(item, bytes) else item
        super().__init__(f"{job.name} {named}" if item is not None else job.name)
        self.job = job
        self.item = item
        self.full = full
        self.no_pages = no_pages


class Skipped:
    """The place of a job in an ordered table when items of it wait: it goes on after them, and tries them again.

        keys    ▪ waits    ▪ waits    ▪ waits    │ start: the next items
                         ▲ turn: tried next             it moves on with each try, after the last one to the first

    An item waits for one of two reasons:

        room            there is none for it, perhaps for smaller items: all items after `turn` are tried again
        adjacent pages  only the attempt to store it shows that they are missing, and a failed attempt costs a
                        transaction: one item is tried, and if it fails again the job goes on where it was
    """

    def __init__(self, first: bytes = b"") -> None:
        """`first`: a key before all items."""
        #: The key at which the job goes on.
        self.start = self._first = first
        self._turn = self._end = first
        self._again_ms = 0

    @property
    def any_lacks_pages(self) -> bool:
        """Whether an item may wait for adjacent pages."""
        return self._turn > self._first

    def lacks_room(self, key: bytes, now_ms: int) -> None:
        """Goes on after an item for which there is no room."""
        self.start = key + b"\0"
        self._again_ms = now_ms + RETRY_MS

    def lacks_pages(self, key: bytes, now_ms: int) -> None:
        """Goes on after an item that found no adjacent pages, and after all that have waited before."""
        self._turn = key + b"\0"
        self.start = max(self._turn, self._end)
        self._again_ms = now_ms + RETRY_MS

    def next_ms(self) -> int | None:
        """When items are tried again; None if none waits."""
        return self._again_ms if self.start > self._first else None

    def is_time(self, now_ms: int) -> bool:
        """Whether to try items again; if so, the next time is RETRY_MS later."""
        if self.start == self._first or now_ms < self._again_ms:
            return False
        self._again_ms = now_ms + RETRY_MS
        return True

    def go_back(self) -> None:
        """Goes back to the item whose turn it is."""
        if self._turn >= self.start:
            self._turn = self._first
        self._end, self.start = self.start, self._turn


class Job(abc.ABC):
    """One kind of periodic work."""

    #: For logs and the metric of failures.
    name: str
    #: The databases of which a row, when it is written, can change what `next_ms` returns. Besides, only a piece of the
    #: job, its failure, and the time at which it is due do. None: something else does, and each commit asks.
    moved_by: frozenset[str] | None = None

    def __init__(self) -> None:
        #: Until when, by item; None for the whole job.
        self.postponed: dict[Hashable, int] = {}
        self._halvings = 0
        #: Whether a piece of it is in the transaction.
        self.stepped = False
        #: The item of the current piece, if the piece has only this one and cannot be smaller.
        self.alone: Hashable = None

    @abc.abstractmethod
    def next_ms(self, tx: Tx) -> int | None:
        """When the next piece is due; None: there is none."""

    @abc.abstractmethod
    def step(self, tx: Tx, work: Timed) -> None:
        """Runs one bounded piece. An exception postpones the job, or the item that `apart` names."""

    def at_most(self, bound: int) -> int:
        """A limit of this job, halved once for each time it met a full map; at least 1."""
        return max(1, bound >> self._halvings)

    def postpone(self, until_ms: int, item: Hashable = None) -> None:
        """Postpones the job, or the item, until this time."""
        self.postponed[item] = until_ms

    def not_before(self, item: Hashable = None) -> int:
        """When the postponement of the job, or of the item, ends; 0 = it is not postponed."""
        return self.postponed.get(item, 0)

    def waits(self, tx: Tx, item: Hashable = None) -> bool:
        """Whether the job, or the item, is still postponed. Drops a postponement that has ended."""
        if not self.postponed:
            return False
        if self.postponed.get(item, 0) > tx.now_ms:
            return True
        self.postponed.pop(item, None)
        return False

    @contextlib.contextmanager
    def apart(self, item: Hashable = None) -> Iterator[None]:
        """Attributes any exception in this context to the item: raises JobFailed."""
        try:
            yield
        except JobFailed:
            raise
        except Exception as error:
            no_pages = isinstance(error, MapFull)
            raise JobFailed(self, item, full=no_pages or isinstance(error, NoRoom), no_pages=no_pages) from error

    def failed(self, failure: JobFailed, now_ms: int) -> None:
        """Postpones the failed item. After a full map it postpones the whole job and halves its limits, until they are
        at the minimum.
        """
        self.stepped = False
        self.postponed = {item: until_ms for item, until_ms in self.postponed.items() if until_ms > now_ms}
        if failure.no_pages and self.alone is not None:
            self.postpone(now_ms + RETRY_MS * (1 + len(self.postponed)), self.alone)
            self.postpone(now_ms + NO_PAGES_MS)
        elif failure.full and self._halvings < HALVINGS_MAX:
            self._halvings += 1
            self.postpone(now_ms + RETRY_MS)
        else:
            self.postpone(now_ms + (RETRY_MS if failure.full else POSTPONE_MS), failure.item)

    def begin(self, tx: Tx) -> None:
        """A piece of it begins in the transaction. Its `step` saves what it changes in memory (Undo.save), such as when
        the next piece is due and where it begins: after an abort the piece runs again.
        """
        tx.state.undo.save(self, "stepped")
        self.stepped, self.alone = True, None

    def committed(self) -> None:
        """After the commit of its piece: doubles the limits again, since a piece of this size fits."""
        if self.stepped and self._halvings:
            self._halvings -= 1
        self.stepped = False
