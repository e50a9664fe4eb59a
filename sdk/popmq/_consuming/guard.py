"""What `with delivery:` does in both clients: it settles a delivery by how its handler ended."""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args
from weakref import WeakKeyDictionary

from popmq._given.reason import handlers_traceback, reason_of
from popmq._runtime.forks import EARLIER
from popmq._transport.telemetry import Processing, Telemetry
from popmq.config import OnError
from popmq.errors import ClientClosed, HandleLapsed, InvalidField, LeaseLost
from popmq.message import Body, Delivery, Message, Send
from popmq.outcome import ACK, Acked, BadPayload, Outcome, Reject, Rejected, Released, RetryLater, Snooze

log = logging.getLogger("popmq.consumer")

#: Errors that say how a message ends. A handler that raises one has not failed.
SAYS_HOW = (Reject, BadPayload, RetryLater, Snooze)


def check_on_error(on_error: str) -> None:
    """Raises InvalidField for a word that is not an OnError: it would count as "log"."""
    if on_error not in get_args(OnError):
        raise InvalidField(
            f"on_error {on_error!r} is neither {' nor '.join(map(repr, get_args(OnError)))}",
            code="INVALID_FIELD",
            field="on_error",
        )


class Ticket(Protocol):
    """Resolved when the broker has answered: the blocking client calls `result`, the asynchronous one awaits it."""

    def result(self) -> None: ...

    def __await__(self) -> Any: ...


class Settling(Protocol):
    """What a guard needs of its consumer or client."""

    def hold(self, delivery: Delivery, lease: float, since: float) -> None:
        """Renews its lease from now on: `lease` seconds from `since` on the client's clock."""

    def forget(self, delivery: Delivery) -> bool:
        """Stops renewing its lease. False: it was settled or lost before."""

    def settle(self, delivery: Delivery, outcome: Outcome, confirm: bool) -> Ticket | None:
        """Queues the outcome for the broker. With `confirm` returns a ticket."""

    def holds(self, delivery: Delivery) -> bool:
        """Whether its lease is renewed, and it is not settled."""

    def forwarded(self, send: Send) -> Any:
        """What `Acked.sends` takes. Raises InvalidField; RuntimeError where an ack sends nothing."""

    def given(self, result: Any) -> Any:
        """What `Acked.result` takes. Raises TypeError, InvalidField; RuntimeError where an ack gives none."""


def outcome_of(error: BaseException | None) -> Outcome:
    """No error: acked. An error that says how it ends: so. A failed handler: released with backoff, and the error's
    text as reason. A handler that was interrupted with its process or task: visible again at once, and the attempt does
    not count.
    """
    if error is None:
        return ACK
    if isinstance(error, Reject | BadPayload):
        return Rejected(str(error))
    if isinstance(error, RetryLater):
        return Released(error.delay, reason=error.reason)
    if isinstance(error, Snooze):
        return Released(error.delay, reason=error.reason, snooze=True)
    if isinstance(error, (Exception, SystemExit)):
        return Released(reason=reason_of(error))
    return Released(delay=0.0, uncounted=True, reason=f"interrupted by {type(error).__qualname__}")


def _log(delivery: Delivery, error: BaseException) -> None:
    """What an error that says how a delivery ends has done."""
    about = (delivery.message_id, delivery.topic, error)
    if isinstance(error, RetryLater):
        log.info("message %s of %s is tried again later: %s", *about)
    elif isinstance(error, Snooze):
        log.info("message %s of %s is snoozed: %s", *about)
    else:
        log.warning("message %s of %s is a dead letter now: %s", *about)


def _check_program() -> None:
    """Raises ClientClosed at the end of the interpreter, where threads that have stopped may hold any lock."""
    if sys.is_finalizing():
        raise ClientClosed("the program has ended, and with it the client of this delivery", action=EARLIER)


