"""Chunks of a topic's log: reading them, their pins, and dropping one with everything that belongs to it.

Dropping a chunk also removes its index block, its consume-queue values, and its history and quarantine rows; the first
readable offset of each of its queues moves up to the next remaining block.
retention.py drops chunks by time, size_limit.py drops them earlier to make room.

See docs/decisions/0011-pins.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.topics import index, lite_chunks
from popmq_server.embedded.rules.topics.topic import IDX_HEAD, IDX_RANGE, written
from popmq_server.embedded.state import marks
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    NEVER,
    QUEUE_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.values.records import Topic

#: History rows removed with one chunk; a later chunk of the queue removes the rest.
HISTORY_MAX = 10_000


class Chunk(NamedTuple):
    """A decoded value of `idx`."""

    position: int
    stored_ms: int
    bytes: int
    ranges: tuple[tuple[int, int, int], ...]  # queue, first offset, count


def chunks(tx: Tx, topic_id: int, start: int) -> Iterator[Chunk]:
    """The chunks of a topic, from a position on."""
    for key, value in tx.kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, start)):
        stored_ms, size, count = IDX_HEAD.unpack_from(value)
        raw = value[IDX_HEAD.size : IDX_HEAD.size + count * IDX_RANGE.size]
        yield Chunk(TOPIC_AT.unpack(key)[1], stored_ms, size, tuple(IDX_RANGE.iter_unpack(raw)))


def chunks_of(tx: Tx, topic: Topic, start: int) -> Iterator[tuple[Topic, Chunk]]:
    """The chunks of a topic from a position on, oldest first, each with its topic; in a LITE topic a lite topic."""
    if topic.type != "LITE":
        yield from ((topic, chunk) for chunk in chunks(tx, topic.topic_id, start))
        return
    for position, topic_id in lite_chunks.scan(tx.kv, topic.topic_id, start):
        owner, chunk = tx.state.topics.get(topic_id), next(chunks(tx, topic_id, position), None)
        if owner is not None and chunk is not None:  # else it is being removed
            yield owner, chunk


def pinned(tx: Tx, chunk: Chunk) -> bool:
    """Whether a lease or an entry outside the queues points into a chunk."""
    return any(pins(tx, chunk.position))


def pins(tx: Tx, position: int) -> tuple[int, int]:
    """(leased messages in a chunk, entries outside the queues that point into it)."""
    raw = tx.kv.get("pin", U64.pack(position))
    return tx.state.pins.get(position, 0), 0 if raw is None else int(U32.unpack(raw)[0])


def drop(tx: Tx, topic: Topic, chunk: Chunk) -> None:
    """Removes a chunk and all that belongs to it. Groups that have not read it are moved later: floors.drop."""
    tx.kv.delete("log", U64.pack(chunk.position))
    tx.kv.delete("idx", TOPIC_AT.pack(topic.topic_id, chunk.position))
    lite_chunks.remove(tx, topic.parent_id, chunk.position)
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
    """Removes rows of a queue up to `end`, at most HISTORY_MAX; a later chunk removes the rest.

    Starts after the last remaining block before `first`, so that it finds history of leases that ended after their
    chunk was dropped. History blocks that also cover remaining messages stay until those are dropped.
    """
    before = tx.kv.floor("cq", CQ_KEY.pack(topic_id, queue, first), QUEUE_KEY.pack(topic_id, queue))
    begin = CQ_KEY.unpack(before[0])[2] + len(before[1]) // CQ_ENTRY.size if before else 0
    start, stop = (CQ_KEY.pack(topic_id, queue, offset) for offset in (begin, end))
    block = next(tx.kv.scan("cq", start[:6], stop), None)
    least = CQ_KEY.unpack(block[0])[2] if block else NEVER
    stale: list[bytes] = []
    for key, value in tx.kv.scan(name, start[:6], start):
        if key >= stop or len(stale) == HISTORY_MAX:
            break
        if name != "hist" or history_rows.stop_of(key, value) <= least:
            stale.append(key)
    for key in stale:
        tx.kv.delete(name, key)


def _raise_min(tx: Tx, topic: Topic, queue: int) -> None:
    """Moves the first readable offset up to the first remaining block; redriven dead letters no longer count."""
    where = (topic.topic_id, queue)
    first = tx.kv.first("cq", QUEUE_KEY.pack(*where))
    least = CQ_KEY.unpack(first[0])[2] if first else written(tx, *where)
    before = tx.state.queue_min.get(where, 0)
    tx.state.queue_min[where] = max(least, before)  # also if unchanged: this writes the end of the queue as well
    if least <= before:
        return
    tx.count_lites(topic.parent_id, 0, before - least)
    if deadletter.has_gone(tx, topic.topic_id):
        tx.count_topic(topic.topic_id, redriven=-sum(1 for _ in marks.redriven(tx.kv, *where, before, least)))


def _kept(tx: Tx, chunk: Chunk) -> Iterator[tuple[bytes, memoryview]]:
    """Rows of `kept` that came from a chunk."""
    for key, value in tx.kv.scan("kept", b"", U64.pack(chunk.position)):
        if U64.unpack(key)[0] >= chunk.position + chunk.bytes:
            return
        yield key, value
