"""Requests of sending, as pure functions: messages, delays, transactions, stages of a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from popmq._calls.encoded import EncodedMessages
from popmq._calls.message_rows import message_rows
from popmq._given.fields import ENTRIES_MAX, moment_ms, ms
from popmq._transport.call import Call, EncodedRequest, error_of
from popmq.errors import InvalidField, PopMQError
from popmq.message import BODY_TYPES, Body, Message, SendReceipt, wrong_body
from popmq.sink import BatchCommit, StageName
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from datetime import datetime

    from popmq.duration import Duration
    from popmq.stats import Rescheduled
    from popmq.transaction import Resolution, TransactionCheck

SEND_BYTES_MAX = 15 * 1024 * 1024  # of 16 MiB: the rest is for what frames the messages
#: Messages as a request takes them.
Rows = Sequence[pb.Message] | EncodedMessages


def given_rows(messages: Any, message_id: Callable[[], str]) -> tuple[Rows, bool]:
    """What `send` was given as rows, and whether it was one message. Raises TypeError, InvalidField."""
    if isinstance(messages, EncodedMessages):
        return messages, False
    given, one = listed(messages)
    return message_rows(given, message_id), one


def listed(messages: Message | Body | Iterable[Message | Body]) -> tuple[list[Message | Body], bool]:
    """What `send` was given as a list, and whether it was one message. Raises TypeError.

    A dict is iterable too, but its keys are not what its caller wants to send.
    """
    if isinstance(messages, (Message, *BODY_TYPES)):
        return [messages], True
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise wrong_body(messages, "the message")
    return list(messages), False


def wrong_topic(topic: object) -> TypeError:
    """The error for a topic that is not a text."""
    return TypeError(f"the topic is {topic!r:.80}, of type {type(topic).__name__}: give its name as a str")


def message_groups(rows: Rows) -> frozenset[str]:
    """The message groups and lite topics of rows."""
    if isinstance(rows, EncodedMessages):
        return rows.message_groups
    return frozenset([row.message_group or row.lite_topic for row in rows]) - {""}


def cut(rows: Rows) -> Iterator[tuple[Rows, int]]:
    """Rows in runs that one request can carry, each with its bytes."""
    sizes = rows.sizes() if isinstance(rows, EncodedMessages) else [row.ByteSize() for row in rows]
    start = size = 0
    for index, more in enumerate(sizes):
        if index > start and (index - start == ENTRIES_MAX or size + more > SEND_BYTES_MAX):
            yield rows[start:index], size
            start, size = index, 0
        size += more
    if start < len(rows):
        yield rows[start:], size


def send(topic: str, parts: Sequence[Rows], producer_id: str, request_number: int) -> Call[list[Any]]:
    """Stores the rows of all parts; reads a SendReceipt or the error of each."""
    request = pb.SendRequest(topic=topic, producer_id=producer_id, request_number=request_number)
    return Call("Broker.Send", filled(request, parts), _read_send, "send")


def filled(request: Any, parts: Sequence[Rows]) -> Any:
    """The request with its messages: encoded ones stay bytes, and then the others become bytes as well."""
    if any(isinstance(part, EncodedMessages) for part in parts):
        return EncodedRequest(request, list(chain.from_iterable(map(_entries, parts))))
    for part in parts:
        request.messages.extend(part)
    return request


def _entries(rows: Rows) -> Sequence[bytes]:
    return rows.entries if isinstance(rows, EncodedMessages) else [row.SerializeToString() for row in rows]


def _read_send(reply: Any, _retried: bool) -> list[SendReceipt | PopMQError]:
    return [error_of(result.error) if result.HasField("error") else read_receipt(result) for result in reply.results]


def read_receipt(result: pb.SendResult) -> SendReceipt:
    """Where a stored message is."""
    if result.recall_handle or result.transaction_id:
        return SendReceipt(result.message_id, -1, -1, result.recall_handle, result.transaction_id, result.duplicate)
    if result.duplicate:
        return SendReceipt(result.message_id, result.queue, result.offset, duplicate=True)
    return SendReceipt(result.message_id, result.queue, result.offset)


# ── Delay and transactions ───────────────────────────────────────────────────────────────────────────────────────────


def recall(topic: str, recall_handle: str) -> Call[str]:
    """Takes a delayed message back; reads its id."""
    request = pb.RecallRequest(topic=topic, recall_handle=recall_handle)
    return Call("Broker.Recall", request, lambda reply, _: str(reply.message_id), "settle")


def reschedule(
    topic: str, recall_handle: str, deliver_at: datetime | float | None, delay: Duration | None
) -> Call[Rescheduled]:
    """Moves a delayed message to another time."""
    if (deliver_at is None) == (delay is None):
        raise InvalidField("not one of deliver_at and delay is given", code="INVALID_FIELD", field="delay")
    request = pb.RescheduleRequest(
        topic=topic,
        recall_handle=recall_handle,
        deliver_at_ms=0 if deliver_at is None else max(1, moment_ms(deliver_at)),
        delay_ms=0 if delay is None else max(1, ms(delay, "delay")),
    )
    return Call("Broker.Reschedule", request, _read_rescheduled, "settle")


def _read_rescheduled(reply: pb.RescheduleResponse, _retried: bool) -> Rescheduled:
    from popmq.stats import Rescheduled  # few programs need it

    return Rescheduled(reply.message_id, reply.recall_handle, reply.due_ms)


def resolution_of(name: str | None) -> Any:
    """None: not known yet. Raises InvalidField for any other value."""
    if name is None:
        return pb.RESOLUTION_UNSPECIFIED
    if name not in ("commit", "rollback"):
        raise InvalidField(f'{name!r} is neither "commit" nor "rollback"', code="INVALID_FIELD", field="resolution")
    return pb.Resolution.Value(name.upper())


def end_transactions(transaction_ids: Sequence[str], resolution: Resolution) -> Iterator[Call[list[Any]]]:
    """Commits half messages or rolls them back, in as many requests as it takes; each reads like a send."""
    for start in range(0, len(transaction_ids), ENTRIES_MAX):
        ends = [
            pb.TransactionEnd(transaction_id=each, resolution=resolution_of(resolution))
            for each in transaction_ids[start : start + ENTRIES_MAX]
        ]
        read = _read_send if resolution == "commit" else _read_dropped
        yield Call("Broker.EndTransaction", pb.EndTransactionRequest(ends=ends), read, "settle")


def _read_dropped(reply: Any, retried: bool) -> list[SendReceipt | PopMQError]:
    sent = _read_send(reply, retried)
    return [each if isinstance(each, PopMQError) else SendReceipt(each.message_id, -1, -1) for each in sent]


def hello(client_id: str, topics: Sequence[str]) -> pb.SessionRequest:
    """Begins a Session stream: who can be asked about transactions of which topics."""
    return pb.SessionRequest(hello=pb.SessionHello(client_id=client_id, transaction_topics=topics))


def checked(transaction_id: str, resolution: Any) -> pb.SessionRequest:
    """The answer to a check."""
    return pb.SessionRequest(checked=pb.TransactionChecked(transaction_id=transaction_id, resolution=resolution))


def read_check(row: pb.TransactionCheck) -> TransactionCheck:
    """The broker's question."""
    from popmq._calls.deliveries import read_delivery
    from popmq.transaction import TransactionCheck

    message = read_delivery(pb.Delivery(message=row.message), row.topic)
    return TransactionCheck(row.transaction_id, row.topic, row.check, message)


