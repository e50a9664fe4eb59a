# Written by sdk/twin.py from popmq/_async/consuming/puller.py: change that one.
"""Pulls one queue in a loop, and settles its messages.

       broker ──Pull──▶ Puller ──add──▶ ProcessQueue ──take──▶ handler
                          ▲  held back                            │ Guard
                          └───────────── room ◀──done, again──────┤
       broker ◀──SendBack── SendBacks ◀────── failed ─────────────┘

The loop runs no handler, and no handler waits for the loop: the process queue is between them.
"""

import logging
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from popmq._calls import pull_calls
from popmq._consuming.clock import Clock
from popmq._consuming.guard import Guard
from popmq._consuming.pull_settings import (
    FAILED_S,
    HELD_BACK_LOG_EVERY,
    ORDERLY_AGAIN_S,
    PAUSED_S,
    RETRY,
    Place,
    PullSettings,
)
from popmq._sync.concurrency import BackgroundLoop, Lock, Stop
from popmq._sync.consuming.arrivals import Arrivals
from popmq._sync.consuming.send_backs import SendBacks
from popmq._sync.transport.wire import Wire
from popmq._transport.call import Call
from popmq._transport.call_retries import Stopped
from popmq.errors import Forbidden, GroupNotFound, PopMQError, TopicNotFound, TryLater, WrongConsumeMode
from popmq.message import Delivery, Send
from popmq.outcome import Acked, Outcome, Rejected, Released
from popmq.process_queue import ProcessQueue, met_end
from popmq.pull import Pulled, PullState

log = logging.getLogger("popmq.consumer")


@dataclass(slots=True)
class PullContext:
    """What the pullers of one consumer share."""

    wire: Wire
    clock: Clock
    options: PullSettings
    lock: Lock  # of every process queue
    arrivals: Arrivals
    send_backs: SendBacks
    look: Callable[[], object]  # call when something is due sooner than before
    rebalance: Callable[[], object]  # call when the assigned queues may have changed
    max_attempts: int = 1  # of the group
    paused: bool = False
    stale: bool = False  # the group pops now, or the topic is gone: nothing that was pulled before is delivered

    def outdate(self) -> None:
        """Begins anew: the share finds out whether the topic is gone, was created again, or is popped."""
        self.stale = True
        self.rebalance()


