"""What a handler raises to say how its message ends."""

from popmq.duration import Duration, seconds_or_none


class Reject(Exception):
    """Raised by a handler: no further try, the message goes to the dead-letter topic of its group with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Exception):
    """Raised by a handler: try again after `delay`, such as 90 or "90s" (None: the group's backoff).

    The attempt counts: after the group's `max_attempts` the message is a dead letter.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason or ("in " + str(delay) if delay is not None else "after the backoff of the group"))
        self.delay = seconds_or_none(delay, "delay")
        self.reason = reason
