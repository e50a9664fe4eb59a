"""Recall handles: the brokers' own, passed through. They name their topic and broker, and no broker trusts them."""

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import recall
from popmq_remoting.messages.recall import BrokerRecallHandle
from popmq_server.errors import invalid


def read(text: str, topic: str, field: str = "recall_handle") -> BrokerRecallHandle:
    """What a recall handle names. `topic`: as brokers call it. Raises Refused INVALID_FIELD.

    A broker answers OK to a handle of a message that never was: OK means that it was asked for.
    """
    try:
        handle = recall.read(text)
    except BadFormat:
        raise invalid(
            "this is not a valid recall handle",
            field=field,
            action="pass the recall handle unchanged, as Send returned it",
        ) from None
    if handle.topic != topic:
        raise invalid(
            "this recall handle is of another topic",
            field=field,
            action="name the topic that the message was sent to",
        )
    return handle