class Puller:
    """Pulls one queue until it is stopped. The guards of its deliveries settle them here."""

    def __init__(self, context: PullContext, number: int, place: Place) -> None:
        options = context.options
        self.number = number
        self.topic_created_ms = place.topic_created_ms  # what its offsets are of
        self.queue: ProcessQueue[Delivery] = ProcessQueue(place.offset, place.max_offset, options.orderly)
        self.saved = place.offset  # the offset that the broker has
        #: To pull again elsewhere: the status of the pull that could not read its offset, or "", and the offset.
        self.correction: tuple[str, int] | None = None
        self.leave_by = 0.0  # once it leaves: when it is released at the latest
        self._context = context
        self._retry = number == RETRY
        self._topic = pull_calls.retry_topic(options.topic, options.group) if self._retry else options.topic
        self._guard = Guard(self, context.wire.telemetry, options.on_error, False, 0.0, 0.0)
        self._out: dict[int, weakref.ref[Delivery]] = {}  # delivered, not settled
        self._ending: dict[int, Delivery] = {}  # between a guard's `forget` and its `settle`
        self._held_back = 0
        self._stop = Stop()
        self._worker = BackgroundLoop(f"popmq-pull-{options.topic}-{'retry' if self._retry else number}", self._step)

    # ── The loop ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Starts pulling."""
        self._worker.bind()
        self._worker.wake()

    def wake(self) -> None:
        """Checks again whether it may pull."""
        self._worker.wake()

    def locked(self, until: float) -> None:
        """The broker has locked the queue for this client. An orderly queue is read only while the lock is certain;
        others are read while the broker is away too, until it assigns them to another client.
        """
        if self.queue.orderly:
            with self._context.lock:
                self.queue.locked_until = until
                waiting = self.queue.waiting(self._context.clock.now())
            if waiting:
                self._context.arrivals.offer(self)  # it may have been passed over when the lock was not certain

    def end(self) -> None:
        """Cancels the running pull and ends the loop after it; `ended` waits for that."""
        self._stop.set()
        self._worker.end()

    def ended(self) -> None:
        """Waits for the end of the loop."""
        self._worker.stop()

    def _step(self) -> float | None:
        """One pull. Returns the seconds to the next one; None: until it is woken."""
        if self._stop.is_set():
            return None
        pause = self._pause()
        if pause is not None:
            return pause
        try:
            pulled = self._context.wire.run(self._next(), self._stop)
        except Stopped:
            return None
        except (TryLater, WrongConsumeMode, Forbidden) as error:
            if isinstance(error, Forbidden) and self._context.options.until_idle is not None:
                self._context.arrivals.fail(error)  # there may be messages, so it is not idle and would never end
                return None
            if isinstance(error, WrongConsumeMode):
                self._context.outdate()
                return None
            log.warning("queue %d of %s cannot be pulled, next try in %g s: %s", *self._name(), FAILED_S, error)
            return FAILED_S
        except PopMQError as error:
            if isinstance(error, TopicNotFound | GroupNotFound):
                self._context.outdate()  # it may have been created again; if it is gone, the share reports it
            else:
                self._context.arrivals.fail(error)
            return None
        return self._take_in(pulled)

    def _pause(self) -> float | None:
        """Seconds to wait before the next pull; None: pull now."""
        context = self._context
        with context.lock:
            if context.paused or self.queue.leaving or not self.queue.locked(context.clock.now()):
                return PAUSED_S
            limit = self.queue.limit(context.options.flow)
        if not limit:
            return None
        self._held_back += 1
        if self._held_back % HELD_BACK_LOG_EVERY == 1:
            log.warning("queue %d of %s is not pulled: %s of unsettled messages is at its limit", *self._name(), limit)
        return context.options.flow.pause

    def asks_for_more(self, stop: Stop) -> bool:
        """Whether the broker has messages after those that were pulled. A second call, beside the long poll that waits
        for them. Raises what a pull raises; Stopped.
        """
        pulled = self._context.wire.run(self._call(1, 0.0), stop)
        return bool(pulled.deliveries) or not met_end(pulled.status, pulled.next_offset, pulled.max_offset)

    def _next(self) -> Call[Pulled]:
        options = self._context.options
        # A consumer that ends when idle must know at once whether there are messages, not after a long poll.
        hurry = options.until_idle is not None and not self.queue.drained
        return self._call(options.max_messages, 0.0 if hurry else options.wait)

    def _call(self, messages: int, wait: float) -> Call[Pulled]:
        options = self._context.options
        return pull_calls.pull(
            self._topic,
            options.group,
            max(self.number, 0),
            self.queue.next_offset,
            max_messages=messages,
            wait=wait,
            filter=options.filter,
            topic_created_ms=self.topic_created_ms,
            shown_topic=options.topic,
            guard=self._guard,
        )

    def _take_in(self, pulled: Pulled) -> float | None:
        rows = [(delivery.offset, len(delivery.body), delivery) for delivery in pulled.deliveries]
        with self._context.lock:
            if self.queue.dropped:
                return None
            legal = self.queue.add(rows, pulled.status, pulled.next_offset, pulled.max_offset)
        if not legal:
            log.warning("queue %d of %s goes on at offset %d: %s", *self._name(), pulled.next_offset, pulled.status)
            self.correction = (pulled.status, pulled.next_offset)
            self._context.rebalance()
            return None
        if rows:
            self._context.arrivals.offer(self)
        elif self.queue.drained:
            self._context.arrivals.wake()  # a consumer that ends when idle may wait for this queue
        return 0.0

    def _name(self) -> tuple[int, str]:
        return max(self.number, 0), self._topic

    # ── Its messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, now: float) -> Delivery | None:
        """The next delivery to deliver. The caller holds the lock."""
        delivery = None if self._context.stale else self.queue.take(now)
        if delivery is not None:
            self._out[delivery.offset] = weakref.ref(delivery)
        return delivery

    def waiting(self, now: float) -> bool:
        """Whether `take` would return a delivery. The caller holds the lock."""
        return not self._context.stale and self.queue.waiting(now)

    def due(self, now: float) -> float | None:
        """When its next delayed message is to be offered; None: there is none, it was offered, or cannot be taken now.

        The caller holds the lock.
        """
        at, context = self.queue.again_at(), self._context
        if at is None or at > now:
            return at
        waits = context.arrivals.offered(self) or context.stale or self.queue.leaving or not self.queue.locked(now)
        return None if waits else at

    def hold(self, delivery: Delivery, lease: float, since: float) -> None:
        """Does nothing: a pulled message has no lease."""

    def forget(self, delivery: Delivery) -> bool:
        """Starts to settle a delivery. False: it was settled before."""
        with self._context.lock:
            known = self._out.get(delivery.offset)
            if known is None or known() is not delivery:
                return False
            del self._out[delivery.offset]
            self._ending[delivery.offset] = delivery
            return True

    def holds(self, delivery: Delivery) -> bool:
        """Whether it is not settled; a pulled message has no lease."""
        return True

    def forwarded(self, send: Send) -> Any:
        """Refuses: the offsets of a pull consumer are committed later, apart from what its handlers send."""
        raise RuntimeError(
            "deliveries of a pull consumer are not acked one by one, and cannot forward: send with the client, or "
            "consume with a group that pops"
        )

    def given(self, result: Any) -> Any:
        """Refuses: see `forwarded`."""
        raise RuntimeError(
            "deliveries of a pull consumer are not acked one by one: they have no results; use a group that pops"
        )

    def settle(self, delivery: Delivery, outcome: Outcome, confirm: bool) -> None:
        """Marks it as done, delays it, or sends it back."""
        with self._context.lock:
            if self._ending.get(delivery.offset) is not delivery:
                return
            del self._ending[delivery.offset]
            back = None if self.queue.dropped else self._end(delivery, outcome)
        if back is not None:
            self._context.send_backs.add(self, delivery.offset, back, delivery)
        self._settled()

    def _end(self, delivery: Delivery, outcome: Outcome) -> Any:
        """Settles in the process queue, or returns the entry that must be sent back instead."""
        options = self._context.options
        if isinstance(outcome, Acked):
            self.queue.done(delivery.offset)
        elif isinstance(outcome, Released) and (outcome.uncounted or outcome.snooze):
            self._again(delivery, outcome.delay or 0.0)
        elif not options.group:
            if isinstance(outcome, Released) and outcome.delay is not None:
                self._again(replace(delivery, attempt=delivery.attempt + 1), outcome.delay)
            else:
                self.queue.done(delivery.offset)
        elif options.orderly and isinstance(outcome, Released):
            if delivery.attempt < self._context.max_attempts:
                pause = ORDERLY_AGAIN_S if outcome.delay is None else outcome.delay
                self._again(replace(delivery, attempt=delivery.attempt + 1), pause)
            else:
                return pull_calls.sent_back_as(delivery, self._retry, Rejected(outcome.reason))
        else:
            return pull_calls.sent_back_as(delivery, self._retry, outcome)
        return None

    def _again(self, delivery: Delivery, delay: float) -> None:
        self.queue.again(delivery.offset, self._context.clock.now() + delay, delivery)

    def _settled(self) -> None:
        """A message was settled: wakes what waits for that."""
        with self._context.lock:
            waiting, later = self.queue.waiting(self._context.clock.now()), self.queue.again_at()
            gone = self.queue.leaving and not self.queue.in_hand
        if gone:
            self._context.rebalance()  # it was kept only for this message
        elif waiting:
            self._context.arrivals.offer(self)
        elif later is not None:
            self._context.look()

    def returned(self, offset: int, delivery: Delivery | None, error: PopMQError | None) -> None:
        """The broker has taken a message back, or has refused to: then it is delivered again here, or pulled again."""
        with self._context.lock:
            if error is None:
                self.queue.done(offset)
            elif isinstance(error, WrongConsumeMode | TopicNotFound):
                if not self.queue.dropped:
                    self._context.outdate()
            elif delivery is not None:
                self._again(delivery, FAILED_S)
            else:
                self.correction = ("", self.committed())
                self._context.rebalance()
        self._settled()

    def send_back(self, offset: int, reason: str) -> None:
        """Sends back a message whose delivery was dropped."""
        row = pull_calls.dropped(max(self.number, 0), offset, self._retry, reason)
        self._context.send_backs.add(self, offset, row, None)

    def forgotten(self) -> Iterator[int]:
        """Offsets of deliveries that were dropped without being settled. The caller holds the lock."""
        for offset in [offset for offset, delivery in self._out.items() if delivery() is None]:
            del self._out[offset]
            yield offset

    def committed(self) -> int:
        """The offset to commit. The caller holds the lock."""
        return self.queue.handled if self._retry else self.queue.committed

    def state(self) -> PullState:
        """A snapshot for `queues()`. The caller holds the lock."""
        queue = self.queue
        return PullState(
            max(self.number, 0),
            self._retry,
            queue.next_offset,
            self.committed(),
            queue.count,
            queue.in_hand,
            queue.bytes,
            queue.backlog,
            queue.limit(self._context.options.flow),
            queue.leaving,
        )
