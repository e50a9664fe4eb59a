"""Tells who waits for the reply to a request that the request became a dead letter.

    dead letter with the properties of a request ─▶ noted (deadletter.py) ─▶ before the commit: a reply with popmq_error
                                                                             in the caller's lite topic of popmq-replies

A consumer that dies, or whose attempts are used up, sends no reply, and the caller would wait until its timeout. The
reply is that of a worker that rejects (docs/requests.md). Only this topic gets such messages, since a request names
where its reply goes. Where there is no room, or the topic is closed or takes no further lite topic, the caller waits.
"""

from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.delivery.deadletter import FailedRequest
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.topics import registry
from popmq_server.embedded.rules.topics.topic import enqueue
from popmq_server.embedded.state.space import GROW, messages_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused
from popmq_server.values import fields, permission
from popmq_server.values.message import REPLIES, check_lite_topic, varint
from popmq_server.values.outgoing import NO_TAG, Outgoing, hash8

#: Bytes of the reason in a reply, as a worker cuts it.
REASON_CHARACTERS = 1000


def tell(tx: Tx) -> None:
    """Stores the replies for the dead letters of this transaction."""
    topic = registry.topic(tx, REPLIES)
    if topic is None or topic.type != "LITE" or not permission.allows_send(topic):
        return
    for request in deadletter.failed_requests(tx):
        reply = _reply(request)
        if not tx.room.has(GROW, messages_bytes([len(reply.data)])):
            return
        try:
            lite_topic = lite_topics.ensure(tx, topic, check_lite_topic(request.lite_topic))
            if not isinstance(lite_topic, Refused):
                enqueue(tx, lite_topic, 0, (reply,))
        except Refused:  # a name that no lite topic has, or the last id is given
            continue


def _reply(request: FailedRequest) -> Outgoing:
    """As popmq.v1.Message: id, body, the two properties, lite topic."""
    message_id = f"{request.correlation_id[:64]}+dead"
    tries = "1 attempt" if request.attempts == 1 else f"{request.attempts} attempts"
    why = f"it is a dead letter of group {request.group} after {tries}: {request.reason}"
    properties = {"popmq_correlation_id": request.correlation_id, "popmq_error": why[:REASON_CHARACTERS]}
    parts = [_field(fields.MESSAGE_ID, message_id.encode()), _field(fields.BODY, b"failed")]
    parts += [
        _field(fields.PROPERTIES, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in properties.items()
    ]
    parts.append(_field(fields.LITE_TOPIC, request.lite_topic.encode()))
    return Outgoing(b"".join(parts), NO_TAG, (hash8(message_id),), message_id)


def _field(number: int, raw: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(raw)) + raw
