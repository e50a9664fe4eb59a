"""Tells the broker how deliveries ended, in the background: the acks that wait in a group in one request, its other
outcomes in another, of at most ENTRIES_MAX each.
"""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from popmq._async.background.forwarder import Forwarder
from popmq._async.concurrency import Errands, Ticket
from popmq._async.consuming.background_sender import BackgroundSender
from popmq._async.consuming.leases import HeldLeases
from popmq._async.transport.wire import CLOSE_S, Wire
from popmq._calls import pop_calls, settle_calls
from popmq._calls.message_rows import Numbering
from popmq._calls.pop_calls import Popped
from popmq._calls.settle_calls import Forwarded
from popmq._consuming.clock import Clock
from popmq._consuming.leased_batches import Batch, ordered
from popmq._given.fields import ENTRIES_MAX
from popmq._runtime import forks
from popmq._transport.call import Call
from popmq.errors import ClientClosed, HandleLapsed, LeaseLost, NotFound, PopMQError
from popmq.message import Delivery, Send
from popmq.outcome import UNREAD, Acked, Outcome, Released

log = logging.getLogger("popmq.consumer")

#: An entry of a request (a handle to ack, or a change), its ticket, the delivery whose message group waits, and the
#: span that it ends in.
Outgoing = tuple[Any, Ticket | None, Delivery | None, Any]


