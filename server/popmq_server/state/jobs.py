"""Periodic maintenance: jobs that run in bounded pieces, each postponed by itself when it fails.

    Job.next_ms   when there is a piece to do         Timetable.next_ms   the soonest of all: the writer's timer
    Job.step      one piece, in a given transaction   Timetable.run       a piece of each job that is due (timetable.py)

A piece that raises aborts the transaction that it shares with commands and other jobs. `JobFailed` names the job, and
the item of it where the job has items (a lease, a deleted topic). That item, or the whole job, is postponed and the
others run again, so no piece can hold up another for ever:

    it raised              POSTPONE_MS, and it is reported
    it met a full map      RETRY_MS, with half of its bounds; after each piece that was committed the bounds grow again

Postponements are in memory only: a restart tries at once.
"""

import abc
import contextlib
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from popmq_server.commands import Check
from popmq_server.errors import NoRoom
from popmq_server.state.tx import Tx
from popmq_server.storage.lmdb import MapFull

#: What raised is tried again after so long.
POSTPONE_MS = 60_000
#: What found no room is tried again after so long: room may come with any ack.
RETRY_MS = 1000
#: The bounds of a job are halved at most so often: 4,096 members are then one.
HALVINGS_MAX = 12


class Timed(NamedTuple):
    """What the jobs did in one commit group: to leases, delayed messages and half messages."""

    late_ms: list[int]  # how late each revived lease was
    fired_late_ms: list[int]  # the same of each delayed message
    checks: list[Check]  # for live producers
    given_up: list[str]  # half messages, one sentence each


class JobFailed(Exception):
    """A piece raised: the transaction cannot be used. `item`: of the job what failed, None = all of it."""

    def __init__(self, job: "Job", item: Hashable, *, full: bool) -> None:
        super().__init__(f"{job.name} {item}" if item is not None else job.name)
        self.job = job
        self.item = item
        self.full = full


class Job(abc.ABC):
    """One kind of periodic work."""

    #: For reports.
    name: str

    def __init__(self) -> None:
        self._not_before: dict[Hashable, int] = {}
        self._halvings = 0
        self._stepped = False

    @abc.abstractmethod
    def next_ms(self, tx: Tx) -> int | None:
        """When there is a piece to do; None: nothing waits for the time."""

    @abc.abstractmethod
    def step(self, tx: Tx, did: Timed) -> None:
        """One bounded piece. Whatever it raises postpones the job, or the item that `apart` names."""

    def at_most(self, bound: int) -> int:
        """A bound of this job, halved as often as it met a full map; at least 1."""
        return max(1, bound >> self._halvings)

    def postpone(self, until_ms: int, item: Hashable = None) -> None:
        """Nothing of the job, or of the item, is tried before this time."""
        self._not_before[item] = until_ms

    def not_before(self, item: Hashable = None) -> int:
        """Until when it is postponed; 0 = it is not."""
        return self._not_before.get(item, 0)

    def waits(self, tx: Tx, item: Hashable = None) -> bool:
        """Whether it is postponed still. What is over is forgotten, so items that are gone do not add up."""
        if not self._not_before:
            return False
        if self._not_before.get(item, 0) > tx.now_ms:
            return True
        self._not_before.pop(item, None)
        return False

    @contextlib.contextmanager
    def apart(self, item: Hashable = None) -> Iterator[None]:
        """Whatever is raised in here is the fault of this item, and of no other. Raises JobFailed."""
        try:
            yield
        except JobFailed:
            raise
        except Exception as error:
            raise JobFailed(self, item, full=isinstance(error, MapFull | NoRoom)) from error

    def failed(self, failure: JobFailed, now_ms: int) -> None:
        """Puts off what failed. A full map puts off the job, until it was tried with the smallest bounds."""
        self._stepped = False
        if failure.full and self._halvings < HALVINGS_MAX:
            self._halvings += 1
            self.postpone(now_ms + RETRY_MS)
        else:
            self.postpone(now_ms + (RETRY_MS if failure.full else POSTPONE_MS), failure.item)

    def begun(self) -> None:
        """A piece of it is in the transaction."""
        self._stepped = True

    def committed(self) -> None:
        """The transaction was committed: a piece of this size fits."""
        if self._stepped and self._halvings:
            self._halvings -= 1
        self._stepped = False
