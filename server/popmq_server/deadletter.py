"""Dead letters: a new record in `%DLQ%group`, so that it pins nothing and outlives its origin.

The stored bytes are the message as received plus one more field, `dead_letter`: in protobuf a message followed by a
field is the message with that field set, so nothing is decoded or encoded again. The core knows no generated code;
these few bytes are written by hand and a test reads them with the generated class.
"""

from popmq_server import fields, history, quarantine
from popmq_server.catalog import ensure_dead_letter_topic
from popmq_server.checkpoint import CheckPoint
from popmq_server.message import Outgoing, tag_hash, varint
from popmq_server.topic import Log, append, located
from popmq_server.tx import Tx

_DEAD_LETTER_FIELD = 15


def bury(tx: Tx, ck: CheckPoint, bits: int, reason: str) -> None:
    """Moves members, already out of their lease, to the dead-letter topic of their group.

    Rows of history are written for each of them, with the reason that the dead letter carries too.
    """
    group = tx.state.groups[ck.group_id]
    topic = tx.state.topics[ck.topic_id]
    log = Log(tx.kv)
    found: list[Outgoing] = []
    for run, offset, position, size in located(tx, ck, bits):
        read = log.fetch(ck.topic_id, position, size)
        if read is None:
            quarantine.set_aside(tx, ck.group_id, ck.topic_id, run.queue, offset, position, size)
            continue
        origin = origin_bytes(
            topic.name, run.queue, offset, run.attempts, run.first_pop_ms or ck.popped_ms, ck.client, reason, tx.now_ms
        )
        found.append(Outgoing(read[1] + origin, tag_hash(fields.text(read[1], fields.TAG)), (), ""))
    if found:
        append(tx, ensure_dead_letter_topic(tx, group), 0, tuple(found))
        tx.count((ck.group_id, ck.topic_id), dead=len(found))
    history.write_members(tx, ck, bits, tx.now_ms, history.DEAD, reason)


def origin_bytes(
    topic: str, queue: int, offset: int, attempts: int, first_pop_ms: int, client: str, reason: str, now_ms: int
) -> bytes:
    """popmq.v1.Message.dead_letter, encoded."""
    body = b"".join(
        (
            _text(1, topic),
            _number(2, queue),
            _number(3, offset),
            _number(4, attempts),
            _number(5, first_pop_ms),
            _text(6, client),
            _text(7, reason),
            _number(8, now_ms),
        )
    )
    return varint(_DEAD_LETTER_FIELD << 3 | 2) + varint(len(body)) + body


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _text(field: int, value: str) -> bytes:
    raw = value.encode()
    return varint(field << 3 | 2) + varint(len(raw)) + raw
