"""De-duplication of producers: a repeated request gets its first answer and stores nothing.

    dedup   hash of the producer id, request number → time, topic, queue, first offset, count; places if not consecutive
                                        of a Settle → time, 0, 0, deliveries, messages; the answers of its sends

Requests are deduplicated, not messages: one key per message would cost more than the message (topic.py). The keys of
one producer are neighbours, in the order of its request numbers.
"""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from popmq_server.contract.commands import Place, Send, Sent, Settle
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.topics.walks import RowWalk
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import DEDUP_VALUE, U64, hash16
from popmq_server.errors import Refused
from popmq_server.values.records import Topic

#: Request numbers checked in one piece.
DEDUP_SWEEP = 1000
#: How long a request number is remembered.
DEDUP_KEEP_MS = 600_000
_encode = json.JSONEncoder(ensure_ascii=False).encode
#: In the place of the topic: the row is of a Settle. No topic has this id.
_SETTLED = 0


def key_of(command: Send | Settle) -> bytes:
    """The key of a numbered request; empty for one without a number."""
    return hash16(command.producer_id) + U64.pack(command.request_number) if command.producer_id else b""


def all_new(tx: Tx, keys: Sequence[bytes]) -> bool:
    """Whether no request with one of these keys (`key_of`) was answered, and no two of them have the same number."""
    numbered = [key for key in keys if key]
    return len({*numbered}) == len(numbered) and not any(map(partial(tx.kv.get, "dedup"), numbered))


def first_answer(tx: Tx, key: bytes, topic: Topic, count: int) -> Sent | None:
    """The first answer to this request number while it is remembered.

    Raises Refused if the number belongs to a request with another topic or another number of messages.
    """
    raw = tx.kv.get("dedup", key)
    if raw is None:
        return None
    sent_ms, topic_id, queue, first, stored = DEDUP_VALUE.unpack_from(raw)
    if tx.now_ms - sent_ms > DEDUP_KEEP_MS or not (topic_id == _SETTLED or topic_id in tx.state.topics):
        return None  # also after a purge: no producer got the answer that the first try was stored
    if (topic_id, stored) != (topic.topic_id, count):
        raise _reused("another topic or another number of messages")
    text = bytes(raw[DEDUP_VALUE.size :])
    places = _decoded(json.loads(text) if text else None)
    if places is not None and len(places) != count:
        broken("first_answer_is_whole", ("dedup", key), places=len(places), messages=count)
    if topic_id != _SETTLED and queue >= topic.queues:
        broken("first_answer_names_a_queue", ("dedup", key), queue=queue, queues=topic.queues)
    return Sent(queue, first, True, places)


def first_settled(tx: Tx, key: bytes, command: Settle) -> tuple[Sent, ...] | None:
    """The answers of its sends, while the request number of a Settle is remembered. Raises Refused as `first_answer`.

    They stay when a topic is deleted: the deliveries are over, and no repeat may end them a second time.
    """
    raw = tx.kv.get("dedup", key)
    if raw is None:
        return None
    settled_ms, topic_id, _, deliveries, stored = DEDUP_VALUE.unpack_from(raw)
    if tx.now_ms - settled_ms > DEDUP_KEEP_MS:
        return None
    if (topic_id, deliveries, stored) != (_SETTLED, _deliveries(command), command.messages):
        raise _reused("another request, or for other numbers of deliveries and messages")
    rows = json.loads(bytes(raw[DEDUP_VALUE.size :]))
    if len(rows) != len(command.sends):
        broken("first_answer_is_whole", ("dedup", key), answers=len(rows), sends=len(command.sends))
    return tuple(Sent(queue, first, True, _decoded(places)) for queue, first, places in rows)


def _deliveries(command: Settle) -> int:
    return len(command.handles) + len(command.changes)


def _reused(what: str) -> Refused:
    return Refused(
        "REQUEST_NUMBER_REUSED",
        f"this request number was used for {what}",
        field="request_number",
        action="use a new number for each request; repeat a number only to repeat the same request",
    )


def remember(tx: Tx, key: bytes, topic: Topic, count: int, sent: Sent) -> None:
    """Stores the answer to a request of `count` messages."""
    if sent.places is not None and len(sent.places) != count:
        broken("first_answer_is_whole", places=len(sent.places), messages=count)
    places = b"" if sent.places is None else _json(_encoded(sent.places))
    _put(tx, key, DEDUP_VALUE.pack(tx.now_ms, topic.topic_id, sent.queue, sent.first, count) + places)


def remember_settled(tx: Tx, key: bytes, command: Settle, answers: tuple[Sent, ...]) -> None:
    """Stores the answers of a Settle: some bytes for each topic, or as many for each message as `remember`."""
    rows = [[sent.queue, sent.first, _encoded(sent.places)] for sent in answers]
    _put(tx, key, DEDUP_VALUE.pack(tx.now_ms, _SETTLED, 0, _deliveries(command), command.messages) + _json(rows))


def _put(tx: Tx, key: bytes, value: bytes) -> None:
    """Stores an answer, and drops up to two numbers of its producer that are too old.

    The numbers of a producer ascend, so its oldest keys come first, and an active producer needs no index by time.
    Housekeeping removes the numbers of producers that stopped.
    """
    cursor = tx.kv.cursor("dedup")
    stale: list[bytes] = []
    if cursor.set_range(key[:16]):
        for row, known in cursor.iternext(keys=True, values=True):
            if bytes(row[:16]) != key[:16] or len(stale) == 2 or tx.now_ms - U64.unpack_from(known)[0] <= DEDUP_KEEP_MS:
                break
            stale.append(bytes(row))
    for old in stale:
        tx.kv.delete("dedup", old)
    tx.kv.put("dedup", key, value)


def _json(rows: object) -> bytes:
    return _encode(rows).encode()


def _encoded(places: tuple[Place | Refused, ...] | None) -> list[Any] | None:
    """The places for the answer to a repeated request, if they are not consecutive in one queue."""
    if places is None:
        return None
    return [
        [place.code, place.message, place.field, place.action] if isinstance(place, Refused) else place
        for place in places
    ]


def _decoded(rows: list[list[Any]] | None) -> tuple[Place | Refused, ...] | None:
    """The inverse of `_encoded`."""
    if rows is None:
        return None
    return tuple(_refused(*row) if len(row) == 4 else Place(*row) for row in rows)


def _refused(code: str, message: str, field: str, action: str) -> Refused:
    return Refused(code, message, field=field, action=action)


class Requests:
    """Removes old request numbers of producers."""

    def __init__(self) -> None:
        self._rows = RowWalk("dedup", DEDUP_SWEEP, DEDUP_VALUE.unpack_from)

    def run(self, tx: Tx) -> bool:
        """Drops request numbers older than DEDUP_KEEP_MS; returns whether there are more to check."""
        for key, (answered_ms, *_) in self._rows.piece(tx):
            if tx.now_ms - answered_ms > DEDUP_KEEP_MS:
                tx.kv.delete("dedup", key)
        return bool(self._rows.place)
