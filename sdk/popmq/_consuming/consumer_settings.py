"""The settings of a consumer: the options of `client.consume`, read."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from popmq._consuming.guard import check_on_error
from popmq._given.checking import from_one, known_names, listed_texts
from popmq._given.fields import ENTRIES_MAX, filter_row
from popmq.config import ConsumeOptions, LoopOptions, OnError
from popmq.duration import Duration, seconds_of, seconds_or_none
from popmq.errors import InvalidField
from popmq_proto.v1 import popmq_pb2 as pb

#: Seconds below which a remaining time counts as over: clocks are not more exact.
TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The options of `client.consume` as they are read, with their defaults; durations in seconds."""

    topic: str
    group: str
    filter: pb.Filter | None = None
    max_messages: int = 256
    wait: float = 20.0
    invisible: float | None = None
    queues: Sequence[int] = ()
    on_error: OnError = "log"
    confirm: bool = False
    max_in_hand: int = 1000
    until_idle: float | None = None
    lite_topics: Sequence[str] = ()

    def idle_left(self, idle: float) -> float | None:
        """Seconds left of `until_idle`, after `idle` seconds without a message; None: it never ends."""
        return None if self.until_idle is None else max(0.0, self.until_idle - idle)

    def pop_wait(self, idle: float) -> float:
        """Seconds that one pop may wait."""
        left = self.idle_left(idle)
        return self.wait if left is None else min(self.wait, left)


def consumer_settings(topic: str, group: str, options: ConsumeOptions) -> ConsumerSettings:
    """The options as they were given to the client or a worker, read. Raises InvalidField, TypeError."""
    known_names(options, ConsumeOptions.__annotations__, "consume")
    read = loop_settings(options)
    if "invisible" in options:
        read["invisible"] = seconds_or_none(options["invisible"], "invisible")
    if "lite_topics" in options:
        read["lite_topics"] = tuple(listed_texts(options["lite_topics"], "lite_topics"))
    from_one("", invisible=read.get("invisible"), max_in_hand=read.get("max_in_hand"))
    return ConsumerSettings(topic, group, **read)


def loop_settings(options: LoopOptions) -> dict[str, Any]:
    """The options, those that all loops have are read. Raises InvalidField."""
    read: dict[str, Any] = {name: value for name, value in options.items() if name not in ("tag", "sql")}
    read["filter"] = filter_row(options.get("tag"), options.get("sql"))
    if "on_error" in options:
        check_on_error(options["on_error"])
    if "max_messages" in options:
        check_batch(options["max_messages"])
    if "wait" in options:
        read["wait"] = seconds_of(options["wait"], "wait")
    if "until_idle" in options:
        read["until_idle"] = idle_limit(options["until_idle"])
    return read


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
