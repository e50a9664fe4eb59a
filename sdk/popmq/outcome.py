"""How a delivery ends: as its guard settles it, as the broker answers, and as a handler says by what it raises; and the
result of its message.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from popmq._given.fields import text
from popmq.duration import Duration, seconds_of
from popmq.errors import ResultFailed


@dataclass(frozen=True, slots=True)
class Acked:
    """The message is finished. `sends`, `result`: what is sent and stored with the ack, in one commit."""

    sends: tuple[Any, ...] = ()
    result: Any = None


@dataclass(frozen=True, slots=True)
class Released:
    """Released: visible after `delay` seconds (None: the group's backoff). `uncounted`: the attempt does not count.

    `snooze`: it does not count either, as often as the group's `snoozes_max` allows.
    """

    delay: float | None = None
    uncounted: bool = False
    reason: str = ""
    snooze: bool = False

    def __post_init__(self) -> None:
        text(self.reason, "reason")


@dataclass(frozen=True, slots=True)
class Rejected:
    """To the dead-letter topic."""

    reason: str = ""

    def __post_init__(self) -> None:
        text(self.reason, "reason")


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
    """Raised by a handler or in `with delivery`: no further try, the message goes to the dead-letter topic of its group
    with this reason.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryLater(Exception):
    """Raised by a handler or in `with delivery`: try again after `delay`, such as "90s" (None: the group's backoff).

    The attempt counts: after the group's `max_attempts` the message is a dead letter. Raises ValueError for a delay
    that no release may have: below 0, or above 12 hours.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "") -> None:
        super().__init__(reason or ("in " + str(delay) if delay is not None else "after the backoff of the group"))
        self.delay = None if delay is None else _delay_s(delay)
        self.reason = text(reason, "reason")


class Snooze(Exception):
    """Raised by a handler or in `with delivery`, because the message cannot be handled yet: try again after `delay`,
    such as 90 or "90s".

    No attempt counts, up to the group's `snoozes_max` snoozes of one message; after these it is as `RetryLater`.
    Raises ValueError for a delay that no release may have: below 0, or above 12 hours.
    """

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason or f"for {delay}")
        self.delay = _delay_s(delay)
        self.reason = text(reason, "reason")


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


# ── Results ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Bytes of a result, at most.
RESULT_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True, init=False)
class Result:
    """What a message has led to, for a group that keeps results.

        return popmq.Result({"total": 3})                         # from a handler of a worker: as JSON
        delivery.ack(popmq.Result(png, content_type="image/png"))
        client.result(receipt.message_id, "billing", wait="10s").json()

    `value`: bytes and text as they are, everything else as JSON (as Message.json takes it); ≤ 256 KiB. `content_type`:
    ≤ 64 bytes; by default application/json for JSON, text/plain for text, else none. Raises TypeError and ValueError
    for what JSON does not have.
    """

    body: bytes
    content_type: str
    message_id: str  # of the message that it is of; "" before it is stored
    failed: bool  # the message became a dead letter, and there is no body
    reason: str  # why
    attempts: int  # deliveries that it had then
    stored_ms: int

    def __init__(self, value: Any = b"", content_type: str | None = None) -> None:
        body, usual = _encoded(value)
        set_result(self, body, usual if content_type is None else content_type)

    @property
    def stored(self) -> datetime:
        """When the broker stored it."""
        return datetime.fromtimestamp(self.stored_ms / 1000, UTC)

    def text(self) -> str:
        """The body as UTF-8. Raises ResultFailed for a failed result, ValueError for other bytes."""
        return self._whole().decode()

    def json(self) -> Any:
        """The body as JSON. Raises ResultFailed for a failed result, ValueError for what is no JSON."""
        return json.loads(self._whole())

    def _whole(self) -> bytes:
        if self.failed:
            tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
            raise ResultFailed(
                f"message {self.message_id} became a dead letter after {tries}: {self.reason}",
                code="RESULT_FAILED",
                action="redrive it once its cause is mended",
            )
        return self.body


def set_result(
    result: Result,
    body: bytes,
    content_type: str,
    message_id: str = "",
    failed: bool = False,
    reason: str = "",
    attempts: int = 0,
    stored_ms: int = 0,
) -> Result:
    """Sets all fields of a new result, which never changes afterwards."""
    values = (body, content_type, message_id, failed, reason, attempts, stored_ms)
    for name, value in zip(Result.__dataclass_fields__, values, strict=True):
        object.__setattr__(result, name, value)
    return result


def _encoded(value: Any) -> tuple[bytes, str]:
    """(bytes, their usual content type)."""
    if isinstance(value, str):
        return value.encode(), "text/plain"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), ""
    from popmq._given.encoding import as_json  # which few programs need

    return as_json(value).encode(), "application/json"
