"""De-duplication of producers: a repeated request gets its first answer and stores nothing.

    dedup   hash of the producer id, request number → time, topic, queue, first offset, count; places if not consecutive

Requests are deduplicated, not messages: one key per message would cost more than the message (topic.py). The keys of
one producer are neighbours, in the order of its request numbers.
"""

import json

from popmq_server.contract.commands import Place, Sent
from popmq_server.embedded.rules.topics.walks import RowWalk
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import DEDUP_VALUE, U64
from popmq_server.errors import Refused
from popmq_server.values.records import Topic

#: Request numbers checked in one piece.
DEDUP_SWEEP = 1000
#: How long a request number is remembered.
DEDUP_KEEP_MS = 600_000


def first_answer(tx: Tx, key: bytes, topic: Topic, count: int) -> Sent | None:
    """The first answer to this request number while it is remembered.

    Raises Refused if the number belongs to a request with another topic or another number of messages.
    """
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


def remember(tx: Tx, key: bytes, topic: Topic, count: int, sent: Sent) -> None:
    """Stores the answer to a request of `count` messages, and drops up to two numbers of its producer that are too old.

    The numbers of a producer ascend, so its oldest keys come first, and an active producer needs no index by time.
    Housekeeping removes the numbers of producers that stopped.
    """
    cursor = tx.kv.cursor("dedup")
    stale: list[bytes] = []
    if cursor.set_range(key[:16]):
        for row, value in cursor.iternext(keys=True, values=True):
            if bytes(row[:16]) != key[:16] or len(stale) == 2 or tx.now_ms - U64.unpack_from(value)[0] <= DEDUP_KEEP_MS:
                break
            stale.append(bytes(row))
    for old in stale:
        tx.kv.delete("dedup", old)
    head = DEDUP_VALUE.pack(tx.now_ms, topic.topic_id, sent.queue, sent.first, count)
    tx.kv.put("dedup", key, head + _encoded(sent.places))


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
