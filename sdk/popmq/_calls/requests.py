"""Requests that wait for a reply, as pure functions: the properties that both sides read, and what becomes of them.

popmq_reply_to         TOPIC/LITE-TOPIC: where the reply goes; the lite topic is of one client
popmq_correlation_id   on the request and on its reply
popmq_error            on a reply: the handler rejected the request; the text says why
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from popmq._given.encoding import as_json
from popmq.errors import DeadlineExceeded, InvalidField, RequestFailed
from popmq.message import BODY_TYPES, Body, Delivery, Message, Send, wrong_body
from popmq.outcome import Outcome

REPLY_TO, CORRELATION_ID, ERROR = "popmq_reply_to", "popmq_correlation_id", "popmq_error"
#: The LITE topic of replies, and the group that reads it.
REPLIES = "popmq-replies"
#: Seconds for which `request` waits if its caller does not say.
TIMEOUT_S = 30.0
#: Seconds after which a reply that no client has taken is dropped, and an idle lite topic is removed.
REPLY_TTL_S = 3600.0
#: Seconds of one pop of replies.
WAIT_S = 20.0


def request(message: Message | Body, reply_to: str, correlation_id: str) -> Message:
    """The message with where its reply goes. Raises TypeError."""
    return _with(message, {REPLY_TO: reply_to, CORRELATION_ID: correlation_id})


def reply(delivery: Delivery, message: Message | Body, error: str = "") -> tuple[str, Message]:
    """(topic, message) of a reply to a delivery. Raises InvalidField if the message is not a request; TypeError."""
    topic, slash, lite_topic = delivery.properties.get(REPLY_TO, "").partition("/")
    if not (topic and slash and lite_topic):
        raise InvalidField(
            f"message {delivery.message_id} asks for no reply",
            code="INVALID_FIELD",
            field=f"properties[{REPLY_TO}]",
            action="send it with client.request, or do not reply",
        )
    properties = {CORRELATION_ID: delivery.properties.get(CORRELATION_ID, "")}
    if error:
        properties[ERROR] = error[:1000]
    return topic, dataclasses.replace(_with(message, properties), lite_topic=lite_topic)


def wants_reply(delivery: Delivery) -> bool:
    """Whether a client waits for a reply to this message."""
    return REPLY_TO in delivery.properties


def answer(delivery: Delivery) -> Delivery:
    """A reply as `request` returns it. Raises RequestFailed if it says that the request was rejected."""
    if (why := delivery.properties.get(ERROR)) is not None:
        raise RequestFailed(f"the request was rejected: {why}", code="REQUEST_FAILED")
    return delivery


def no_answer(topic: str, timeout: float) -> DeadlineExceeded:
    """The error when nothing came in time."""
    return DeadlineExceeded(
        f"no reply to the request to {topic!r} within {timeout:g} s: it may still be handled",
        code="DEADLINE_EXCEEDED",
        action="look whether a consumer of the topic replies, or give it more time",
    )


def as_message(value: Any) -> Message | Body:
    """What a handler returned, as the body of a reply: texts and bytes as they are, all else as JSON.

    Raises TypeError and ValueError as Message.json does.
    """
    if isinstance(value, (Message, *BODY_TYPES)):
        return value
    return as_json(value)


def _with(message: Message | Body, properties: dict[str, str]) -> Message:
    if not isinstance(message, Message):
        if not isinstance(message, BODY_TYPES):
            raise wrong_body(message, "the message")
        message = Message(message)
    return dataclasses.replace(message, properties={**message.properties, **properties})


class _Acked:
    """The guard of a reply, which is acked before its caller has it."""

    def __deepcopy__(self, memo: object) -> None:
        """As of every guard: a copy has none."""

    def enter(self, delivery: Delivery) -> None: ...

    def leave(self, delivery: Delivery, error: BaseException | None) -> bool:
        return False

    async def leave_async(self, delivery: Delivery, error: BaseException | None) -> bool:
        return False

    def settle(self, delivery: Delivery, outcome: Outcome, sends: Sequence[Send] = ()) -> None: ...

    def reply(self, delivery: Delivery, message: Message | Body) -> Any:
        raise RuntimeError("this is a reply: send a new request")

    def give(self, delivery: Delivery, result: Any) -> None:
        raise RuntimeError("this is a reply, which is acked already: it has no result")

    def forward(self, delivery: Delivery, send: Send) -> None:
        raise RuntimeError("this is a reply, which is acked already: send what follows from it")


#: One for all replies.
ACKED = _Acked()
