"""The writer thread: takes the waiting commands, runs them as one commit batch, answers after the commit.

Commands wait in three lanes. A batch takes acks first, then sends, then pops, so pops never delay an ack. No timer
delays a batch: commands that arrive while a commit is being synced form the next one, so batches grow with the load and
a single caller is served at once. The thread sleeps until a batch may begin or a job is due, so an idle broker uses no
CPU.

A batch begins when a turn of the event loop brought no further command (`Gathering`). While turns bring more, a batch
would be small, and the thread would compete with the loop for the interpreter, which it releases in each call of LMDB.
After a batch of one command the next one is expected to come alone, and begins after the turn that brought it. A Pop
that comes while one Send waits belongs to it (loop/long_poll.py): the two count as one.

See docs/decisions/0003-one-writer-group-commit.md.
"""

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from popmq_server.clock import Clock, wait_until
from popmq_server.contract.operations import LANE_POP, LANE_SEND, Operation
from popmq_server.embedded.writer.batch import NEXT_BATCH, Committed
from popmq_server.embedded.writer.core import Core
from popmq_server.embedded.writer.lone import Lone
from popmq_server.errors import unavailable

log = logging.getLogger("popmq.writer")

#: A batch begins after this many turns of the event loop, or with this many bytes of sends, at the latest.
GATHER_TURNS_MAX = 8
GATHER_BYTES_MAX = 128 << 10
#: Limits of one commit batch.
BATCH_COMMANDS_MAX = 1000
BATCH_BYTES_MAX = 16 << 20
#: Places in a batch that a lane leaves to each later lane with waiting commands.
BATCH_SHARE = 64
#: Maximum sleep of the thread, in seconds.
IDLE_S = 3600.0
#: How long `settle` waits for the thread, in seconds: no commit and no job takes so long.
SETTLE_S = 60.0

#: A ticket: `submit` takes it, and it comes back with the answer.
T = TypeVar("T")
#: Passes the answers of a commit batch to the callers: called with their tickets.
Deliver = Callable[[list[T], Committed], None]
#: A command that waits.
Waiting = tuple[Operation[object], T]
#: Called with a function, and calls it after the current turn of the event loop.
Soon = Callable[[Callable[[], None]], object]


def at_once(call: Callable[[], None]) -> None:
    """Soon without an event loop."""
    call()


class Gathering:
    """Tells when the commands that arrived may begin a batch. Its caller has the lock."""

    def __init__(self) -> None:
        #: Whether the commands may begin a batch.
        self.done = False
        self._goes_on = self._more = False
        self._turns = self._bytes = self._commands = 0
        #: Whether the last batch was one command: such callers come one after the other.
        self.one_by_one = False

    def arrived(self, size: int, *, joins: bool = False) -> bool:
        """Notes a command with `size` bytes of messages; `joins`: it belongs to one that waits. Returns whether
        `turned` has to be called after this turn.
        """
        self._more = True
        self._bytes += size
        self._commands += not joins
        begins = not self._goes_on
        self._goes_on = True
        return begins

    def turned(self) -> bool:
        """After a turn of the event loop: returns whether it has to be called after the next turn as well."""
        alone = self.one_by_one and self._commands == 1
        if self._more and not alone and self._turns < GATHER_TURNS_MAX and self._bytes < GATHER_BYTES_MAX:
            self._more = False
            self._turns += 1
            return True
        self._goes_on, self.done, self._turns = False, True, 0
        return False

    def taken(self, *, all_: bool) -> None:
        """A batch was taken; `all_`: nothing waits any more."""
        self.one_by_one = self._commands == 1
        self._bytes = self._commands = 0
        self.done = not all_


