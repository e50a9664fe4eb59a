"""Messages as rows of the contract, and the names and numbers that a producer gives them."""

from __future__ import annotations

import dataclasses
import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from popmq._given import checking
from popmq._given.fields import moment_ms, ms
from popmq.duration import seconds_of
from popmq.errors import InvalidField
from popmq.message import BODY_TYPES, Body, Message, TraceContext, wrong_body
from popmq_proto.v1 import popmq_pb2 as pb

BODY_BYTES_MAX = 4 * 1024 * 1024


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
    check_body(len(body), index)
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


def check_body(size: int, index: int) -> None:
    """Raises InvalidField for a body that would not pass the transport."""
    if size > BODY_BYTES_MAX:
        raise InvalidField(
            f"the body has {size} bytes, more than {BODY_BYTES_MAX}",
            code="INVALID_FIELD",
            field=f"messages[{index}].body",
            action="store it elsewhere and send where, or cut it",
        )


def _named(error: TypeError | ValueError, message: Message, where: str) -> TypeError | ValueError:
    """The error with the field that protobuf did not name."""
    texts: dict[str, Any] = {"key": message.key}
    if isinstance(message.trace_context, TraceContext):
        texts |= {f"trace_context.{name}": text for name, text in dataclasses.asdict(message.trace_context).items()}
    if isinstance(message.properties, Mapping):
        texts |= {f"properties[{name!r}]": text for name, text in message.properties.items()}
    if not isinstance(message.more_keys, str) and isinstance(message.more_keys, Iterable):
        texts |= {f"more_keys[{index}]": key for index, key in enumerate(message.more_keys)}
    for name, text in texts.items():
        if not isinstance(text, str):
            return TypeError(f"{where}{name} is {text!r:.80}, of type {type(text).__name__}: give a str")
    names = ("message_id", "tag", "properties", "message_group", "lite_topic", "priority", "born_ms")
    return checking.named(error, pb.Message, where, {name: getattr(message, name) for name in names})


def _add_rare(row: pb.Message, message: Message) -> None:
    """Fields that most messages leave unset: asked for one by one, they cost nothing then."""
    if message.more_keys:
        row.keys.extend(checking.listed_texts(message.more_keys, "more_keys"))
    if message.message_group:
        row.message_group = message.message_group
    if message.lite_topic:
        row.lite_topic = message.lite_topic
    if message.deliver_at is not None or message.delay or message.ttl:
        _add_times(row, message)
    if message.priority:
        row.priority = message.priority
    if message.transaction:
        row.transaction = True
    if message.encoding:
        row.encoding = encoding_of(message.encoding)
    if message.trace_context:
        if not isinstance(message.trace_context, TraceContext):
            raise TypeError(f"trace_context is {message.trace_context!r:.80}: give a popmq.TraceContext")
        row.trace_context.traceparent = message.trace_context.traceparent
        row.trace_context.tracestate = message.trace_context.tracestate


def _add_times(row: pb.Message, message: Message) -> None:
    """When it becomes visible, and how long it lives."""
    if message.deliver_at is not None:
        row.deliver_at_ms = moment_ms(message.deliver_at)
    if message.delay:
        row.delay_ms = ms(seconds_of(message.delay, "delay"))
    if message.ttl:
        row.ttl_ms = ms(seconds_of(message.ttl, "ttl"))


def encoding_of(name: str) -> Any:
    """Raises InvalidField for an unknown encoding."""
    try:
        return pb.Encoding.Value(f"ENCODING_{name}")
    except ValueError:
        raise InvalidField(f"{name!r} is not an encoding", code="INVALID_FIELD", field="encoding") from None
