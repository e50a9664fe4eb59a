"""Requests of sending, as pure functions: messages, delays, transactions."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from popmq._given import checking
from popmq._given.fields import ENTRIES_MAX, moment_ms, ms
from popmq._transport.call import Call, error_of
from popmq.duration import seconds_of
from popmq.errors import InvalidField, PopMQError
from popmq.message import BODY_TYPES, Body, Message, SendReceipt, wrong_body
from popmq_proto.v1 import popmq_pb2 as pb

if TYPE_CHECKING:
    from popmq.transaction import Resolution, TransactionCheck

BODY_BYTES_MAX = 4 * 1024 * 1024
SEND_BYTES_MAX = 15 * 1024 * 1024  # of 16 MiB: the rest is for what frames the messages


class Numbering:
    """Names a producer and numbers what it makes, before the first try, so that a retry can be known as one.

    `next` of an itertools.count is one step of the interpreter: threads never draw the same number.
    """

    def __init__(self) -> None:
        self.producer_id = uuid.uuid4().hex
        self._prefix = self.producer_id[:16]
        self._messages = itertools.count(1)
        self._requests = itertools.count(1)
        self._attempts = itertools.count(1)

    def message_id(self) -> str:
        """A new message id: 16 characters of this producer, and a number."""
        return f"{self._prefix}-{next(self._messages):x}"

    def attempt_id(self) -> str:
        """A new attempt id: unlike those of an earlier process that had the same client id."""
        return f"{self._prefix}-{next(self._attempts):x}"

    def request_number(self) -> int:
        """A new request number, from 1."""
        return next(self._requests)


def listed(messages: Message | Body | Iterable[Message | Body]) -> tuple[list[Message | Body], bool]:
    """What `send` was given as a list, and whether it was one message. Raises TypeError.

    A dict is iterable too, but its keys are not what its caller wants to send.
    """
    if isinstance(messages, (Message, *BODY_TYPES)):
        return [messages], True
    if isinstance(messages, Mapping) or not isinstance(messages, Iterable):
        raise wrong_body(messages, "the message")
    return list(messages), False


def message_rows(messages: Iterable[Message | Body], message_id: Callable[[], str]) -> list[pb.Message]:
    """Messages as the contract's. Raises InvalidField for a body that would not pass the transport; TypeError."""
    born_ms = int(time.time() * 1000)
    return [_message_row(message, message_id, born_ms, index) for index, message in enumerate(messages)]


def _message_row(message: Message | Body, message_id: Callable[[], str], born_ms: int, index: int) -> pb.Message:
    if not isinstance(message, Message):
        if not isinstance(message, BODY_TYPES):
            raise wrong_body(message, f"messages[{index}]")
        message = Message(message)
    body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
    if len(body) > BODY_BYTES_MAX:
        raise InvalidField(
            f"the body has {len(body)} bytes, more than {BODY_BYTES_MAX}",
            code="INVALID_FIELD",
            field=f"messages[{index}].body",
            action="store it elsewhere and send where, or cut it",
        )
    try:
        row = pb.Message(
            message_id=message.message_id or message_id(),
            body=body,
            tag=message.tag,
            born_ms=message.born_ms or born_ms,
        )
        if message.key:
            row.keys.append(message.key)
        if message.properties:
            row.properties.update(message.properties)
        _add_rare(row, message)
    except (TypeError, ValueError) as error:
        raise _named(error, message, f"messages[{index}].") from None
    return row


def _named(error: TypeError | ValueError, message: Message, where: str) -> TypeError | ValueError:
    """The error with the field that protobuf did not name."""
    texts: dict[str, Any] = {"key": message.key}
    if isinstance(message.properties, Mapping):
        texts |= {f"properties[{name!r}]": text for name, text in message.properties.items()}
    if not isinstance(message.more_keys, str) and isinstance(message.more_keys, Iterable):
        texts |= {f"more_keys[{index}]": key for index, key in enumerate(message.more_keys)}
    for name, text in texts.items():
        if not isinstance(text, str):
            return TypeError(f"{where}{name} is {text!r:.80}, of type {type(text).__name__}: give a str")
    names = ("message_id", "tag", "properties", "message_group", "lite_topic", "priority", "born_ms")
    return checking.named(error, pb.Message, where, {name: getattr(message, name) for name in names})


def wrong_topic(topic: object) -> TypeError:
    """The error for a topic that is not a text."""
    return TypeError(f"the topic is {topic!r:.80}, of type {type(topic).__name__}: give its name as a str")


def _add_rare(row: pb.Message, message: Message) -> None:
    """Fields that most messages leave unset: asked for one by one, they cost nothing then."""
    if message.more_keys:
        row.keys.extend(checking.listed_texts(message.more_keys, "more_keys"))
    if message.message_group:
        row.message_group = message.message_group
    if message.lite_topic:
        row.lite_topic = message.lite_topic
    if message.deliver_at is not None:
        row.deliver_at_ms = moment_ms(message.deliver_at)
    if message.delay:
        row.delay_ms = ms(seconds_of(message.delay, "delay"))
    if message.priority:
        row.priority = message.priority
    if message.transaction:
        row.transaction = True
    if message.encoding:
        row.encoding = encoding_of(message.encoding)
    if message.trace_context:
        row.trace_context.traceparent = message.trace_context.traceparent
        row.trace_context.tracestate = message.trace_context.tracestate


def encoding_of(name: str) -> Any:
    """Raises InvalidField for an unknown encoding."""
    try:
        return pb.Encoding.Value(f"ENCODING_{name}")
    except ValueError:
        raise InvalidField(f"{name!r} is not an encoding", code="INVALID_FIELD", field="encoding") from None


def cut(rows: Sequence[pb.Message]) -> Iterator[tuple[Sequence[pb.Message], int]]:
    """Rows in runs that one request can carry, each with its bytes."""
    start = size = 0
    for index, row in enumerate(rows):
        more = row.ByteSize()
        if index > start and (index - start == ENTRIES_MAX or size + more > SEND_BYTES_MAX):
            yield rows[start:index], size
            start, size = index, 0
        size += more
    if start < len(rows):
        yield rows[start:], size


def send(topic: str, rows: Iterable[pb.Message], producer_id: str, request_number: int) -> Call[list[Any]]:
    """Stores rows; reads a SendReceipt or the error of each."""
    request = pb.SendRequest(topic=topic, producer_id=producer_id, request_number=request_number)
    request.messages.extend(rows)
    return Call("Broker.Send", request, _read_send, "send")


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