# ── Exactly-once sinks (popmq.sink) ──────────────────────────────────────────────────────────────────────────────────


def stage(topic: str, rows: Rows, sink: str, batch: int, stage_id: str, piece: int) -> Call[list[PopMQError | None]]:
    """Stores one piece of a stage; reads None or the error of each row. A repeat stores nothing."""
    request = pb.StageRequest(topic=topic, sink=sink, batch=batch, stage_id=stage_id, piece=piece)
    return Call("Broker.Stage", filled(request, [rows]), _read_stage, "send")


def _read_stage(reply: Any, _retried: bool) -> list[PopMQError | None]:
    return [error_of(result.error) if result.HasField("error") else None for result in reply.results]


def commit_batch(sink: str, batch: int, stages: Sequence[StageName], origin: str) -> Call[BatchCommit]:
    """Commits a batch; a repeat is a duplicate, so it may be retried."""
    request = pb.CommitBatchRequest(sink=sink, batch=batch, stages=_names(stages), origin=origin)
    return Call("Broker.CommitBatch", request, lambda reply, _: BatchCommit(reply.messages, reply.duplicate), "settle")


def drop_stages(sink: str, stages: Sequence[StageName]) -> Call[int]:
    """Drops stages; reads how many there were."""
    request = pb.DropStagesRequest(sink=sink, stages=_names(stages))
    return Call("Broker.DropStages", request, lambda reply, _: int(reply.dropped), "settle")


def _names(stages: Sequence[StageName]) -> list[pb.StageName]:
    return [pb.StageName(stage_id=name.stage_id, topic=name.topic, messages=name.messages) for name in stages]