class Settler(BackgroundSender):
    """The outcomes of one client. Guards call `settle` from any thread."""

    def __init__(self, wire: Wire, clock: Clock, leases: HeldLeases, numbering: Numbering) -> None:
        super().__init__("popmq-settler", wire, clock)
        self._leases = leases
        self._numbering = numbering
        self._forwarder = Forwarder(wire, clock, leases, numbering, self._release)
        self._acks: defaultdict[str, list[Outgoing]] = defaultdict(list)
        self._changes: defaultdict[str, list[Outgoing]] = defaultdict(list)
        self._sending: tuple[dict[str, list[Outgoing]], ...] = ()  # what the running step took and is not answered
        self._answered: dict[str, float] = {}  # when the broker last answered outcomes of each group
        self._errands = Errands()
        self._ended = self._cut_off = False
        self._born = forks.count

    def hold(self, delivery: Delivery, lease: float, since: float) -> None:
        """Renews the lease of a single delivery, unless its consumer does so already."""
        if forks.count != self._born:
            self._wire.check()
        if not self._leases.holds(delivery.handle):
            self._leases.hold(Batch([delivery], lease, since))

    def forget(self, delivery: Delivery) -> bool:
        """Stops renewing it. False: it was settled or lost before."""
        if forks.count != self._born:
            self._wire.check()
        held = self._leases.forget(delivery.handle)
        if not held and delivery.order_key:
            self._leases.left(delivery.handle)
        return held

    def settle(self, delivery: Delivery, outcome: Outcome, confirm: bool) -> Ticket | None:
        """Queues an outcome for the broker. With `confirm` the returned ticket is resolved by the broker's answer.

        A KeyboardInterrupt may come between any two lines. So nothing is counted here, and `flush` wakes the worker
        again: an outcome is either queued and sent, or was never queued, and no caller waits for a missing one.
        After `stop` nothing is queued: the ticket has ClientClosed, and the log a line where there is no ticket.
        """
        ticket = Ticket() if confirm else None
        if isinstance(outcome, Acked) and (outcome.sends or outcome.result is not None):
            self._forwarder.add(delivery, outcome, ticket)
            return ticket
        span = self._wire.telemetry.current()
        waits = delivery if delivery.order_key and not isinstance(outcome, Acked) else None
        if waits:
            self._leases.settling(delivery.handle)
        with self._lock:
            self._begun()
            if isinstance(outcome, Acked):
                self._acks[delivery.group].append((delivery.current_handle, ticket, None, span))
            else:
                self._changes[delivery.group].append((_change(delivery.current_handle, outcome), ticket, waits, span))
            if self._ended:
                self._give_up()
        self._worker.wake()
        if delivery.order_key and not waits:
            self._leases.settled(delivery.handle, failed=False)
        return ticket

    def holds(self, delivery: Delivery) -> bool:
        """Whether its lease is renewed, and it is not settled."""
        return self._leases.holds(delivery.handle)

    def forwarded(self, send: Send) -> Forwarded:
        """Messages as the Forwarder takes them. Raises InvalidField."""
        forwarded = settle_calls.forwarded(send, self._numbering.message_id)
        with self._wire.telemetry.sending(send.topic, forwarded.rows):
            return forwarded

    def given(self, result: Any) -> Any:
        """A result as the Forwarder takes it. Raises TypeError, InvalidField."""
        return settle_calls.checked_result(result)

    def _release(self, delivery: Delivery, outcome: Released) -> None:
        self.settle(delivery, outcome, False)

    def bind(self) -> None:
        """To be called in the event loop before anything is added."""
        self._forwarder.bind()
        super().bind()

    def due(self) -> float | None:
        """Now, if something waits."""
        return super().due() if self._forwarder.due() is None else self._clock.now()

    def answered(self, group: str) -> float | None:
        """When the broker had all outcomes of a group; None: some wait. Those of other groups do not count."""
        with self._lock:
            waits = any(waiting.get(group) for waiting in (self._acks, self._changes, *self._sending))
        forwarded = self._forwarder.answered(group)
        return None if waits or forwarded is None else max(forwarded, self._answered.get(group, 0.0))

    def release_held(self, reason: str) -> None:
        """Releases uncounted what is held, since no handler goes on. After `stop` it can only say so."""
        held = [delivery for delivery in self._leases.held() if self._leases.forget_run(delivery)]
        if self._ended:
            for group, count in Counter(delivery.group for delivery in held).items():
                log.warning(
                    "deliveries of group %s had no ack, release or reject when the client was closed (%d): their "
                    "messages come again when their leases end. Guard each delivery by `with delivery:`",
                    group,
                    count,
                )
            return
        for delivery in held:
            self.settle(delivery, Released(0.0, True, reason), False)

    def release_batch_of(self, interrupted: Call[Popped]) -> None:
        """Releases uncounted what a pop has leased whose caller was cancelled or interrupted: no handler gets it."""
        self._errands.run(self._release_batch_of, interrupted)

    async def _release_batch_of(self, interrupted: Call[Popped]) -> None:
        with contextlib.suppress(PopMQError):
            # Not of the time that closing has: the client may live on, and close when its broker is back.
            popped = await self._wire.run(
                pop_calls.repeated(interrupted), timeout=min(CLOSE_S, self._wire.timeouts.pop)
            )
            if popped.deliveries:
                in_order = ordered(interrupted.request.topic)
                self._leases.hold(Batch(popped.deliveries, popped.lease, self._clock.now(), ordered=in_order))
            for delivery in popped.deliveries:
                if self._leases.forget_run(delivery):
                    self.settle(delivery, UNREAD, False)

    async def flush(self, closing: bool = False) -> None:
        """Waits until the broker has everything, as every sender does."""
        if self._errands.running():
            await self._errands.done(max(self._wire.closing_left(), 0.0) if closing else None)
        await self._forwarder.flush(closing)  # before the others: what is refused there is released here
        await super().flush(closing)

    async def stop(self) -> None:
        """Ends the worker, and the waiting for what was not sent. The connection is closed, which ends a request."""
        await self._forwarder.stop()
        await super().stop()
        with self._lock:
            self._ended = True
            self._give_up()

    def _give_up(self) -> None:
        """Ends the waiting for outcomes that are not sent any more. The caller holds the lock."""
        for waiting in (self._acks, self._changes):
            for group, outgoing in waiting.items():
                for _, ticket, _, _ in outgoing:
                    if ticket is not None:
                        ticket.resolve(_closed())
                if lost := sum(ticket is None for _, ticket, _, _ in outgoing):
                    log.warning(
                        "outcomes of group %s are not sent, since the client is closed (%d): their messages come again "
                        "when their leases end",
                        group,
                        lost,
                    )
            waiting.clear()
        self._emptied()

    async def _step(self) -> float | None:
        with self._lock:
            acks, self._acks = self._acks, defaultdict(list)
            changes, self._changes = self._changes, defaultdict(list)
            self._sending = acks, changes
        try:
            for group, outgoing in acks.items():
                await self._send(group, outgoing, pop_calls.ack)
            for group, outgoing in changes.items():
                await self._send(group, outgoing, pop_calls.change)
        finally:
            self._put_back(self._acks, acks)
            self._put_back(self._changes, changes)
        with self._lock:
            if not self._acks and not self._changes:
                self._emptied()
        return None

    async def _send(
        self, group: str, outgoing: list[Outgoing], build: Callable[[str, list[Any]], Call[list[Any]]]
    ) -> None:
        while some := outgoing[:ENTRIES_MAX]:
            try:
                with self._wire.telemetry.settling(_name(some), group, len(some), [each[3] for each in some]):
                    results = await self._wire.run(build(group, [entry for entry, *_ in some]))
            except PopMQError as error:
                results = [error] * len(some)
            self._answered[group] = self._clock.now()
            del outgoing[: len(some)]  # not before: a step that is cancelled leaves what has no answer
            self._answer(group, zip(some, results, strict=True))

    def _put_back(self, waiting: defaultdict[str, list[Outgoing]], left: dict[str, list[Outgoing]]) -> None:
        """What has no answer, because the end of its event loop cancelled the step: closing sends it again."""
        if any(left.values()):
            with self._lock:
                self._cut_off = True
                for group, outgoing in left.items():
                    waiting[group][:0] = outgoing

    def _answer(self, group: str, answered: Iterable[tuple[Outgoing, Any]]) -> None:
        for (_, ticket, waits, _), result in answered:
            if waits is not None:
                self._leases.settled(waits.handle, pop_calls.failed(result))
            error = result if isinstance(result, PopMQError) else None
            if ticket is not None:
                ticket.resolve(error)
            elif isinstance(error, LeaseLost):
                log.warning("an outcome of group %s: %s", group, error)
            elif isinstance(error, HandleLapsed):
                log.log(
                    logging.INFO if self._cut_off else logging.WARNING,  # most likely the step before settled it
                    "an outcome of group %s came too late and changes nothing: its delivery was settled before, its "
                    "lease expired and the message will be delivered again, or its topic was deleted or purged",
                    group,
                )
            elif isinstance(error, NotFound):
                log.warning("an outcome of group %s changes nothing, its message is gone: %s", group, error)
            elif error is not None:
                log.warning("the broker refused an outcome of group %s, its message comes back: %s", group, error)


def _closed() -> ClientClosed:
    return ClientClosed("this client was closed before the broker had the outcome of the delivery")


def _name(outgoing: list[Outgoing]) -> str:
    """What a request does."""
    entry = outgoing[0][0]
    if isinstance(entry, str):
        return "ack"
    return "reject" if all(change.HasField("reject") for change, *_ in outgoing) else "release"


def _change(handle: str, outcome: Outcome) -> Any:
    if isinstance(outcome, Released):
        return pop_calls.release(handle, outcome.delay, outcome.uncounted, outcome.reason, outcome.snooze)
    assert not isinstance(outcome, Acked)
    return pop_calls.reject(handle, outcome.reason)
