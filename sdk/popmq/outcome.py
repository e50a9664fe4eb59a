"""How a delivery ends: as its guard settles it, as the broker answers, and as a handler says by what it raises."""

from dataclasses import dataclass
from typing import Any

from popmq.duration import Duration, seconds_of


@dataclass(frozen=True, slots=True)
class Acked:
    """The message is finished. `sends`: what is sent with the ack, in one commit."""

    sends: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Released:
    """Released: visible after `delay` seconds (None: the group's backoff). `uncounted`: the attempt does not count.

    `snooze`: it does not count either, as often as the group's `snoozes_max` allows.
    """

    delay: float | None = None
    uncounted: bool = False
    reason: str = ""
    snooze: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """To the dead-letter topic."""

    reason: str = ""


Outcome = Acked | Released | Rejected

ACK = Acked()
#: The outcome of a message that no handler has seen: visible at once, and the attempt is free.
UNREAD = Released(delay=0.0, uncounted=True)


@dataclass(frozen=True, slots=True)
class InvisibleTimeResult:
    """The outcome of an extend, release or reject of a delivery."""

    visible_ms: int  # when it may be delivered again
    dead_lettered: bool  # it went to the dead-letter topic
    handle: str = ""  # after `extend`: names the delivery from now on; "": the handle stays the same


#: The longest delay of a release that the broker takes.
DELAY_S_MAX = 12 * 3600


class Reject(Exception):
    """Raised by a handler: no further try, the message goes to the dead-letter topic of its group with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Exception):
    """Raised by a handler: try again after `delay`, such as 90 or "90s" (None: the group's backoff).

    The attempt counts: after the group's `max_attempts` the message is a dead letter. Raises ValueError for a delay
    that no release may have: below 0, or above 12 hours.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason or ("in " + str(delay) if delay is not None else "after the backoff of the group"))
        self.delay = None if delay is None else _delay_s(delay)
        self.reason = reason


class Snooze(Exception):
    """Raised by a handler that cannot handle the message yet: try again after `delay`, such as 90 or "90s".

    No attempt counts, up to the group's `snoozes_max` snoozes of one message; after these it is as `RetryLater`.
    Raises ValueError for a delay that no release may have: below 0, or above 12 hours.
    """

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason or f"for {delay}")
        self.delay = _delay_s(delay)
        self.reason = reason


def _delay_s(delay: Duration) -> float:
    """The seconds of a release. Raises ValueError."""
    found = seconds_of(delay, "delay")
    if not 0 <= found <= DELAY_S_MAX:
        raise ValueError(
            f"delay is {delay!r}: a message waits at most 12 hours after an attempt; for longer, send it again to "
            "a DELAY topic, with a delay"
        )
    return found


class BadPayload(ValueError):
    """A body that is not of the handler's type; the text says where."""
