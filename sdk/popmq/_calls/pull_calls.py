"""Requests of pulling by queue and offset, as pure functions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from popmq._calls.deliveries import columns_asked, read_columns, read_delivery
from popmq._given.fields import ENTRIES_MAX, ms
from popmq._given.reason import clip
from popmq._transport.call import Call, error_of
from popmq.duration import Duration
from popmq.errors import PopMQError
from popmq.message import Delivery, DeliveryGuard
from popmq.outcome import InvisibleTimeResult, Outcome, Rejected, Released
from popmq.pull import Pulled, PulledColumns, QueueLocks
from popmq_proto.v1 import popmq_pb2 as pb

RETRY_PREFIX = "%RETRY%"


def retry_topic(topic: str, group: str) -> str:
    """Where messages come again that were sent back."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def pull(
    topic: str,
    group: str,
    queue: int,
    offset: int,
    *,
    max_messages: int,
    wait: float,
    max_bytes: int = 0,
    filter: pb.Filter | None = None,
    commit_offset: int | None = None,
    topic_created_ms: int = 0,
    shown_topic: str = "",
    guard: DeliveryGuard | None = None,
) -> Call[Pulled]:
    """Reads a queue from an offset on. Deliveries say that they are of `shown_topic`, if that is not `topic`."""
    request = pb.PullRequest(
        topic=topic,
        group=group,
        queue=queue,
        offset=offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        wait_ms=ms(wait),
        filter=filter,
        commit_offset=commit_offset,
        topic_created_ms=topic_created_ms,
    )
    shown = shown_topic or topic

    def read(reply: pb.PullResponse, _retried: bool) -> Pulled:
        deliveries = tuple(read_delivery(row, shown, group, 0, guard) for row in reply.deliveries)
        return Pulled(_status(reply.status), deliveries, *_bounds(reply))

    return Call("Broker.Pull", request, read, "pop", wait)


def pull_columns(
    topic: str,
    queue: int,
    offset: int,
    end: int,
    *,
    max_messages: int,
    max_bytes: int,
    filter: pb.Filter | None,
    columns: Collection[str] | None,
    topic_created_ms: int = 0,
) -> Call[PulledColumns]:
    """Reads a queue from an offset to an end, without a group, as columns."""
    request = pb.PullRequest(
        topic=topic,
        queue=queue,
        offset=offset,
        end_offset=end,
        max_messages=max_messages,
        max_bytes=max_bytes,
        filter=filter,
        format=pb.FORMAT_COLUMNS,
        columns=columns_asked(columns),
        topic_created_ms=topic_created_ms,
    )

    def read(reply: pb.PullResponse, _retried: bool) -> PulledColumns:
        columns = read_columns(reply.columns)
        return PulledColumns(_status(reply.status), columns, *_bounds(reply), passed_over=reply.passed_over)

    return Call("Broker.Pull", request, read, "pop")


def _status(number: Any) -> str:
    """Its name; of a newer broker's status its number, which is taken for "nothing found"."""
    return pb.PullStatus.Name(number) if number in pb.PullStatus.values() else f"PULL_STATUS_{number}"


def _bounds(reply: pb.PullResponse) -> tuple[int, int, int, int]:
    return reply.next_offset, reply.min_offset, reply.max_offset, reply.topic_created_ms


def update_offsets(topic: str, group: str, offsets: Mapping[int, int], topic_created_ms: int = 0) -> Call[None]:
    """Moves the committed offsets of a group, backwards too."""
    request = pb.UpdateOffsetsRequest(topic=topic, group=group, offsets=offsets, topic_created_ms=topic_created_ms)
    return Call("Broker.UpdateOffsets", request, _nothing)


def sent_back(
    delivery: Delivery, retry: bool, delay: Duration | None = None, reason: str = "", reject: bool = False
) -> pb.SentBack:
    """An entry of `send_back`, with the attempts that were made in place too."""
    return pb.SentBack(
        queue=delivery.queue,
        offset=delivery.offset,
        retry=retry,
        delay_ms=None if delay is None else ms(delay, "delay"),
        reason=clip(reason),
        reject=reject,
        attempts=delivery.attempt,
    )


def dropped(queue: int, offset: int, retry: bool, reason: str) -> pb.SentBack:
    """An entry for a delivery that the program has dropped: only the attempts that the broker counted are known."""
    return pb.SentBack(queue=queue, offset=offset, retry=retry, reason=clip(reason))


def pulled_back(
    delivery: Delivery, delay: Duration | None, reason: str, reject: bool, max_attempts: int | None
) -> pb.SentBack:
    """A delivery of `client.pull`, which says by its topic whether it came from the retry topic."""
    row = sent_back(delivery, delivery.topic.startswith(RETRY_PREFIX), delay, reason, reject)
    row.max_attempts = max_attempts or 0
    return row


def by_place(deliveries: Sequence[Delivery]) -> Iterator[tuple[str, str, list[int]]]:
    """Topic, group, and indices of deliveries in runs that one request can carry; a retry topic is its topic's."""
    places: dict[tuple[str, str], list[int]] = {}
    for index, delivery in enumerate(deliveries):
        topic = delivery.topic.removeprefix(f"{RETRY_PREFIX}{delivery.group}+")
        places.setdefault((topic, delivery.group), []).append(index)
    for (topic, group), indices in places.items():
        for start in range(0, len(indices), ENTRIES_MAX):
            yield topic, group, indices[start : start + ENTRIES_MAX]


def sent_back_as(delivery: Delivery, retry: bool, outcome: Outcome) -> pb.SentBack:
    """A pulled delivery that ended otherwise than acked."""
    if isinstance(outcome, Released):
        return sent_back(delivery, retry, outcome.delay, outcome.reason)
    assert isinstance(outcome, Rejected)
    return sent_back(delivery, retry, None, outcome.reason, reject=True)


def send_back(
    topic: str, group: str, client_id: str, rows: Sequence[pb.SentBack], topic_created_ms: int = 0
) -> Call[list[Any]]:
    """Gives pulled messages back; reads an InvisibleTimeResult or the error of each."""

    def read(reply: pb.SendBackResponse, _retried: bool) -> list[InvisibleTimeResult | PopMQError]:
        return [
            error_of(result.error)
            if result.HasField("error")
            else InvisibleTimeResult(result.visible_ms, result.dead_lettered)
            for result in reply.results
        ]

    request = pb.SendBackRequest(
        topic=topic, group=group, client_id=client_id, messages=rows, topic_created_ms=topic_created_ms
    )
    return Call("Broker.SendBack", request, read, "settle")


def lock_queues(topic: str, group: str, client_id: str, queues: Sequence[int]) -> Call[QueueLocks]:
    """Takes or renews queues for one client."""
    return Call(
        "Broker.LockQueues",
        pb.LockQueuesRequest(topic=topic, group=group, client_id=client_id, queues=queues),
        lambda reply, _: QueueLocks(tuple(reply.queues), reply.lock_ms / 1000),
    )


def unlock_queues(topic: str, group: str, client_id: str, queues: Sequence[int]) -> Call[None]:
    """Gives queues free; none named: all of this client's."""
    request = pb.UnlockQueuesRequest(topic=topic, group=group, client_id=client_id, queues=queues)
    return Call("Broker.UnlockQueues", request, _nothing)


def _nothing(_reply: Any, _retried: bool) -> None:
    return None
