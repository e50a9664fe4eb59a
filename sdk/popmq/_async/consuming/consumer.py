"""`async for delivery in client.consume(topic, group)`: reads a topic until it is stopped."""

import contextlib
import logging
import weakref
from collections import deque
from collections.abc import Callable

from popmq._async.concurrency import Event, Stop
from popmq._async.consuming.delivery_loop import AsyncDeliveryLoop
from popmq._async.consuming.parts import Parts
from popmq._async.consuming.session import ConsumerSession
from popmq._calls import admin_calls, pop_calls
from popmq._calls.pop_calls import Popped
from popmq._consuming.consumer_settings import TICK_S, ConsumerSettings
from popmq._consuming.guard import Guard
from popmq._consuming.leased_batches import Batch, ordered, weakly
from popmq._consuming.pop_size import PopSize
from popmq._runtime import forks
from popmq._transport.call_retries import Stopped
from popmq.errors import Forbidden, PopMQError, TryLater, WrongConsumeMode
from popmq.message import Delivery
from popmq.outcome import UNREAD
from popmq_http2.elapsed import monotonic

log = logging.getLogger("popmq.consumer")

#: Seconds between two checks for deliveries that were dropped unsettled, while a consumer waits for its handlers.
LOOK_S = 1.0


class AsyncConsumer(AsyncDeliveryLoop):
    """Deliveries of one topic for one group, as they come; made by `AsyncClient.consume`.

    It outlives a broker that restarts. It ends by `stop()`, by leaving its loop or its `async with`; what it had
    popped and not delivered is then visible to others at once, and the attempt does not count. (It counts on an engine
    whose promise `uncounted` is weaker: `client.info()`.)
    """

    def __init__(self, parts: Parts, options: ConsumerSettings) -> None:
        super().__init__()
        self._parts = parts
        self._options = options
        self._session = ConsumerSession(parts, options.topic, options.group)
        self._limit: Callable[[], int] = lambda: options.max_in_hand
        self._buffer: deque[Delivery] = deque()
        self._batches: list[Batch] = []
        self._size = PopSize(options.max_messages)
        self._attempt_id = ""
        self._stop = Stop()
        self._freed = Event()
        self._poll_end: Stop | None = None  # ends a long poll while buffered deliveries wait for their message group
        self._born = forks.count
        self._fifo = False  # the group takes one message after another
        self._last = ""  # the handle of what was delivered last
        self._idle_since: float | None = None
        self._started = False
        self._opened = False  # its session
        self._answered = False  # a pop was answered: the group pops the topic, or did so before
        self._pulled = False  # the last try found that the group pulls it now
        # Leases and the scheduler know its batches and its session, not itself: when a program drops it without closing
        # it, its unread messages are renewed no longer, and its session ends.
        self._woken = weakly(self._wake)
        weakref.finalize(self, self._session.abandon).atexit = False

    def stop(self) -> None:
        """Ends the loop after the delivery that is being handled. May be called from other threads and from signal
        handlers.
        """
        self._stop.set()

    def hold_at_most(self, limit: Callable[[], int]) -> None:
        """Asks `limit` before each pop how many unsettled deliveries there may be, instead of `max_in_hand`."""
        self._limit = limit

    async def close(self) -> None:
        """Stops, releases the messages that were not delivered, and waits until the broker has all other outcomes.

        In a signal handler that interrupts the loop it only stops: the loop closes the consumer.
        """
        if self._parts.wire.without_threads():
            return
        self.stop()
        if self._interrupted():
            return
        async with self._turn:
            await self._sweep()
            if any(batch.runs for batch in self._batches):
                # The broker releases the messages after a failed one by itself: do not release them a second time.
                await self._parts.settler.flush(closing=True)
            while self._buffer:
                self._release_unread(self._buffer.popleft())
            await self._parts.settler.flush(closing=True)
            # Under the lock too: when several callers close, none returns before the goodbye was sent.
            opened, self._opened = self._opened, False
            if opened:
                self._parts.scheduler.remove(self._session)
                await self._session.close()
        await self._closed()

    async def _take(self) -> Delivery | None:
        if forks.without_threads(self._born):
            self._parts.wire.check()
        async with self._turn:
            if not self._started:
                await self._start()
            while not self._stop.is_set():
                delivery = self._next()
                if delivery is None:
                    self._freed.clear()
                    delivery = self._next()  # something may have been settled before the clear
                if delivery is not None:
                    return delivery
                if self._one_is_out():
                    if not await self._freed.wait(LOOK_S):
                        self._parts.leases.forget_dropped()
                elif not await self._refill():
                    self._stop.set()
            return None

    def _next(self) -> Delivery | None:
        """The first buffered delivery that may be delivered. Drops those whose lease has ended meanwhile."""
        if self._one_is_out():
            return None
        found = None
        later: list[Delivery] = []
        while self._buffer and found is None:
            delivery = self._buffer.popleft()
            when = self._parts.leases.may_deliver(delivery)
            if when == "now":
                found = delivery
            elif when == "later":
                later.append(delivery)
        self._buffer.extendleft(reversed(later))
        self._last = found.handle if found else ""
        return found

    def _one_is_out(self) -> bool:
        """Whether the group takes one message after another, and the last one is not settled."""
        return self._fifo and bool(self._last) and self._parts.leases.holds(self._last)

    async def _start(self) -> None:
        self._parts.wire.check_home()  # before this event loop is bound: it may be the wrong one
        self._parts.settler.bind()
        self._parts.scheduler.bind()
        self._stop.watch(self._woken)
        while not self._started and not self._stop.is_set():
            # Tries for as long as the broker is away: a worker may start before its broker.
            try:
                await self._open()
            except Stopped:
                return
            except TryLater as error:
                await self._wait_to_retry(error)
            else:
                self._started = True

    async def _open(self) -> None:
        """Reads the group's settings and opens the session."""
        group = await self._parts.wire.run(admin_calls.get_group(self._options.group), self._stop)
        self._fifo = group.fifo
        if not self._options.queues:
            await self._session.open(self._stop)
            self._parts.scheduler.add(self._session)
            self._opened = True

    async def _refill(self) -> bool:
        """Pops a batch. False: the consumer was idle for `until_idle` seconds."""
        self._parts.leases.forget_dropped()  # a loop without `with delivery` is warned of before its next pop
        room = await self._room()
        queues = self._options.queues or await self._session.queues()
        if not room or queues is None:
            return True
        if self._idle_since is None:
            self._idle_since = self._parts.clock.now()
        # While buffered deliveries wait for their message groups, the pop ends as soon as one may be delivered.
        self._poll_end = until = Stop() if self._buffer else None
        if until is not None and self._freed.is_set():
            until.set()
        began = monotonic()
        try:
            popped = await self._pop(list(queues), self._size.next(room, began), until)
        finally:
            self._poll_end = None
        now = monotonic()
        self._size.popped(len(popped.deliveries), now - began, now)
        if popped.deliveries:
            self._hold(popped)
        if self._buffer:
            self._idle_since = None
            return True
        left = self._options.idle_left(self._idle())
        return left is None or left > TICK_S

    def _idle(self) -> float:
        """Seconds without a message, counted from when the broker has all outcomes: what failed may come again."""
        answered, now = self._parts.settler.answered(self._options.group), self._parts.clock.now()
        return 0.0 if self._idle_since is None or answered is None else now - max(self._idle_since, answered)

    async def _room(self) -> int:
        """How many more deliveries may be delivered. When none, waits for a handler to settle one."""
        room = self._free()
        if room <= 0:
            if not await self._freed.wait(LOOK_S):
                self._parts.leases.forget_dropped()
            return 0
        # While quick handlers are at work, a pop at once would bring only what they have settled up to now.
        wanted = min(self._size.wanted(monotonic()), self._limit())
        until = monotonic() + self._size.patience
        while room < wanted and not self._buffer and not self._stop.is_set() and (left := until - monotonic()) > 0:
            self._freed.clear()
            if self._free() == room:  # nothing was settled before the clear
                await self._freed.wait(left)
            room = self._free()
        return 0 if self._stop.is_set() else max(0, room)

    def _free(self) -> int:
        """How many more deliveries may be unsettled."""
        self._batches = [batch for batch in self._batches if batch.members]
        return self._limit() - sum(len(batch.members) for batch in self._batches)

    def _hold(self, popped: Popped) -> None:
        # A replayed pop does not tell how much of its lease has passed: renew it at once.
        now = self._parts.clock.now()
        since = now - popped.lease if popped.replay else now
        in_order = ordered(self._options.topic)
        batch = Batch(popped.deliveries, popped.lease, since, freed=self._woken, ordered=in_order)
        self._parts.leases.hold(batch)
        self._batches.append(batch)
        self._buffer.extend(popped.deliveries)

    async def _pop(self, queues: list[int], size: int, until: Stop | None = None) -> Popped:
        """One pop, tried until it is answered, waiting for messages until `until` is set.

        The attempt id stays the same until then: a batch whose answer was lost is returned by the next try.
        """
        options = self._options
        self._attempt_id = self._attempt_id or self._parts.numbering.attempt_id()
        while True:
            closing = self._stop.is_set()
            waits = not closing and not (until and until.is_set())
            call = pop_calls.pop(
                options.topic,
                options.group,
                client_id=self._parts.client_id,
                max_messages=1
                if closing
                else size,  # no handler gets them: if there is no batch yet, as little as can be
                wait=options.pop_wait(self._idle()) if waits else 0.0,
                invisible=options.invisible,
                queues=queues,
                max_bytes=0,
                attempt_id=self._attempt_id,
                filter=options.filter,
                guard=self._guard,
                lite_topics=options.lite_topics,
            )
            try:
                with self._parts.wire.telemetry.receiving(options.topic, options.group) as received:
                    stop = None if closing else until if until and waits else self._stop
                    popped = await self._parts.wire.run(call, stop, closing)
                    received.deliveries = popped.deliveries
            except Stopped:
                # The broker may have answered the cancelled pop: ask once more for its batch, to release it.
                continue
            except (TryLater, Forbidden, WrongConsumeMode) as error:
                if isinstance(error, WrongConsumeMode) and not self._answered:
                    raise  # the group never popped; one that is switched while it runs may be switched back
                if not isinstance(error, TryLater) and options.until_idle is not None:
                    raise  # there may be messages, so it is not idle and would never end
                if self._stop.is_set():
                    return Popped([], 0.0, False)
                await self._wait_to_retry(error)
            else:
                self._attempt_id, self._answered, self._pulled = "", True, False
                return popped

    async def _sweep(self) -> None:
        """Fetches the batch of a pop that was cancelled or interrupted: it may be leased although no answer came."""
        if self._attempt_id:
            with contextlib.suppress(PopMQError):
                popped = await self._pop([], 1)
                if popped.deliveries:
                    self._hold(popped)

    async def _wait_to_retry(self, error: PopMQError) -> None:
        where = self._options.group, self._options.topic
        if not isinstance(error, WrongConsumeMode):
            log.warning("group %s cannot read %s and tries again: %s", *where, error)
        elif not self._pulled:
            log.info("group %s pulls topic %s now: this consumer waits until the group is switched back", *where)
        self._pulled = isinstance(error, WrongConsumeMode)
        await self._stop.wait(LOOK_S)

    def _guard(self, lease: float) -> Guard:
        options, parts = self._options, self._parts
        return Guard(
            parts.settler,
            parts.wire.telemetry,
            options.on_error,
            options.confirm,
            lease,
            parts.clock.now(),
            parts.reply,
        )

    def _wake(self) -> None:
        """A delivery was settled: there is room, and another one of its message group may be delivered."""
        self._freed.set()
        self._session.wake()
        if (poll_end := self._poll_end) is not None:
            poll_end.set()

    def _release_unread(self, delivery: Delivery) -> None:
        if self._parts.leases.forget_run(delivery):
            self._parts.settler.settle(delivery, UNREAD, False)
