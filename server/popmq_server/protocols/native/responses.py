"""Answers of the engine → responses of popmq.v1.

See docs/decisions/0024-answers-from-stored-bytes.md.
"""

import functools
from collections.abc import AsyncIterator, Iterable, Sequence

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import pause
from popmq_server.contract.commands import Changed, Place, Popped, Position, Pulled, ReadRow, Renewed, Send, Sent
from popmq_server.contract.commands.numbers import GroupNumbers
from popmq_server.errors import Refused
from popmq_server.protocols.native.columns import columns, columns_of
from popmq_server.protocols.refusals import error_info
from popmq_server.values.message import length_prefixed, varint
from popmq_server.values.records import FairKeys, Group, Subscription, Topic

#: Rows of an answer that are encoded in one turn of the event loop: some 0.3 ms.
ROWS_A_TURN = 512


def sent(command: Send, answer: Sent) -> bytes:
    """A SendResponse, encoded by hand as in `_rows`: stored messages have consecutive offsets from `answer.first` on.

    SendResult: 1 error · 2 message_id · 3 queue · 4 offset.
    """
    if answer.places is not None:
        return _placed(command, answer)
    offset, parts = answer.first, list[bytes]()
    queue = b"\x18" + varint(answer.queue)
    for entry in command.entries:
        if isinstance(entry, Refused):
            result = pb.SendResult(error=error_info(entry)).SerializeToString()
            parts += (b"\x0a", varint(len(result)), result)
        else:
            message_id, place = entry.message_id.encode(), varint(offset)
            parts += (_result(len(message_id), len(queue) + 1 + len(place)), message_id, queue, b"\x20", place)
            offset += 1
    if answer.duplicate:
        parts.append(b"\x10\x01")
    return b"".join(parts)


@functools.lru_cache(maxsize=4096)
def _result(id_bytes: int, rest_bytes: int) -> bytes:
    """The bytes before the message id in a result."""
    head = b"\x12" + varint(id_bytes)
    return b"\x0a" + varint(len(head) + id_bytes + rest_bytes) + head


def _placed(command: Send, answer: Sent) -> bytes:
    """A SendResponse of messages that have a Place each."""
    places = iter(answer.places or ())
    results = []
    for number, entry in enumerate(command.entries):
        found = entry if isinstance(entry, Refused) else next(places)
        if isinstance(found, Refused) and found is not entry:
            found.field = f"messages[{number}].{found.field}"
        if isinstance(found, Refused):
            results.append(pb.SendResult(error=error_info(found)))
        else:
            results.append(place(found, "" if isinstance(entry, Refused) else entry.message_id))
    return pb.SendResponse(results=results, duplicate=answer.duplicate).SerializeToString()


def place(found: Place, message_id: str) -> pb.SendResult:
    """The SendResult of one stored message."""
    return pb.SendResult(
        message_id=message_id,
        queue=found.queue,
        offset=found.offset,
        recall_handle=found.recall_handle,
        transaction_id=found.transaction_id,
        duplicate=found.duplicate,
    )


def popped(answer: Popped, request: pb.PopRequest) -> bytes:
    """A PopResponse, joined from stored bytes.

    Protobuf parsers merge the fields of a message wherever they stand, so the other fields are simply appended.
    """
    rest = pb.PopResponse(
        popped_ms=answer.popped_ms, invisible_until_ms=answer.due_ms, rest=answer.rest, replay=answer.replay
    )
    if answer.sealed is not None:
        count, end, stolen, lost = answer.sealed
        rest.sealed.CopyFrom(pb.Sealed(count=count, end=end, torn_stolen=stolen, torn_lost=lost))
    if request.format == pb.FORMAT_COLUMNS:
        rows = [row[:5] for row in answer.rows]
        handles = [] if answer.sealed else [handle.decode() for handle in answer.handles]
        return _columns(rows, handles, request) + rest.SerializeToString()
    return b"".join(_rows(answer)) + rest.SerializeToString()


def _rows(answer: Popped) -> list[bytes]:
    """PopResponse.deliveries, encoded by hand: measured 2 µs per message, 5 µs through protobuf objects.

    Delivery: 1 message · 2 handle · 3 attempt · 4 queue · 5 offset · 6 stored_ms. A test reads it with generated code.
    """
    parts: list[bytes] = []
    handles = length_prefixed(answer.handles)
    for (data, stored_ms, queue, offset, attempt, _), handle in zip(answer.rows, handles, strict=True):
        tail = b"\x12" + handle + _place(attempt, queue) + varint(offset) + _stored(stored_ms)
        parts += (_delivery(len(data), len(tail)), data, tail)
    return parts


