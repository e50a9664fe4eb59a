"""The options of `client.pull_consume` and `broadcast_consume`, and the intervals of a pull consumer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from popmq._consuming.consume_options import check_batch, idle_limit
from popmq._consuming.guard import OnError, check_on_error
from popmq._given.fields import filter_row
from popmq.duration import Duration, seconds_of
from popmq.errors import InvalidField
from popmq.process_queue import FlowControl
from popmq.pull import Strategy
from popmq.topic import Start
from popmq_proto.v1 import popmq_pb2 as pb

#: The queue number of the group's retry topic.
RETRY = -1

#: Seconds between two rebalances; sooner when a heartbeat reports a change.
REBALANCE_S = 20.0
#: Seconds after the broker was away before a consumer takes further queues: by then all clients have sent heartbeats.
SETTLE_S = 10.0
#: Seconds before a failed or incomplete step is tried again.
AGAIN_S = 1.0
#: Seconds between two commits: after a kill, messages of this time are delivered again.
COMMIT_S = 5.0
#: Seconds that a lost queue is kept for the messages that handlers still have.
LEAVE_S = 15.0
#: Seconds between two lock renewals, and seconds after which a lock is no longer relied on. The broker keeps locks
#: twice as long, so the clocks of both need not agree.
LOCK_S = 20.0
LOCK_VALID_S = 30.0
#: Seconds before a failed pull is tried again, and between two checks of a paused consumer.
FAILED_S = 1.0
PAUSED_S = 1.0
#: Seconds before a failed message is delivered again in an orderly queue.
ORDERLY_AGAIN_S = 1.0
#: Flow control logs one in this many times that it holds a queue back.
HELD_BACK_LOG_EVERY = 1000


@dataclass(frozen=True, slots=True)
class PullOptions:
    """The parameters of `pull_consume` and `broadcast_consume`; durations in seconds."""

    topic: str
    group: str  # "": a broadcast
    filter: pb.Filter | None
    start: Start | None
    strategy: Strategy
    queues: Sequence[int]
    orderly: bool
    max_messages: int
    wait: float
    flow: FlowControl
    on_error: OnError
    until_idle: float | None


def pull_options(
    topic: str,
    group: str,
    tag: str | None,
    sql: str | None,
    start: Start | None,
    max_messages: int,
    wait: Duration,
    flow: FlowControl | None,
    on_error: OnError,
    until_idle: Duration | None,
    strategy: Strategy = "AVG",
    queues: Sequence[int] = (),
    orderly: bool = False,
) -> PullOptions:
    """The options as they were given to the client, read. Raises InvalidField."""
    check_strategy(strategy)
    check_on_error(on_error)
    check_batch(max_messages)
    return PullOptions(
        topic,
        group,
        filter_row(tag, sql),
        start,
        strategy,
        queues,
        orderly,
        max_messages,
        seconds_of(wait, "wait"),
        flow or FlowControl(),
        on_error,
        idle_limit(until_idle),
    )


def check_strategy(strategy: str) -> None:
    """Raises InvalidField for an unknown name, which the broker would answer as if it knew no assignment yet."""
    if strategy not in get_args(Strategy):
        words = ", ".join(get_args(Strategy))
        raise InvalidField(f"{strategy!r} is not one of {words}", code="INVALID_FIELD", field="strategy")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to start in a queue, where its end was at that time, and when the topic was created that both are of."""

    offset: int
    max_offset: int
    topic_created_ms: int
