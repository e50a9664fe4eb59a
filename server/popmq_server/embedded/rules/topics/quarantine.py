"""Quarantine of damaged records: they are recorded, counted and logged, never delivered, never dropped silently."""

import itertools
import logging

from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import CQ_KEY, QUEUE_KEY, U32, U64
from popmq_server.values.ids import GroupId, TopicId

log = logging.getLogger("popmq.quarantine")

#: Queue and position of a message that was never in a queue or in the log.
NO_QUEUE = 0xFFFF
NO_POSITION = (1 << 64) - 1


def set_aside(tx: Tx, group_id: GroupId, topic_id: TopicId, queue: int, offset: int, position: int, size: int) -> None:
    """Quarantines a damaged message that a group has reached: counts it for the group, and reports it."""
    report(tx, topic_id, queue, offset, position, size)
    readers.count(tx, (group_id, topic_id), quarantined=1)


def report(tx: Tx, topic_id: int, queue: int, offset: int, position: int, size: int) -> None:
    """Records the place of a damaged message, and logs it when it is first found."""
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


def set_aside_pending(tx: Tx, topic_id: int, number: int, raw: bytes) -> None:
    """Quarantines a damaged delayed or half message: keeps its bytes, under NO_QUEUE."""
    key = CQ_KEY.pack(topic_id, NO_QUEUE, number)
    tx.kv.put("quar", key, U64.pack(NO_POSITION) + U32.pack(len(raw)) + raw)
    log.error(
        "topic %s: the stored bytes of the delayed or half message %d do not match their checksum; quarantined",
        tx.state.topics[topic_id].name,
        number,
    )


def forget(tx: Tx, first: bytes, stop: bytes, rows_max: int) -> None:
    """Removes rows of a queue between two keys, at most `rows_max`: retention dropped their messages."""
    keys = itertools.takewhile(lambda key: key < stop, tx.kv.scan_keys("quar", first[: QUEUE_KEY.size], first))
    for key in list(itertools.islice(keys, rows_max)):
        tx.kv.delete("quar", key)
