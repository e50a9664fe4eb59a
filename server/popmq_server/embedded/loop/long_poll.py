"""Long polls: parks calls that found nothing, wakes them after commits, and hands unused wakes on.

A Pop that found nothing parks only if nothing became deliverable since its look: each (group, topic) has a generation,
which a commit that makes a message deliverable raises. Comparing the generation, parking and waking all happen in the
event loop, so no wake is lost between the comparison and the parking. A commit wakes one waiter for each group.
A woken Pop that leaves messages wakes the next through its own commit; a cancelled one hands the wake on. Pops
of specific queues and WaitAvailable use a separate lot, in which all waiters are woken.

A Send wakes waiters of its topic before its commit (`wake_early`), so their looks are in the same commit batch, behind
it: one commit stores and leases a message. A Pop that took all there was has also seen all that the others could find,
so that commit wakes nobody else of its group (`Tx.served`). A Pop that found nothing, as with a filter, is woken by
commits again.

Why no wake is lost: a Pop notes the generation, runs in some commit N and finds nothing. It has seen all that became
deliverable up to N, since sends and releases of a group run before its pops. Whatever commit N + 1 makes deliverable
raises the generation in a later turn of the loop: either before the Pop compares it, and then it does not park, or
after it parked, and then it is in the lot that is woken.

A parked call holds no read transaction and no thread; each lot has one timer, for its earliest deadline.

See docs/decisions/0022-long-polls.md.
"""

import asyncio
import heapq
import itertools
from collections import OrderedDict
from collections.abc import Collection

from popmq_server.clock import Clock
from popmq_server.contract.commands import Popped
from popmq_server.embedded.state.lite_watch import topic_of
from popmq_server.errors import Refused
from popmq_server.values.leased import Leased

WAITERS_PER_KEY_MAX = 1024
WAITERS_MAX = 100_000
#: Generations remembered, of keys and of topics: clients of lite topics come and go.
GENERATIONS_MAX = 100_000
#: A Send wakes waiters early if no more groups wait for its topic: it is answered after their looks.
EARLY_GROUPS_MAX = 4
#: Base of the heap size at which deadlines of finished waits are removed: see `Waiters._push`.
OVER_MIN = 64

Key = tuple[str, str]  # group, topic


