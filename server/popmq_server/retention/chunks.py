"""Chunks of a topic's log: finding them, what holds them, and dropping one with all that belongs to it.

With a chunk go its index block, its consume-queue values, its history and quarantine rows, and the first readable
offset of each of its queues moves up to the next block that is left; marks of redriven letters (`gone`) go with it.
Retention drops chunks when their time has come (retention.py), and before it for room (size_limit.py).
"""

import bisect
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.delivery import deadletter, history_rows
from popmq_server.model.message import RECORD
from popmq_server.model.records import Topic
from popmq_server.state.events import Event
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import CQ_ENTRY, CQ_KEY, NEVER, QUEUE_KEY, TOPIC_AT, U32, U64
from popmq_server.topics import index
from popmq_server.topics.topic import IDX_HEAD, IDX_RANGE, written

#: History rows removed with one chunk; more are left to the next chunk of the queue.
HISTORY_MAX = 10_000


class Chunk(NamedTuple):
    """What `idx` says of a chunk."""

    position: int
    stored_ms: int
    bytes: int
    ranges: tuple[tuple[int, int, int], ...]  # queue, first offset, count


def chunks(tx: Tx, topic_id: int, start: int) -> Iterator[Chunk]:
    """The chunks of a topic from a position on."""
    for key, value in tx.kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, start)):
        stored_ms, size, count = IDX_HEAD.unpack_from(value)
        raw = value[IDX_HEAD.size : IDX_HEAD.size + count * IDX_RANGE.size]
        yield Chunk(TOPIC_AT.unpack(key)[1], stored_ms, size, tuple(IDX_RANGE.iter_unpack(raw)))


def chunks_of(tx: Tx, topic: Topic, start: int) -> Iterator[tuple[Topic | None, Chunk]]:
    """The chunks of a topic from a position on, with the topic that each belongs to: of a LITE topic a lite topic.

    These lie among others' in the log, oldest first; a chunk of somebody else has no owner here, and only a position.
    """
    if topic.type != "LITE":
        yield from ((topic, chunk) for chunk in chunks(tx, topic.topic_id, start))
        return
    for key, value in tx.kv.scan("log", b"", U64.pack(start)):
        position, owner = U64.unpack(key)[0], tx.state.topics.get(RECORD.unpack_from(value)[2])
        if owner is None or owner.parent_id != topic.topic_id:
            yield None, Chunk(position, 0, 0, ())
        else:
            yield owner, next(chunks(tx, owner.topic_id, position))


def passed(tx: Tx, topic: Topic, chunk: Chunk) -> bool:
    """Whether every group of the topic has popped (or skipped) all of a chunk."""
    for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
        if group_id not in tx.state.groups:
            continue
        for queue, first, count in chunk.ranges:
            if tx.state.poff.get((group_id, topic.topic_id, queue), 0) < first + count:
                return False
    return True


def pinned(tx: Tx, chunk: Chunk) -> bool:
    """Whether a lease or an entry outside the queues points into a chunk."""
    return any(pins(tx, chunk.position))


def pins(tx: Tx, position: int) -> tuple[int, int]:
    """How many leased messages lie in a chunk, and how many entries outside the queues point into it."""
    raw = tx.kv.get("pin", U64.pack(position))
    return tx.state.pins.get(position, 0), 0 if raw is None else int(U32.unpack(raw)[0])


def drop(tx: Tx, topic: Topic, chunk: Chunk) -> None:
    """Removes a chunk and all that belongs to it; groups that had not read it lose it, counted."""
    tx.kv.delete("log", U64.pack(chunk.position))
    tx.kv.delete("idx", TOPIC_AT.pack(topic.topic_id, chunk.position))
    tx.count_topic(topic.topic_id, bytes=-chunk.bytes)
    for key in [key for key, _ in _kept(tx, chunk)]:
        tx.kv.delete("kept", key)
    index.forget(tx, topic.topic_id)
    if not chunk.ranges:
        tx.kv.delete("bare", TOPIC_AT.pack(topic.topic_id, chunk.position))
    for queue, first, count in chunk.ranges:
        tx.kv.delete("cq", CQ_KEY.pack(topic.topic_id, queue, first))
        for name in ("quar", "hist"):
            _forget(tx, name, topic.topic_id, queue, first, first + count)
        _raise_min(tx, topic, queue)


def _forget(tx: Tx, name: str, topic_id: int, queue: int, first: int, end: int) -> None:
    """Removes what is told of a queue up to `end`, at most HISTORY_MAX; what is left over goes with a later chunk.

    It begins behind the last block before `first` that is still there: also where a lease that ended later was written
    down after its chunk had gone. Blocks of history that speak of what is left stay until that goes.
    """
    before = tx.kv.floor("cq", CQ_KEY.pack(topic_id, queue, first), QUEUE_KEY.pack(topic_id, queue))
    begin = CQ_KEY.unpack(before[0])[2] + len(before[1]) // CQ_ENTRY.size if before else 0
    start, stop = (CQ_KEY.pack(topic_id, queue, offset) for offset in (begin, end))
    behind = next(tx.kv.scan("cq", start[:6], stop), None)
    least = CQ_KEY.unpack(behind[0])[2] if behind else NEVER
    stale: list[bytes] = []
    for key, value in tx.kv.scan(name, start[:6], start):
        if key >= stop or len(stale) == HISTORY_MAX:
            break
        if name != "hist" or history_rows.stop_of(key, value) <= least:
            stale.append(key)
    for key in stale:
        tx.kv.delete(name, key)


def _raise_min(tx: Tx, topic: Topic, queue: int) -> None:
    """The first readable offset follows the first block that is left; whoever was before it has lost messages,
    counted.
    """
    where = (topic.topic_id, queue)
    first = tx.kv.first("cq", QUEUE_KEY.pack(*where))
    least = CQ_KEY.unpack(first[0])[2] if first else written(tx, *where)
    before = tx.state.queue_min.get(where, 0)
    tx.state.queue_min[where] = max(least, before)  # also when it stays: with it the end of the queue is written
    if least <= before:
        return
    tx.count_lites(topic.parent_id, 0, before - least)
    gone = list(deadletter.gone(tx.kv, *where, 0, least)) if deadletter.has_gone(tx, topic.topic_id) else []
    for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
        offset = tx.state.poff.get((group_id, *where), 0)
        if offset < least and (group_id, topic.topic_id) in tx.state.stat:
            tx.pass_to((group_id, *where), least)
            skipped = len(gone) - bisect.bisect_left(gone, offset)
            tx.count((group_id, topic.topic_id), expired=least - offset - skipped, start=skipped)
            _tell_expired(tx, group_id, topic, queue, offset, least, least - offset - skipped)
    deadletter.forget_gone(tx, topic.topic_id, queue, gone)


def _tell_expired(tx: Tx, group_id: int, topic: Topic, queue: int, offset: int, least: int, lost: int) -> None:
    """Operators are told of what a group lost by retention."""
    group = tx.state.groups.get(group_id)
    if group is not None and lost:
        text = (
            f"retention moved group {group.name!r} in queue {queue} of topic {topic.name!r} from offset {offset} "
            f"to {least}: {lost} messages that it had not read are expired"
        )
        tx.tell(Event("offset_expired", group.name, topic.name, lost, text))


def _kept(tx: Tx, chunk: Chunk) -> Iterator[tuple[bytes, memoryview]]:
    """What of a chunk went to `kept`."""
    for key, value in tx.kv.scan("kept", b"", U64.pack(chunk.position)):
        if U64.unpack(key)[0] >= chunk.position + chunk.bytes:
            return
        yield key, value
