"""LookUp: messages of a topic by message id or key, the newest first; read-only.

    hash of the id or key ──▶ index.search ──▶ hits ──▶ compare the text of each ──▶ rows

It skips redriven dead letters and unreadable messages. A piece searches about STEPS index blocks and reads READS_MAX
messages at most; the caller continues with `below` of the answer.
"""

from collections.abc import Callable

from popmq_server.embedded.operations import LookedUpPiece, LookUpPiece
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.topics import index, registry
from popmq_server.embedded.rules.topics.index import Hit, Spot
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import topic_not_found
from popmq_server.values import fields
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import Topic

#: Index blocks that one piece searches: some 10 ms.
STEPS = 5000
#: Messages that one piece reads at most.
READS_MAX = 1000


def look_up(tx: Tx, command: LookUpPiece) -> LookedUpPiece:
    """Runs one piece."""
    topic = registry.topic(tx, command.topic)
    if topic is None:
        raise topic_not_found(command.topic)
    below = command.below
    if below is None:
        asked = command.until_ms
        below = index.before(tx.kv, topic.topic_id, asked) if asked else index.end(tx.kv, topic.topic_id)
    wanted = frozenset({hash8(command.message_id or command.key)})
    hits, below, _ = index.search(tx.kv, topic.topic_id, wanted, below, STEPS)
    if len(hits) > READS_MAX:
        below, hits = hits[READS_MAX - 1].position, hits[:READS_MAX]
    return _rows(tx, topic, command, hits, below)


def _rows(tx: Tx, topic: Topic, command: LookUpPiece, hits: list[Hit], below: int) -> LookedUpPiece:
    """Reads the hits; a message stored before `from_ms` ends the search."""
    log, is_meant = Log(tx.kv), _meant(command)
    rows: list[tuple[bytes, int, int, int, int]] = []
    room = command.bytes_max
    for hit in hits:
        spot = index.spot(tx.kv, topic.topic_id, hit.position)
        if spot is None or (command.until_ms and spot.stored_ms > command.until_ms) or _is_gone(tx, topic, spot):
            continue
        if spot.stored_ms < command.from_ms:
            return LookedUpPiece(rows, 0, False)
        read = log.fetch(topic.topic_id, spot.position, spot.size)
        if read is None or not is_meant(read[1]):
            continue
        if len(rows) == command.messages_max or (rows and spot.size > room):
            return LookedUpPiece(rows, below, True)
        room -= spot.size
        rows.append((read[1], read[0], spot.queue, spot.offset, 0))
    return LookedUpPiece(rows, below, False)


def _is_gone(tx: Tx, topic: Topic, spot: Spot) -> bool:
    return deadletter.has_gone(tx, topic.topic_id) and deadletter.is_gone(
        tx.kv, topic.topic_id, spot.queue, spot.offset
    )


def _meant(command: LookUpPiece) -> Callable[[bytes], bool]:
    """A predicate: whether the bytes of a message have the id or key itself, not only its hash."""
    if command.message_id:
        return lambda data: fields.text(data, fields.MESSAGE_ID) == command.message_id
    return lambda data: command.key in fields.texts(data, fields.KEYS)