async def pulled(answer: Pulled, request: pb.PullRequest) -> bytes:
    """A PullResponse, joined like a PopResponse: 1 status · 2 deliveries, which have no handle.

    The rows are encoded in pieces: 4,096 of them take as long as many calls of others. Columns of several pieces are
    one message, since parsers append the values of a repeated field.
    """
    rest = pb.PullResponse(
        status=answer.status,
        next_offset=answer.next_offset,
        min_offset=answer.min_offset,
        max_offset=answer.max_offset,
        topic_created_ms=answer.topic_created_ms,
        passed_over=answer.passed_over,
    )
    if request.format != pb.FORMAT_COLUMNS:
        return b"".join([*await delivered(b"\x12", answer.rows), rest.SerializeToString()])
    names, parts = columns_of(request), list[bytes]()
    async for rows in _turns(answer.rows):
        parts.append(columns(rows, [], names))
    return b"".join([b"\x32", varint(sum(map(len, parts))), *parts, rest.SerializeToString()])


async def delivered(field: bytes, rows: Sequence[ReadRow]) -> list[bytes]:
    """`deliveries`, encoded in pieces."""
    parts = list[bytes]()
    async for some in _turns(rows):
        parts += deliveries(field, some)
    return parts


async def _turns(rows: Sequence[ReadRow]) -> AsyncIterator[Sequence[ReadRow]]:
    """The rows of an answer in pieces; lets other calls run in between."""
    if len(rows) <= ROWS_A_TURN:
        yield rows
        return
    for first in range(0, len(rows), ROWS_A_TURN):
        if first:
            await pause(0)
        yield rows[first : first + ROWS_A_TURN]


def _columns(rows: Sequence[ReadRow], handles: list[str], request: pb.PopRequest | pb.PullRequest) -> bytes:
    """PopResponse.columns and PullResponse.columns: both have the number 6."""
    made = columns(rows, handles, columns_of(request))
    return b"\x32" + varint(len(made)) + made


def deliveries(field: bytes, rows: Iterable[tuple[bytes, int, int, int, int]]) -> list[bytes]:
    """Deliveries without handles, encoded by hand as in `_rows`. `field`: the protobuf key of the repeated field."""
    parts: list[bytes] = []
    for data, stored_ms, queue, offset, attempt in rows:
        head = b"\x0a" + varint(len(data))
        tail = _place(attempt, queue) + varint(offset) + _stored(stored_ms)
        parts += (field, varint(len(head) + len(data) + len(tail)), head, data, tail)
    return parts


@functools.lru_cache(maxsize=4096)
def _delivery(data_bytes: int, tail_bytes: int) -> bytes:
    """The bytes before a message in PopResponse.deliveries."""
    size = varint(data_bytes)
    return b"\x0a" + varint(1 + len(size) + data_bytes + tail_bytes) + b"\x0a" + size


@functools.lru_cache(maxsize=4096)
def _place(attempt: int, queue: int) -> bytes:
    """Encodes the fields before the number of the offset."""
    return b"\x18" + varint(attempt) + b"\x20" + varint(queue) + b"\x28"


@functools.lru_cache(maxsize=4096)
def _stored(stored_ms: int) -> bytes:
    return b"\x30" + varint(stored_ms)


def _visible(visible_ms: int, dead_lettered: bool, handle: str = "") -> pb.InvisibleTimeResult:
    return pb.InvisibleTimeResult(
        visible_ms=0 if dead_lettered else visible_ms, dead_lettered=dead_lettered, handle=handle
    )


def acked(answer: list[Refused | None]) -> pb.AckResponse:
    """Makes the answer: without results if all succeeded, which keeps the answer to a batch to a few bytes."""
    if not any(answer):
        return pb.AckResponse()
    return pb.AckResponse(
        results=[pb.AckResult(error=error_info(entry)) if entry else pb.AckResult() for entry in answer]
    )


def changed(answer: Sequence[Changed | Renewed | Refused]) -> pb.ChangeInvisibleTimeResponse:
    """When each message is visible again, or that it is a dead letter now."""
    results = [
        pb.InvisibleTimeResult(error=error_info(entry)) if isinstance(entry, Refused) else _visible(*entry)
        for entry in answer
    ]
    return pb.ChangeInvisibleTimeResponse(results=results)


