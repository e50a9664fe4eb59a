"""Send: stores a request's messages in a topic, once, however often the request is retried.

    Send ──▶ request number answered before?            ──▶ the first answer
         ──▶ plain messages: one queue, in order            (topic.append)
         ──▶ the others: by message group, priority, time   (placing.place)

Producers are deduplicated by request: one key per message would cost more than the message (topic.py). A producer has
one id and numbers its requests; `dedup` stores the numbers of one producer side by side for DEDUP_KEEP_MS.
"""

import json

from popmq_server.commands import Place, Send, Sent
from popmq_server.errors import Refused, invalid, topic_not_found
from popmq_server.model import permission
from popmq_server.model.outgoing import Outgoing
from popmq_server.model.records import Topic
from popmq_server.sending import placing, size_limit
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import DEDUP_VALUE, U64, hash16
from popmq_server.topics import quotas
from popmq_server.topics.topic import append, rotate

#: How long a request number is remembered.
DEDUP_KEEP_MS = 600_000


def send(tx: Tx, command: Send) -> Sent:
    """Stages the valid entries of a request; a repeated request number stores nothing."""
    topic = tx.topic(command.topic)
    if topic is None or topic.is_dead_letter:
        raise topic_not_found(command.topic)
    _check_types(topic, command.types)
    messages = command.valid
    key = b""
    if command.producer_id:
        key = hash16(command.producer_id) + U64.pack(command.request_number)
        if (seen := _seen(tx, key, topic, len(messages))) is not None:
            return seen
    permission.check_send(topic)  # after the look for a repeat: a stored request still gets its answer
    if not messages:
        return Sent(0, 0, False)
    quotas.check_send(tx, topic, messages)
    size_limit.make(tx, topic, messages)
    if placing.is_plain(topic, messages):
        queue = rotate(tx, topic)
        sent = Sent(queue, append(tx, topic, queue, messages), False)
    else:
        sent = Sent(0, 0, False, placing.place(tx, topic, messages))
    if topic.send_messages_per_s or topic.send_bytes_per_s:
        quotas.sent(tx, topic, _stored(messages, sent.places))
    if key:
        head = DEDUP_VALUE.pack(tx.now_ms, topic.topic_id, sent.queue, sent.first, len(messages))
        _remember(tx, key, head + _encoded(sent.places))
    return sent


def _check_types(topic: Topic, types: frozenset[str]) -> None:
    """Refuses messages of another type than the topic's, if the caller named types."""
    if types and types != {topic.type}:
        kinds = ", ".join(sorted(types))
        raise invalid(
            f"topic {topic.name!r} is of type {topic.type}, these messages are for {kinds}",
            field="type",
            action=f"send to a topic of that type: popmq topic create NAME --type {min(types)}",
        )


def _stored(messages: tuple[Outgoing, ...], places: tuple[Place | Refused, ...] | None) -> list[Outgoing]:
    """The messages that were new to the topic."""
    if places is None:
        return list(messages)
    pairs = zip(messages, places, strict=True)
    return [message for message, place in pairs if isinstance(place, Place) and not place.duplicate]


def _encoded(places: tuple[Place | Refused, ...] | None) -> bytes:
    """The places for the answer to a repeated request, if they are not consecutive in one queue."""
    if places is None:
        return b""
    rows = [
        [place.code, place.message, place.field, place.action] if isinstance(place, Refused) else place
        for place in places
    ]
    return json.dumps(rows, ensure_ascii=False).encode()


def _decoded(raw: memoryview) -> tuple[Place | Refused, ...] | None:
    """The inverse of `_encoded`."""
    if not raw:
        return None
    rows = json.loads(bytes(raw))
    return tuple(_refused(*row) if len(row) == 4 else Place(*row) for row in rows)


def _refused(code: str, message: str, field: str, action: str) -> Refused:
    return Refused(code, message, field=field, action=action)


def _seen(tx: Tx, key: bytes, topic: Topic, count: int) -> Sent | None:
    """The first answer to this request number while it is remembered; Refused if the number was of another request."""
    raw = tx.kv.get("dedup", key)
    if raw is None:
        return None
    sent_ms, topic_id, queue, first, stored = DEDUP_VALUE.unpack_from(raw)
    if tx.now_ms - sent_ms > DEDUP_KEEP_MS or topic_id not in tx.state.topics:
        return None  # also after a purge: no producer got the answer that the first try was stored
    if (topic_id, stored) != (topic.topic_id, count):
        raise Refused(
            "REQUEST_NUMBER_REUSED",
            "this request number was used for another topic or another number of messages",
            field="request_number",
            action="use a new number for each request; repeat a number only to repeat the same request",
        )
    return Sent(queue, first, True, _decoded(raw[DEDUP_VALUE.size :]))


def _remember(tx: Tx, key: bytes, value: bytes) -> None:
    """Stores the request number, and drops up to two of the same producer that are too old.

    A producer's numbers ascend, so its oldest keys come first: active producers need no index by time. Housekeeping
    removes the numbers of producers that stopped.
    """
    cursor = tx.kv.cursor("dedup")
    stale: list[bytes] = []
    if cursor.set_range(key[:16]):
        for found in cursor.iternext(keys=True, values=True):
            if (
                bytes(found[0][:16]) != key[:16]
                or len(stale) == 2
                or tx.now_ms - U64.unpack_from(found[1])[0] <= DEDUP_KEEP_MS
            ):
                break
            stale.append(bytes(found[0]))
    for old in stale:
        tx.kv.delete("dedup", old)
    tx.kv.put("dedup", key, value)