class Writer(Generic[T]):
    """Owns the thread. `submit` calls `soon`, from its own thread. The writer thread calls `failed`, and `deliver`
    except for commands submitted after `stop`.
    """

    def __init__(
        self,
        core: Core,
        clock: Clock,
        deliver: Deliver[T],
        failed: Callable[[BaseException], None],
        soon: Soon = at_once,
        here: Deliver[T] | None = None,
    ) -> None:
        """`here`: delivers the answer of a command that ran on the thread of `soon`; None: none runs there."""
        self._core = core
        self._clock = clock
        self._deliver = deliver
        self._failed = failed
        self._soon = soon
        self._here = here
        self._lone = None if here is None else Lone(core)
        self._folds = None if core.store.folding is None else core.folds
        self._lanes: tuple[deque[Waiting[T]], ...] = (deque(), deque(), deque())
        self._lock = threading.RLock()
        self._event = threading.Condition(self._lock)
        self._gathering = Gathering()
        self._busy = self._asleep = False
        #: When the sleeping thread wakes for a job or a fold; None: only for commands.
        self._until_ms: int | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="popmq-writer", daemon=True)
        self._unsubscribe = clock.subscribe(self.settle)

    def start(self) -> None:
        self._thread.start()

    def submit(self, command: Operation[object], ticket: T) -> None:
        """Queues a command; `deliver` gets the ticket with the answer.

        After `stop` began, the answer is UNAVAILABLE at once, so the caller can retry at another broker or later.
        """
        with self._lock:  # a third of the cost of the condition
            if not self._stopping:
                self._lanes[lane := command.lane].append((command, ticket))
                joins = lane == LANE_POP and len(self._lanes[LANE_SEND]) == len(self._lanes[LANE_POP]) == 1
                if self._gathering.arrived(getattr(command, "bytes", 0) if lane == LANE_SEND else 0, joins=joins):
                    self._soon(self.turned)
                return
        self._deliver([ticket], Committed([unavailable("the broker is stopping")], set(), False))

    def at_once(self, command: Operation[object], count: Callable[[Committed], None]) -> Committed | None:
        """Runs a command on this thread, the event loop's, if nothing else waits and those before came one by one.

        None: it has had no effect; `submit` it. `count` is called while the writer thread begins nothing.
        """
        if self._lone is None:
            return None
        with self._lock:
            acks, sends, pops = self._lanes
            if acks or sends or pops or not self._asleep or not self._gathering.one_by_one or self._stopping:
                return None
            if self._due():
                return None
            committed = self._lone.run([command])
            if committed is not None:
                self._tell_due()
                count(committed)
            return committed

    def turned(self) -> None:
        """After a turn of the event loop: wakes the thread if a batch may begin."""
        with self._lock:
            if self._gathering.turned():
                self._soon(self.turned)
            elif self._asleep and any(self._lanes) and not self._ran_here():
                self._asleep = False
                self._event.notify_all()

    def _ran_here(self) -> bool:
        """Runs the commands that wait on this thread, the event loop's, if they may (lone.py). Returns whether none is
        left. The writer thread needs the lock to begin anything.
        """
        if self._lone is None or self._here is None or self._due() or self._stopping:
            return False
        waiting = [pair for lane in self._lanes for pair in lane]
        committed = self._lone.run([command for command, _ in waiting])
        if committed is None:
            return False
        self._tell_due()
        self._here(*self._answers(self._take(), committed))
        return not any(self._lanes)

    def _tell_due(self) -> None:
        """After a batch on this thread: wakes the other one if a job is due before it would wake."""
        due_ms = self._core.next_due_ms
        if due_ms is not None and (self._until_ms is None or due_ms < self._until_ms):
            self._event.notify_all()

    def settle(self) -> None:
        """Returns when no command waits and nothing is due, or the thread has ended. A fake clock calls it after each
        move. Raises TimeoutError after SETTLE_S.
        """
        with self._event:
            self._gathering.done = True
            self._event.notify_all()
            if not self._event.wait_for(lambda: self._quiet() or not self._thread.is_alive(), SETTLE_S):
                raise TimeoutError(f"the writer has not finished what was due after {SETTLE_S:.0f} s")

    def _quiet(self) -> bool:
        """Whether no command waits or runs, and nothing is due."""
        return not self._busy and not any(self._lanes) and not self._due()

    def _wake_ms(self) -> int | None:
        """When a job or a fold is due."""
        due_ms = self._core.next_due_ms
        return due_ms if self._folds is None else self._folds.sooner(due_ms)

    def _due(self) -> bool:
        """Whether a job or a fold is due."""
        due_ms = self._core.next_due_ms
        if self._folds is not None:
            due_ms = self._folds.sooner(due_ms)
        return due_ms is not None and due_ms <= self._clock.now_ms()

    def stop(self) -> None:
        """Answers the waiting commands, then ends the thread."""
        with self._event:
            self._stopping = True
            self._event.notify_all()
        self._thread.join()
        self._unsubscribe()

    def _loop(self) -> None:
        """The thread's main loop. It ends on `stop`, or after a failed commit or any other exception."""
        try:
            while (batch := self._next_batch()) is not None:
                self._run(batch)
            if self._folds is not None:
                self._folds.last()
        except BaseException as error:
            log.critical("the writer ends: %s", error)
            self._failed(error)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Answers the commands that still wait, and all later ones, with UNAVAILABLE."""
        with self._event:
            self._busy, self._stopping = False, True
            left = [ticket for lane in self._lanes for _, ticket in lane]
            for lane in self._lanes:
                lane.clear()
            self._event.notify_all()
        if left:
            refused = unavailable("the broker is stopping after a failed commit")
            self._deliver(left, Committed([refused] * len(left), set(), False))

    def _run(self, batch: list[Waiting[T]]) -> None:
        """Runs one batch and delivers its answers; after a failed commit every caller gets UNAVAILABLE.

        Deferred commands go into the next batch; their callers keep waiting.
        """
        try:
            if self._lone is not None:
                self._lone.raise_fault()
            committed = self._core.run([command for command, _ in batch])
        except BaseException:
            refused = unavailable("a commit failed, and the broker stops: no request of its batch was answered OK")
            self._deliver([ticket for _, ticket in batch], Committed([refused] * len(batch), set(), False))
            raise
        if self._lone is not None and len(batch) == 1:
            self._lone.took(committed.seconds)
        self._deliver(*self._answers(batch, committed))

    def _answers(self, batch: list[Waiting[T]], committed: Committed) -> tuple[list[T], Committed]:
        """The tickets of a batch, and their answers; what did not run waits for the next batch."""
        tickets = [ticket for _, ticket in batch]
        ran = [result is not NEXT_BATCH for result in committed.results]
        if all(ran):
            return tickets, committed
        self._put_off([pair for pair, did in zip(batch, ran, strict=True) if not did])
        results = list(itertools.compress(committed.results, ran))
        return list(itertools.compress(tickets, ran)), committed._replace(results=results)

    def _put_off(self, pairs: list[Waiting[T]]) -> None:
        """Queues deferred commands before the others of their lane."""
        with self._event:
            self._lanes[LANE_POP].extendleft(reversed(pairs))
            self._gathering.done = True

    def _next_batch(self) -> list[Waiting[T]] | None:
        """Sleeps until there is a command or a due job; None when the broker stops and all commands are answered."""
        with self._event:
            self._busy = False
            while not self._begins() and not self._due():
                if self._stopping:
                    return None
                self._event.notify_all()
                self._asleep, self._until_ms = True, self._wake_ms()
                wait_until(self._event, self._clock, self._until_ms, IDLE_S)
                self._asleep = False
            self._busy = True
            return self._take()

    def _begins(self) -> bool:
        """Whether commands wait that may begin a batch."""
        return (self._gathering.done or self._stopping) and any(self._lanes)

    def _take(self) -> list[Waiting[T]]:
        """Takes a batch from the lanes in order, each with its share, limited in commands and in bytes of sends."""
        batch: list[Waiting[T]] = []
        if sum(map(len, self._lanes)) == 1:  # as with one caller
            batch.append(next(filter(None, self._lanes)).popleft())
            self._gathering.taken(all_=True)
            return batch
        size = 0
        for number, lane in enumerate(self._lanes):
            if not lane:
                continue
            kept = sum(min(len(later), BATCH_SHARE) for later in self._lanes[number + 1 :])
            while lane and len(batch) < BATCH_COMMANDS_MAX - kept:
                if number == LANE_SEND and size > BATCH_BYTES_MAX:
                    break
                command, ticket = lane.popleft()
                size += getattr(command, "bytes", 0) if number == LANE_SEND else 0
                batch.append((command, ticket))
        self._gathering.taken(all_=not any(self._lanes))
        return batch
