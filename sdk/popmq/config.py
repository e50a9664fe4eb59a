"""Timeouts and retries of a client, the options of its loops, and the variables of its environment."""

import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from popmq.duration import Duration, in_seconds, seconds_of
from popmq.errors import InvalidField

DEFAULT_ENDPOINT = "127.0.0.1:8081"

_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("", "0", "false", "no", "off"), False),
}
#: What some editors write at the beginning of a text file.
BYTE_ORDER_MARK = "\ufeff"


def trimmed(text: str) -> str:
    """A value of a variable or a file: without white space around it, and without a byte order mark."""
    return text.strip().removeprefix(BYTE_ORDER_MARK).strip()


def variable(name: str) -> str:
    """The variable POPMQ_NAME of the environment, trimmed; "": it is empty, or not set."""
    return trimmed(os.environ.get(f"POPMQ_{name.upper()}", ""))


def switch(name: str) -> bool:
    """The same as yes (1, true, yes, on) or no (0, false, no, off, or not set). Raises InvalidField."""
    given = variable(name)
    if given.lower() not in _SWITCH:
        raise InvalidField(
            f"POPMQ_{name.upper()} is {given!r:.80}: neither true nor false",
            code="INVALID_FIELD",
            field=name,
            action="set it to 1, true, yes or on, or to 0, false, no or off",
        )
    return _SWITCH[given.lower()]


#: Messages of one pull, as in the reference: a slow handler does not make others wait for a thousand of them.
PULL_MESSAGES = 32

#: Of connections over grpcio. An answer is at most 16 MiB and one message of 4 MiB (Pop.max_bytes is soft). A broker
#: that disappeared is noticed by a ping within 40 s, and only while a call is under way: an idle client sends nothing.
#: One that restarts is found again within a second: gRPC's own default backs off up to 2 minutes. `min_reconnect` is,
#: in spite of its name, how long one attempt to connect may take.
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 32 * 1024 * 1024),
    ("grpc.max_send_message_length", 32 * 1024 * 1024),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


def time_limit(
    timeout: Duration | None, whose: str = "a call", otherwise: str = "the timeout of the client"
) -> float | None:
    """The `timeout` of one call in seconds; None: the client's. Raises InvalidField, also for 0 and less."""
    if timeout is None:
        return None
    seconds = timeout if type(timeout) is float else seconds_of(timeout, "timeout")
    if seconds > 0:
        return seconds
    raise InvalidField(
        f"timeout is {timeout!r}: {whose} needs some time",
        code="INVALID_FIELD",
        field="timeout",
        action=f"give more than 0, or leave it out for {otherwise}",
    )


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take, including its retries.

        Timeouts(send="5s")        # give up a send after 5 s
        Timeouts.all(2.0)          # every call within 2 s, as for a command line

    Each is a duration: seconds, a timedelta, or a text. `timeout=` of a call counts before them. `pop` is added to the
    time that the call asked to wait. A send that waits for another send of its client may take up to twice `send`.
    Raises InvalidField.
    """

    send: float = 30.0
    pop: float = 10.0
    settle: float = 30.0  # ack, extend, release, reject, recall, send_back, ends of transactions, calls of owners
    admin: float = 10.0  # all others

    if TYPE_CHECKING:  # what may be given; the fields are seconds

        def __init__(
            self, send: Duration = 30.0, pop: Duration = 10.0, settle: Duration = 30.0, admin: Duration = 10.0
        ) -> None: ...

    def __post_init__(self) -> None:
        in_seconds(self, "send", "pop", "settle", "admin")

    @classmethod
    def all(cls, seconds: Duration) -> "Timeouts":
        """The same limit for every call."""
        return cls(send=seconds, pop=seconds, settle=seconds, admin=seconds)


@dataclass(frozen=True, slots=True)
class Retry:
    """How a call with a retryable error is tried again, until its timeout.

    The pause before try n + 1 is drawn evenly from 0 to min(`longest`, `first` × 2ⁿ⁻¹), so that the clients of a broker
    that restarts do not come back in step ("full jitter"), and is never shorter than what the broker asks for.
    `tries` bounds their number; 1 = never try again, 0 = only the timeout does. `reach`: seconds after which a call
    that no broker answers is given up although its timeout is longer. `first`, `longest`, `reach`: any durations.
    """

    first: float = 0.05
    longest: float = 1.0
    tries: int = 0
    reach: float = math.inf

    if TYPE_CHECKING:  # what may be given; the fields are seconds

        def __init__(
            self, first: Duration = 0.05, longest: Duration = 1.0, tries: int = 0, reach: Duration = math.inf
        ) -> None: ...

    def __post_init__(self) -> None:
        in_seconds(self, "first", "longest")
        if not (isinstance(self.reach, float) and self.reach == math.inf):
            in_seconds(self, "reach")

    def pause(self, tried: int, retry_after: float = 0.0) -> float:
        """Seconds before the next try, after `tried` ≥ 1 tries."""
        most: float = min(self.longest, self.first * 2.0 ** min(tried - 1, 30))
        return max(retry_after, random.uniform(0.0, most))


OnError = Literal["log", "raise"]


class LoopOptions(TypedDict, total=False):
    """The options that `consume`, `pull_consume` and `broadcast_consume` have in common.

    `max_messages`, `wait`: of one pop or pull. `on_error` "log": logs a handler's Exception and goes on; "raise": ends
    the loop with it. `until_idle`: ends the loop after this long without a message. `tag` or `sql`: the filter.
    """

    max_messages: int
    wait: Duration
    on_error: OnError
    until_idle: Duration | None
    tag: str | None
    sql: str | None


class ConsumeOptions(LoopOptions, total=False):
    """The options of `client.consume` and of `on` of a worker; `consume` says what each does, and its default."""

    invisible: Duration | None
    queues: Sequence[int]
    confirm: bool
    max_in_hand: int
    lite_topics: Sequence[str]
