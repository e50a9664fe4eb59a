"""How a delivery ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ack:
    """The message is finished."""


@dataclass(frozen=True, slots=True)
class Release:
    """Released: visible after `delay` seconds (None: the group's backoff). `count` false: the attempt is free."""

    delay: float | None = None
    count: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reject:
    """To the dead-letter topic."""

    reason: str = ""


Outcome = Ack | Release | Reject

ACK = Ack()
#: The outcome of a message that no handler has seen: visible at once, and the attempt is free.
UNREAD = Release(delay=0.0, count=False)