def position(answer: Position) -> pb.Position:
    return pb.Position(queues=answer.queues, retry=answer.retry)


def subscription(topic: str, row: Subscription) -> pb.Subscription:
    """How a group reads a topic; without a filter until one is set."""
    made = pb.Subscription(topic=topic, mode=row.mode, share_number=row.share_number)
    if row.filter_kind:
        setattr(made.filter, row.filter_kind, row.filter_text)
    return made


def group_stats(row: GroupNumbers, now_ms: int, rates: tuple[float, float]) -> pb.GroupStats:
    """`rates`: (popped, acked) per second."""
    return pb.GroupStats(
        group=row.group,
        topic=row.topic,
        ready=row.ready,
        in_flight=row.in_flight,
        retry=row.retry,
        backoff=row.backoff,
        dead=row.dead,
        acked=row.acked,
        dropped=row.dropped,
        quarantined=row.quarantined,
        oldest_age_ms=row.oldest_ms and max(0, now_ms - row.oldest_ms),
        popped_per_s=rates[0],
        acked_per_s=rates[1],
        waiters=row.parked,
        sessions=row.sessions,
        owners=row.owners,
        waiting=row.waiting,
        filtered=row.filtered,
        stopped=row.stopped,
        mode=row.mode,
        delayed=row.delayed,
        read_ms=row.read_ms,
        expires_ms=row.expires_ms,
        bytes_behind=row.bytes_behind,
        dead_blocked=row.dead_blocked,
        expired=row.expired,
        keys_waiting=row.keys_waiting,
        busiest_keys=[pb.FairKeyStats(**key._asdict()) for key in row.busiest_keys],
    )


def topic(topic: Topic) -> pb.Topic:
    """Settings in the form of the contract."""
    made = pb.Topic(
        name=topic.name,
        type=topic.type,
        queues=topic.queues,
        retention=pb.Retention(by_age=topic.by_age, keep_ms=topic.keep_ms, max_bytes=topic.bytes_max),
        created_ms=topic.created_ms,
        unique_ids_ms=topic.unique_ids_ms or None,
        permission=topic.permission,
    )
    quota = pb.Quota(
        send_messages_per_s=topic.send_messages_per_s,
        send_bytes_per_s=topic.send_bytes_per_s,
        message_bytes=topic.message_bytes_max,
        pop_messages_per_s=topic.pop_messages_per_s,
    )
    if topic.type == "LITE":
        made.lite.CopyFrom(pb.LiteTopics(topics_max=topic.lite_topics_max, ttl_ms=topic.lite_ttl_ms))
    if quota.ByteSize():
        made.quota.CopyFrom(quota)
    return made


def queues(queues: list[tuple[int, int, int]]) -> list[pb.QueueStats]:
    return [pb.QueueStats(queue=queue, min_offset=least, max_offset=most) for queue, least, most in queues]


def group(group: Group) -> pb.Group:
    """Settings in the form of the contract."""
    made = pb.Group(
        name=group.name,
        max_attempts=group.max_attempts,
        backoff=pb.Backoff(delays_ms=group.delays_ms),
        invisible_ms=group.invisible_ms,
        share_number=group.share_number,
        exclusive_owner=group.exclusive_owner,
        fifo=group.fifo,
        in_flight_max=group.in_flight_max,
        stop_on_failure=group.stop_on_failure,
        lite_exclusive=group.lite_exclusive,
        consume_enable=group.consume_enable,
        subscription_expiry_ms=group.subscription_expiry_ms,
        results_keep_ms=group.results_keep_ms,
        created_ms=group.created_ms,
        snoozes_max=group.snoozes_max,
        dead_letter_expired=group.dead_letter_expired,
    )
    made.start.CopyFrom(
        pb.StartPosition(**{"from": pb.StartFrom.Value(group.start_from), "timestamp_ms": group.start_ms})
    )
    if group.fair_keys is not None and group.fair_keys.on:
        made.fair_keys.CopyFrom(_fair_keys(group.fair_keys))
    return made


def _fair_keys(fair: FairKeys) -> pb.FairKeys:
    made = pb.FairKeys(
        label_separator=fair.separator,
        in_flight_max=fair.in_flight_max,
        messages_per_s=fair.messages_per_s,
        exceptions=[pb.FairKeyLimits(**limits._asdict()) for limits in fair.exceptions],
    )
    if fair.source == "property":
        made.property = fair.property_name
    else:
        made.message_key = True
    return made
