"""Acks deliveries with what they forward and their results, in the background: what waits in a group shares a request.

    leave `with` ──▶ add ──▶ one Settle for all that wait ──▶ done together
                               │ refused: nothing was done
                               └──▶ each half in a request of its own, until it is known which delivery is at fault:
                                    it is released with the error as its reason

Plain acks do not pass here (settler.py): they never wait for a topic that takes nothing now.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from popmq._async.concurrency import Ticket
from popmq._async.consuming.background_sender import BackgroundSender
from popmq._async.consuming.leases import HeldLeases
from popmq._async.transport.wire import Wire
from popmq._calls import settle_calls
from popmq._calls.message_rows import Numbering
from popmq._consuming.clock import Clock
from popmq._given.reason import reason_of
from popmq.errors import (
    ClientClosed,
    DeadlineExceeded,
    GroupNotFound,
    Over,
    PopMQError,
    TryLater,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from popmq.message import Delivery
from popmq.outcome import Acked, Released

log = logging.getLogger("popmq.consumer")

#: Errors that every part of a request would meet, too.
_OF_ALL = (TryLater, Unsupported, Unauthenticated, GroupNotFound, ClientClosed)


class Waiting(NamedTuple):
    """A delivery to ack with what it forwards and its result, its ticket, and the span that it ends in."""

    delivery: Delivery
    outcome: Acked
    ticket: Ticket | None
    span: Any


class Forwarder(BackgroundSender):
    """The forwarding deliveries of one client. `release`: of its settler."""

    def __init__(
        self,
        wire: Wire,
        clock: Clock,
        leases: HeldLeases,
        numbering: Numbering,
        release: Callable[[Delivery, Released], object],
    ) -> None:
        super().__init__("popmq-forwarder", wire, clock)
        self._leases = leases
        self._numbering = numbering
        self._release = release
        self._waiting: defaultdict[str, list[Waiting]] = defaultdict(list)
        self._settling: dict[str, list[Waiting]] = {}  # what the running step took and is not answered
        self._answered: dict[str, float] = {}  # when the broker last answered deliveries of each group
        self._ended = False

    def answered(self, group: str) -> float | None:
        """When the broker had all deliveries of a group; None: some wait."""
        with self._lock:
            waits = self._waiting.get(group) or self._settling.get(group)
        return None if waits else self._answered.get(group, 0.0)

    def add(self, delivery: Delivery, outcome: Acked, ticket: Ticket | None) -> None:
        """Queues a delivery. Its message group waits for the answer, since the broker may refuse it."""
        if delivery.order_key:
            self._leases.settling(delivery.handle)
        with self._lock:
            self._begun()
            self._waiting[delivery.group].append(Waiting(delivery, outcome, ticket, self._wire.telemetry.current()))
            if self._ended:
                self._give_up()
        self._worker.wake()

    async def stop(self) -> None:
        """Ends the worker, and the waiting for what was not sent."""
        await super().stop()
        with self._lock:
            self._ended = True
            self._give_up()

    def _give_up(self) -> None:
        """Ends the waiting for what is not sent any more. The caller holds the lock."""
        for group, waiting in self._waiting.items():
            for each in waiting:
                if each.ticket is not None:
                    each.ticket.resolve(ClientClosed("this client was closed before the broker had the delivery's end"))
            if waiting:
                log.warning(
                    "deliveries of group %s and what they forward are not sent, since the client is closed (%d): their "
                    "messages come again when their leases end",
                    group,
                    len(waiting),
                )
        self._waiting.clear()
        self._emptied()

    async def _step(self) -> float | None:
        with self._lock:
            taken, self._waiting = self._waiting, defaultdict(list)
            self._settling = taken
        try:
            for group, waiting in taken.items():
                while some := waiting[: settle_calls.fitting([each.outcome for each in waiting])]:
                    answers = await self._settled(group, some)
                    self._answered[group] = self._clock.now()
                    for each, error in zip(some, answers, strict=True):
                        self._answer(each, error)
                    del waiting[: len(some)]  # after it: what was refused waits in the settler now
        finally:
            self._put_back(taken)
        with self._lock:
            if not self._waiting:
                self._emptied()
        return None

    def _put_back(self, left: dict[str, list[Waiting]]) -> None:
        """What has no answer, because the end of its event loop cancelled the step: closing sends it again."""
        with self._lock:
            for group, waiting in left.items():
                if waiting:
                    self._waiting[group][:0] = waiting

    async def _settled(self, group: str, some: list[Waiting]) -> list[PopMQError | None]:
        """Settles them in one request; if that is refused, each half by itself. None, or the error, of each."""
        handles = [each.delivery.current_handle for each in some]
        sends = [send for each in some for send in each.outcome.sends]
        results = [each.outcome.result for each in some]
        try:
            with self._wire.telemetry.settling("settle", group, len(some), [each.span for each in some]):
                await self._wire.run(settle_calls.settle(group, handles, (), sends, self._numbering, results))
        except PopMQError as error:
            if len(some) == 1 or isinstance(error, _OF_ALL):
                return [error] * len(some)
            half = len(some) // 2
            return [*await self._settled(group, some[:half]), *await self._settled(group, some[half:])]
        return [None] * len(some)

    def _answer(self, one: Waiting, error: PopMQError | None) -> None:
        delivery, _, ticket, _ = one
        unknown = isinstance(error, Over | Unavailable | DeadlineExceeded | ClientClosed)
        if error is not None:
            log.warning("message %s of group %s: %s", delivery.message_id, delivery.group, _told(error))
        if error is not None and not unknown:
            reason = f"what it sends with its ack was refused: {reason_of(error)}"
            self._release(delivery, Released(uncounted=isinstance(error, TryLater), reason=reason))
        elif delivery.order_key:
            self._leases.settled(delivery.handle, failed=error is not None)
        if ticket is not None:
            ticket.resolve(error)


def _told(error: PopMQError) -> str:
    """What became of a delivery that was not settled, for the log."""
    if isinstance(error, Over):
        return "its lease ended before it was acked; nothing was sent, and it is delivered again"
    if isinstance(error, Unavailable | DeadlineExceeded | ClientClosed):
        return f"it is not known whether it was acked and what it forwards was sent; if not, it comes again: {error}"
    return f"nothing was sent, and it is released: {error}"