class Waiters:
    """A lot of parked calls by (group, topic), in order of arrival. For one event loop."""

    def __init__(self, clock: Clock, *, wake_all: bool, what: str = "Pops of group") -> None:
        self._clock = clock
        self._what = what
        self._wake_all = wake_all
        self._parked: dict[Key, OrderedDict[int, asyncio.Future[bool]]] = {}
        #: The keys of parked calls by topic.
        self.by_topic: dict[str, dict[Key, None]] = {}
        self._generations: dict[Key, int] = {}
        self._topic_generations: dict[str, int] = {}
        self._stamps = itertools.count(1)
        self._floor = 0
        self._deadlines: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._deadlines_max = OVER_MIN
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._alarms: dict[Key, int] = {}
        self.count = 0
        #: Keys of which a waiter was woken early and has not looked yet.
        self.early = set[Key]()
        #: Keys of which the last one that was woken early found nothing.
        self._in_vain = set[Key]()
        #: The count by (group, topic); lite topics count for their LITE topic.
        self._counts: dict[Key, int] = {}

    def generation(self, key: Key) -> tuple[int, int]:
        """The pair to compare before parking."""
        return self._generations.get(key, self._floor), self._topic_generations.get(key[1], self._floor)

    def counts(self) -> dict[Key, int]:
        """The number of parked calls by (group, topic)."""
        return {key: len(parked) for key, parked in self._parked.items()}

    def parked(self, group: str, topic: str) -> int:
        """The number of calls of a group that are parked on a topic or on its lite topics."""
        return self._counts.get((group, topic), 0)

    def _count(self, key: Key, count: int) -> None:
        self.count += count
        named = (key[0], topic_of(key[1]))
        if left := self._counts.get(named, 0) + count:
            self._counts[named] = left
        else:
            del self._counts[named]

    async def park(self, key: Key, seen: tuple[int, int], deadline_ms: int) -> bool:
        """Waits until woken (True) or until the deadline (False). Returns True at once if the generation is not `seen`.

        Take `seen` before the look that found nothing. A waiter that is cancelled while it is being woken hands the
        wake on, so that the wake reaches a waiter that is still there.
        """
        if self.generation(key) != seen:
            return True
        if self._closed or deadline_ms <= self._clock.now_ms():
            return False
        parked = self._parked_at(key)
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        parked[number] = future
        self._count(key, 1)
        self._push(deadline_ms, number, future)
        try:
            woken: bool = await future
            return woken
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self.early.discard(key)
                self.hand_on(key)
            raise
        finally:
            self._leave(key, number)

    def _push(self, at_ms: int, number: int, future: "asyncio.Future[bool]") -> None:
        """Adds a deadline. Finished waits are removed from the heap when it has grown to twice its size after the last
        clean-up, plus OVER_MIN.
        """
        if len(self._deadlines) >= self._deadlines_max:
            self._deadlines = [one for one in self._deadlines if not one[2].done()]
            heapq.heapify(self._deadlines)
            self._deadlines_max = 2 * len(self._deadlines) + OVER_MIN
        heapq.heappush(self._deadlines, (at_ms, number, future))
        self._set_timer()

    def _parked_at(self, key: Key) -> OrderedDict[int, "asyncio.Future[bool]"]:
        """The waiters of a key. Raises Refused POLLING_FULL when it may take no more."""
        count = len(self._parked.get(key, ()))
        if count >= WAITERS_PER_KEY_MAX or self.count >= WAITERS_MAX:
            raise Refused(
                "POLLING_FULL",
                f"{count} {self._what} {key[0]!r} wait on topic {key[1]!r} already",
                retry_after_ms=1000,
                action="share one waiting call, or take larger batches",
            )
        parked = self._parked.setdefault(key, OrderedDict())
        self.by_topic.setdefault(key[1], {})[key] = None
        return parked

    def _leave(self, key: Key, number: int) -> None:
        """Removes a waiter, woken or not, and the entry of its key when that is empty."""
        parked = self._parked.get(key)
        if parked is not None:
            if parked.pop(number, None) is not None:
                self._count(key, -1)
            if not parked:
                del self._parked[key]
                keys = self.by_topic[key[1]]
                keys.pop(key, None)
                if not keys:
                    del self.by_topic[key[1]]

    def wake_early(self, topic: str) -> bool:
        """Before a Send to a topic of `by_topic` is submitted: wakes one waiter of each group, if it may."""
        keys = self.by_topic[topic]
        if len(keys) > EARLY_GROUPS_MAX:
            return False
        if early := [key for key in keys if key not in self.early and key not in self._in_vain]:
            self.early.update(early)
            for key in early:
                self.hand_on(key)
        return bool(early)

    def looked(self, key: Key, popped: Leased | None) -> None:
        """After the look of a Pop: `popped` is its answer, None if it was refused or cancelled."""
        if key in self.early:
            self.early.remove(key)
            if popped is not None and not popped.rows:
                if len(self._in_vain) >= GENERATIONS_MAX:
                    self._in_vain.clear()
                self._in_vain.add(key)
        elif popped is not None and popped.rows:
            self._in_vain.discard(key)

    def wake(self, woken: set[tuple[str | None, str]], served: Collection[Key] = ()) -> None:
        """After a commit: wakes one waiter for each group that has something new; `served`: Committed.served.

        Raises generations even when no Pop is parked: a Pop may be about to park.
        """
        for group, topic in woken:
            if group is None:
                if topic not in self._topic_generations:
                    self._forget_many()
                self._topic_generations[topic] = next(self._stamps)
                if topic in self.by_topic:
                    for key in list(self.by_topic[topic]):
                        if key not in served:
                            self._wake_key(key)
            else:
                key = group, topic
                if key not in self._generations:
                    self._forget_many()
                self._generations[key] = next(self._stamps)
                if key in self._parked:
                    self._wake_key(key)

    def _forget_many(self) -> None:
        """Forgets all generations when there are too many: a Pop that is about to park looks once more."""
        if len(self._generations) + len(self._topic_generations) >= GENERATIONS_MAX:
            self._generations, self._topic_generations, self._floor = {}, {}, next(self._stamps)

    def _wake_key(self, key: Key) -> None:
        """Wakes the oldest waiter, or all of them in a `wake_all` lot."""
        self.hand_on(key)
        while self._wake_all and self._parked.get(key):
            self.hand_on(key)

    def hand_on(self, key: Key) -> None:
        """Wakes the oldest waiter of a key, if there is one."""
        parked = self._parked.get(key)
        while parked:
            _, future = parked.popitem(last=False)
            self._count(key, -1)
            if not future.done():
                future.set_result(True)
                return

    def wake_at(self, key: Key, at_ms: int) -> None:
        """Wakes the oldest waiter of a key at a time, or now. One alarm per key counts: the earliest."""
        if at_ms <= self._clock.now_ms():
            self.hand_on(key)
            return
        if at_ms >= self._alarms.get(key, at_ms + 1):
            return

        def ring(alarm: asyncio.Future[bool]) -> None:
            if self._alarms.get(key) == at_ms:
                del self._alarms[key]
                self.hand_on(key)

        self._alarms[key] = at_ms
        alarm = asyncio.get_running_loop().create_future()
        alarm.add_done_callback(ring)
        self._push(at_ms, next(self._numbers), alarm)

    def look_again(self, topic: str, group: str = "") -> None:
        """Wakes all waiters of a topic, or those of one group, because its settings changed."""
        self._topic_generations[topic] = next(self._stamps)
        for key in list(self.by_topic.get(topic, ())):
            while group in ("", key[0]) and self._parked.get(key):
                self.hand_on(key)

    def tick(self) -> None:
        """Ends the waits whose deadline has passed."""
        now_ms = self._clock.now_ms()
        while self._deadlines and (self._deadlines[0][0] <= now_ms or self._deadlines[0][2].done()):
            _, _, future = heapq.heappop(self._deadlines)
            if not future.done():
                future.set_result(False)
        self._set_timer()

    def _set_timer(self) -> None:
        """Sets one timer for the earliest deadline, unless the clock calls `tick` itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay_s = self._clock.seconds_to(self._deadlines[0][0]) if self._deadlines else None
        if delay_s is not None:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.tick)

    def close(self) -> None:
        """Ends all waits and refuses new ones: the broker stops."""
        self._closed = True
        for _, _, future in self._deadlines:
            if not future.done():
                future.set_result(False)
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()


def with_handles(leased: Leased, handles: bool) -> Popped:
    """The answer of a Pop; without `handles`, those of its rows are empty."""
    texts = leased.texts if handles else itertools.repeat(b"")
    rows = [
        (data, stored_ms, queue, offset, attempt, text)
        for (data, stored_ms, queue, offset, attempt, _), text in zip(leased.rows, texts, strict=False)
    ]
    return Popped(rows, leased.popped_ms, leased.due_ms, leased.rest, leased.replay, leased.sealed, leased.type)


def waited(popped: Leased, now_ms: int) -> Popped:
    """The answer of a Pop whose wait is over: empty, or the refusal that explains why it got no message."""
    if popped.refusal is None:
        return with_handles(popped, False)
    if popped.quota_ms > popped.popped_ms:
        popped.refusal.retry_after_ms = max(1, popped.quota_ms - now_ms)
    raise popped.refusal
