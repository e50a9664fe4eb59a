"""Marks: the times at which every group of a topic had passed a position of the log.

    mark   T + time → position      since that time every group of T has been past all chunks before the position

A mark records *when* a chunk was passed. It is true only while no group moves back. A group that moves back, or is
new to the topic, lowers or removes the marks that are no longer true (`take_back`, called by readers.pass_to):

    marks            10:00 → 40     11:00 → 70     12:00 → 90
    at 12:30 a group goes back to a message in chunk 55
    marks            10:00 → 40     11:00 → 55                chunks before 55 keep their time, the others begin again

Marks of a topic increase in time and in position. The interval between two is the topic's keep time / MARKS_MAX, so the
cost of `limit` and `take_back` is bounded for any keep time.

See docs/decisions/0014-retention-marks.md.
"""

import itertools
from collections.abc import Iterator

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    QUEUE_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction

#: Marks of one topic. A chunk passed between two marks counts as passed at the later one: at most a thousandth of the
#: keep time too late.
MARKS_MAX = 1000
#: Obsolete marks removed by one `limit`: a store of an earlier release may have one for each minute.
STALE_MAX = 200


def last(kv: Transaction, topic_id: int) -> tuple[int, int]:
    """(time, position) of the newest mark; zeros if there is none."""
    row = kv.last("mark", U32.pack(topic_id))
    return (TOPIC_AT.unpack(row[0])[1], U64.unpack(row[1])[0]) if row else (0, 0)


def put(kv: Transaction, topic_id: int, now_ms: int, position: int) -> None:
    """Adds a mark: every group is past all chunks before the position. It replaces marks of later times, which a clock
    that was ahead wrote.
    """
    key = TOPIC_AT.pack(topic_id, now_ms)
    for ahead in list(kv.scan_keys("mark", U32.pack(topic_id), key)):
        kv.delete("mark", ahead)
    if (before := last(kv, topic_id)[1]) > position:
        broken("marks_ascend", topic=topic_id, position=position, before=before)
    kv.put("mark", key, U64.pack(position))


def forget(kv: Transaction, topic_id: int, marked_ms: int) -> None:
    """Removes the mark of a time, which a mark at a higher position replaces."""
    kv.delete("mark", TOPIC_AT.pack(topic_id, marked_ms))


def limit(kv: Transaction, topic_id: int, since_ms: int) -> int:
    """The position that every group has been past since a time; 0 if there is no such mark. Removes up to STALE_MAX
    older marks, which are obsolete.
    """
    prefix = U32.pack(topic_id)
    row = kv.floor("mark", TOPIC_AT.pack(topic_id, max(0, since_ms)), prefix)
    if row is None:
        return 0
    position = int(U64.unpack(row[1])[0])
    older = itertools.takewhile(lambda key: key < row[0], (key for key in kv.scan_keys("mark", prefix)))
    for key in list(itertools.islice(older, STALE_MAX)):
        kv.delete("mark", key)
    return position


def take_back(kv: Transaction, topic_id: int, queue: int, offset: int) -> None:
    """After a group moved to an offset: lowers or removes the marks beyond the chunk of that offset."""
    position = _chunk_at(kv, topic_id, queue, offset) if last(kv, topic_id)[1] else None
    if position is None:
        return
    least = b""
    while (row := kv.last("mark", U32.pack(topic_id))) and U64.unpack(row[1])[0] > position:
        least = row[0]
        kv.delete("mark", least)
    if least:
        kv.put("mark", least, U64.pack(position))


def redriven(kv: Transaction, topic_id: int, queue: int, first: int, stop: int) -> Iterator[int]:
    """The offsets of redriven dead letters in a queue, from `first` up to but not including `stop`: marks of `gone`."""
    for key in kv.scan_keys("gone", QUEUE_KEY.pack(topic_id, queue), CQ_KEY.pack(topic_id, queue, first)):
        offset: int = CQ_KEY.unpack(key)[2]
        if offset >= stop:
            return
        yield offset


def _chunk_at(kv: Transaction, topic_id: int, queue: int, offset: int) -> int | None:
    """The position of the chunk with the first message of a queue at or after an offset; None: there is none."""
    prefix = QUEUE_KEY.pack(topic_id, queue)
    block = kv.floor("cq", CQ_KEY.pack(topic_id, queue, offset), prefix)
    if block is not None and offset >= CQ_KEY.unpack(block[0])[2] + len(block[1]) // CQ_ENTRY.size:
        block = None
    if block is None:
        block = next(kv.scan("cq", prefix, CQ_KEY.pack(topic_id, queue, offset)), None)
    if block is None:
        return None
    # All entries of a consume-queue block point into one chunk: the one written with it.
    chunk = kv.floor("idx", TOPIC_AT.pack(topic_id, CQ_ENTRY.unpack_from(block[1])[0]), U32.pack(topic_id))
    return None if chunk is None else int(TOPIC_AT.unpack(chunk[0])[1])
