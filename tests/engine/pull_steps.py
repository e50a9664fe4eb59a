"""Pull consumers as plain calls on a rig."""

from collections.abc import Mapping
from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.values.records import Subscription
from tests.engine.rig import Rig, message, parsed
from tests.known import known

RETRY = "%RETRY%g+t"


def pull(rig: Rig, offset: int = 0, queue: int = 0, topic: str = "t", group: str = "g", **asked: Any) -> ask.Pulled:
    return rig.do(ask.Pull(topic, group, queue, offset, **asked))  # type: ignore[no-any-return]


def texts(pulled: ask.Pulled) -> list[str]:
    return [parsed(row[0]).body.decode() for row in pulled.rows]


def places(pulled: ask.Pulled) -> list[tuple[str, int, int]]:
    """(body, offset, attempt) of each message."""
    return [(parsed(row[0]).body.decode(), row[3], row[4]) for row in pulled.rows]


def pulled_again(rig: Rig, **asked: Any) -> list[tuple[str, int, int]]:
    """(body, offset, attempt) of each message in the retry topic of g in t."""
    return places(pull(rig, 0, topic=RETRY, **asked))


def switch(rig: Rig, mode: str, topic: str = "t", group: str = "g", share_number: int = 0) -> Subscription:
    """Switches the consume mode as the broker does: repeats until everything has moved."""
    subscription: Subscription
    subscription, left = rig.do(ask.SetConsumeMode(topic, group, mode, share_number))
    finish(rig, left, topic, group)
    return subscription


def finish(rig: Rig, left: bool, topic: str = "t", group: str = "g") -> None:
    while left:
        left = rig.do(operations.Sweep(topic, group))


def pulling(rig: Rig, queues: int = 1, **settings: Any) -> Rig:
    """Topic t, and group g that pulls it from its beginning."""
    rig.topic("t", queues)
    rig.group("g", **settings)
    switch(rig, "PULL")
    return rig


def commit(rig: Rig, offset: int, queue: int = 0, topic: str = "t", group: str = "g") -> int:
    """Commits one offset. Returns the number of messages passed."""
    acked, left = rig.do(ask.UpdateOffsets(topic, group, {queue: offset}))
    while left:
        more, left = rig.do(ask.UpdateOffsets(topic, group, {queue: offset}))
        acked += more
    return int(acked)


def committed(rig: Rig, topic: str = "t", group: str = "g") -> list[int]:
    """The committed offset of each queue."""
    return [row.committed for row in rig.do(ask.QueryOffsets(topic, group))]


def send_back(rig: Rig, *offsets: int, queue: int = 0, topic: str = "t", group: str = "g", **how: Any) -> list[Any]:
    messages = tuple(ask.SentBack(queue, offset, **how) for offset in offsets)
    return rig.do(ask.SendBack(topic, group, messages))  # type: ignore[no-any-return]


def reset(
    rig: Rig,
    to: tuple[str, int] | None = None,
    offsets: Mapping[int, int] | None = None,
    topic: str = "t",
    group: str = "g",
) -> dict[int, int]:
    """Resets offsets as the broker does: repeats until all leases and retries of the group are removed."""
    done: operations.Reset = rig.do(ask.ResetOffsets(topic, group, to, dict(offsets) if offsets is not None else None))
    finish(rig, done.left, topic, group)
    return done.offsets


def sums(rig: Rig) -> tuple[int, int, int, int, int]:
    """(ready, in flight, retry, backoff, acked) of g in t."""
    numbers = rig.numbers()
    return numbers.ready, known(numbers.in_flight), numbers.retry, known(numbers.backoff), known(numbers.acked)


def one_by_one(rig: Rig, *bodies: str) -> None:
    """Sends messages so that each has its own block and chunk."""
    for body in bodies:
        rig.send(body)


def send_tagged(rig: Rig, *bodies: str) -> None:
    """The tag is the first character, the property `size` the number after it."""
    made = tuple(message(body, tag=body[0], properties={"size": body[1:]}) for body in bodies)
    rig.do(ask.Send("t", made, bytes=100))
