"""Records whose bytes are not what was written: kept, counted, reported, never delivered, never dropped silently."""

import logging

from popmq_server.state.tx import Tx
from popmq_server.storage.keys import CQ_KEY, U32, U64

log = logging.getLogger("popmq.quarantine")

#: The place of what was never in a queue, nor in the log.
NO_QUEUE = 0xFFFF
NO_POSITION = (1 << 64) - 1


def set_aside(tx: Tx, group_id: int, topic_id: int, queue: int, offset: int, position: int, size: int) -> None:
    """A message that a group has reached and nobody can read: it leaves the group's way, and its place is kept."""
    tx.count((group_id, topic_id), quarantined=1)
    report(tx, topic_id, queue, offset, position, size)


def report(tx: Tx, topic_id: int, queue: int, offset: int, position: int, size: int) -> None:
    """A message that somebody came upon and nobody can read: its place is kept, and told when it is first seen."""
    key = CQ_KEY.pack(topic_id, queue, offset)
    if tx.kv.get("quar", key) is not None:
        return
    tx.kv.put("quar", key, U64.pack(position) + U32.pack(size))
    log.error(
        "topic %s queue %d offset %d: the record at %d (%d bytes) does not match its checksum; quarantined",
        tx.state.topics[topic_id].name,
        queue,
        offset,
        position,
        size,
    )


def set_aside_waiting(tx: Tx, topic_id: int, number: int, raw: bytes) -> None:
    """A delayed or half message that nobody can read: its bytes stay in a queue that no topic has."""
    key = CQ_KEY.pack(topic_id, NO_QUEUE, number)
    tx.kv.put("quar", key, U64.pack(NO_POSITION) + U32.pack(len(raw)) + raw)
    log.error(
        "topic %s: the stored bytes of the delayed or half message %d do not match their checksum; quarantined",
        tx.state.topics[topic_id].name,
        number,
    )