class Guard:
    """Guards the deliveries of one pop or pull.

    `on_error` "log": a handler's Exception is logged and swallowed, so that a consumer's loop survives it; "raise": it
    reaches the caller. `Reject`, `RetryLater` and `Snooze` say how the message ends, and never do. Other exceptions
    (KeyboardInterrupt, SystemExit, CancelledError) always reach the caller.
    `confirm`: leaving waits until the broker has the outcome on disk.
    """

    def __init__(
        self,
        settling: Settling,
        telemetry: Telemetry,
        on_error: OnError,
        confirm: bool,
        lease: float,
        since: float,
        reply: Callable[[Delivery, Message | Body], Any] | None = None,
    ) -> None:
        self._settling = settling
        self._telemetry = telemetry
        self._spans: dict[int, Processing] = {}  # of the handlers that run
        self._on_error = on_error
        self._confirm = confirm
        self._lease = lease
        self._since = since
        self._reply = reply
        #: What deliveries forward, and their results, until they are settled. None: no delivery has any.
        self._forwards: WeakKeyDictionary[Delivery, list[Any]] | None = None
        self._results: WeakKeyDictionary[Delivery, Any] | None = None

    def __deepcopy__(self, memo: object) -> None:
        """None: a copy of a delivery, such as dataclasses.asdict makes, has no guard, like a pickled one."""

    def enter(self, delivery: Delivery) -> None:
        """Renews the lease from now on, if the consumer does not do so already."""
        _check_program()
        self._settling.hold(delivery, self._lease, self._since)
        span = self._telemetry.processing(delivery)
        if span is not None:
            self._spans[id(delivery)] = span

    def leave(self, delivery: Delivery, error: BaseException | None) -> bool:
        """Settles by how the handler ended, unless it is settled already. True swallows the error."""
        ticket = self._close(delivery, error)
        if ticket is not None:
            try:
                ticket.result()
            except LeaseLost as lost:
                self._report(delivery, lost)
        return self._swallow(delivery, error)

    async def leave_async(self, delivery: Delivery, error: BaseException | None) -> bool:
        """As `leave`, for `async with`."""
        ticket = self._close(delivery, error)
        if ticket is not None:
            try:
                await ticket
            except LeaseLost as lost:
                self._report(delivery, lost)
        return self._swallow(delivery, error)

    def settle(self, delivery: Delivery, outcome: Outcome, sends: Sequence[Send] = ()) -> None:
        """Settles now, as the handler decided."""
        _check_program()
        for send in sends:
            self._keep(delivery, self._settling.forwarded(send))
        self._settling.forget(delivery)
        self._settling.settle(delivery, self._with_forwards(delivery, outcome), False)

    def forward(self, delivery: Delivery, send: Send) -> None:
        """Keeps messages until the delivery is acked."""
        _check_program()
        rows = self._settling.forwarded(send)
        if not self._settling.holds(delivery):
            raise HandleLapsed(
                "this delivery cannot be acked with what it forwards: it is settled already, its lease has ended, or "
                "its `with` block has not begun",
                action="forward inside `with delivery:`",
            )
        self._keep(delivery, rows)

    def give(self, delivery: Delivery, result: Any) -> None:
        """Keeps a result until the delivery is acked; the last one counts."""
        _check_program()
        given = self._settling.given(result)
        if self._results is None:
            self._results = WeakKeyDictionary()
        self._results[delivery] = given

    def _keep(self, delivery: Delivery, rows: Any) -> None:
        if self._forwards is None:
            self._forwards = WeakKeyDictionary()
        self._forwards.setdefault(delivery, []).append(rows)

    def _with_forwards(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """The outcome with what the delivery forwards, and its result; only an ack has them."""
        sends = self._forwards.pop(delivery, None) if self._forwards is not None else None
        result = self._results.pop(delivery, None) if self._results is not None else None
        return Acked(tuple(sends or ()), result) if (sends or result) and isinstance(outcome, Acked) else outcome

    def reply(self, delivery: Delivery, message: Message | Body) -> Any:
        """`reply` of the client; that of an AsyncClient is awaited by the handler."""
        if self._reply is None:
            raise RuntimeError(
                "deliveries of a pull consumer have no reply of their own: use client.reply(delivery, …)"
            )
        return self._reply(delivery, message)

    def _close(self, delivery: Delivery, error: BaseException | None) -> Ticket | None:
        if sys.is_finalizing():  # a generator that the interpreter closes: atexit has released what it held
            return None
        try:
            return self._settled(delivery, error)
        finally:
            if self._spans and (span := self._spans.pop(id(delivery), None)) is not None:
                span.end(None if isinstance(error, SAYS_HOW) else error)

    def _settled(self, delivery: Delivery, error: BaseException | None) -> Ticket | None:
        outcome = self._with_forwards(delivery, outcome_of(error))
        if not self._settling.forget(delivery):
            return None
        if isinstance(error, SAYS_HOW):
            _log(delivery, error)
        return self._settling.settle(delivery, outcome, self._confirm)

    def _report(self, delivery: Delivery, lost: LeaseLost) -> None:
        """What a broker that restarts may cause at any message does not end the loop of a consumer that logs."""
        if self._on_error == "raise":
            raise lost
        log.warning("message %s (topic %s): %s", delivery.message_id, delivery.topic, lost)

    def _swallow(self, delivery: Delivery, error: BaseException | None) -> bool:
        if isinstance(error, SAYS_HOW):
            return True
        if self._on_error == "raise" or not isinstance(error, Exception):
            return False
        log.error(
            "the handler of message %s failed (topic %s, attempt %d)",
            delivery.message_id,
            delivery.topic,
            delivery.attempt,
            exc_info=(type(error), error, handlers_traceback(error)),
        )
        return True
