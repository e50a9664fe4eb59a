"""What `with delivery:` does, the same for both clients: which outcome a handler's end has, and who is told."""

import logging
from typing import Any, Literal, Protocol

from popmq._outcome import ACK, Outcome, Release
from popmq._reason import reason_of
from popmq.message import Delivery

log = logging.getLogger("popmq.consumer")


OnError = Literal["log", "raise"]


class Ticket(Protocol):
    """A promise that the broker is told; one client blocks on it, the other one awaits it."""

    def result(self) -> None: ...

    def __await__(self) -> Any: ...


class Settling(Protocol):
    """What a guard needs of its client."""

    def hold(self, delivery: Delivery, lease: float, since: float) -> None:
        """Renews its lease from now on: `lease` seconds from `since` on the client's clock."""

    def forget(self, delivery: Delivery) -> bool:
        """Renews it no more; false: it was not held, because it was settled or lost."""

    def settle(self, delivery: Delivery, outcome: Outcome, confirm: bool) -> Ticket | None:
        """Tells the broker soon; a ticket when `confirm`."""


def outcome_of(error: BaseException | None) -> Outcome:
    """No error: acked. A failing handler: released with backoff, counted, with its text. Whoever stops the process (or
    the task) is not the message's fault: it is visible again at once, and the attempt is given back.
    """
    if error is None:
        return ACK
    if isinstance(error, (Exception, SystemExit)):
        return Release(reason=reason_of(error))
    return Release(delay=0.0, count=False, reason=f"interrupted by {type(error).__qualname__}")


class Guard:
    """Guards deliveries of one origin.

    `on_error` "log": a handler's Exception is logged and swallowed, so that a consumer's loop survives it; "raise": it
    goes on to the caller. Anything else (KeyboardInterrupt, SystemExit, CancelledError) always goes on.
    `confirm`: leaving waits until the broker has the outcome on disk.
    """

    def __init__(self, settling: Settling, on_error: OnError, confirm: bool, lease: float, since: float) -> None:
        self._settling = settling
        self._on_error = on_error
        self._confirm = confirm
        self._lease = lease
        self._since = since

    def enter(self, delivery: Delivery) -> None:
        """Begins to renew the lease, if that is not done already."""
        self._settling.hold(delivery, self._lease, self._since)

    def leave(self, delivery: Delivery, error: BaseException | None) -> bool:
        """Settles by how the handler ended, unless it was settled in between. True swallows the error."""
        ticket = self._close(delivery, error)
        if ticket is not None:
            ticket.result()
        return self._swallow(delivery, error)

    async def leave_async(self, delivery: Delivery, error: BaseException | None) -> bool:
        """The same for `async with`."""
        ticket = self._close(delivery, error)
        if ticket is not None:
            await ticket
        return self._swallow(delivery, error)

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settles now, by the handler's own decision."""
        self._settling.forget(delivery)
        self._settling.settle(delivery, outcome, False)

    def _close(self, delivery: Delivery, error: BaseException | None) -> Ticket | None:
        if not self._settling.forget(delivery):
            return None
        return self._settling.settle(delivery, outcome_of(error), self._confirm)

    def _swallow(self, delivery: Delivery, error: BaseException | None) -> bool:
        if self._on_error == "raise" or not isinstance(error, Exception):
            return False
        log.error(
            "the handler of message %s failed (topic %s, attempt %d)",
            delivery.message_id,
            delivery.topic,
            delivery.attempt,
            exc_info=error,
        )
        return True
