"""The options of `client.consume`."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

from popmq._consuming.guard import OnError, check_on_error
from popmq._given.checking import from_one, listed_texts
from popmq._given.fields import ENTRIES_MAX, filter_row
from popmq.duration import Duration, seconds_of, seconds_or_none
from popmq.errors import InvalidField
from popmq_proto.v1 import popmq_pb2 as pb

#: Seconds below which a remaining time counts as over: clocks are not more exact.
TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The parameters of `client.consume`; durations in seconds."""

    topic: str
    group: str
    max_messages: int
    wait: float
    invisible: float | None
    queues: Sequence[int]
    on_error: OnError
    confirm: bool
    max_in_hand: int
    until_idle: float | None
    filter: pb.Filter | None
    lite_topics: Sequence[str] = ()

    def idle_left(self, idle: float) -> float | None:
        """Seconds left of `until_idle`, after `idle` seconds without a message; None: it never ends."""
        return None if self.until_idle is None else max(0.0, self.until_idle - idle)

    def pop_wait(self, idle: float) -> float:
        """Seconds that one pop may wait."""
        left = self.idle_left(idle)
        return self.wait if left is None else min(self.wait, left)


def consume_options(
    topic: str,
    group: str,
    *,
    max_messages: int = 256,
    wait: Duration = 20.0,
    invisible: Duration | None = None,
    queues: Sequence[int] = (),
    on_error: OnError = "log",
    confirm: bool = False,
    max_in_hand: int = 1000,
    until_idle: Duration | None = None,
    tag: str | None = None,
    sql: str | None = None,
    lite_topics: Sequence[str] = (),
) -> ConsumeOptions:
    """The options as they were given to the client or a worker, read. Raises InvalidField, TypeError."""
    check_on_error(on_error)
    lease = seconds_or_none(invisible, "invisible")
    from_one("", invisible=lease, max_in_hand=max_in_hand)
    check_batch(max_messages)
    return ConsumeOptions(
        topic,
        group,
        max_messages,
        seconds_of(wait, "wait"),
        lease,
        queues,
        on_error,
        confirm,
        max_in_hand,
        idle_limit(until_idle),
        filter_row(tag, sql),
        tuple(listed_texts(lite_topics, "lite_topics")),
    )


def check_batch(max_messages: int) -> None:
    """Refuses what the broker would refuse only once the batches of a loop have grown so large. Raises InvalidField."""
    from_one("", max_messages=max_messages)
    if isinstance(max_messages, Integral) and max_messages > ENTRIES_MAX:
        raise InvalidField(
            f"max_messages is {max_messages}: a request takes at most {ENTRIES_MAX}",
            code="INVALID_FIELD",
            field="max_messages",
            action="give less: the loop asks again by itself",
        )


def idle_limit(until_idle: Duration | None) -> float | None:
    """Seconds without a message after which a loop ends. Raises InvalidField for less than 0."""
    seconds = seconds_or_none(until_idle, "until_idle")
    if seconds is not None and seconds < 0:
        raise InvalidField(
            f"until_idle is {until_idle!r}: it is a time without a message",
            code="INVALID_FIELD",
            field="until_idle",
            action="give 0 or more, or leave it out to go on until the loop is stopped",
        )
    return seconds
