"""Chunks of a topic's log: reading them, their pins, and dropping one with everything that belongs to it.

Dropping a chunk also removes its index block, its consume-queue values, and its history and quarantine rows; the first
readable offset of each of its queues moves up to the next remaining block.
retention.py drops chunks by time, by_size.py drops them earlier to make room.

See docs/decisions/0011-pins.md.
"""

from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.topics import chunk as chunk_store
from popmq_server.embedded.rules.topics import index, lite_chunks, quarantine
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE, pins
from popmq_server.embedded.rules.topics.topic import raise_begin, written
from popmq_server.embedded.state import marks, topic_counts
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import history_rows
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    NEVER,
    QUEUE_KEY,
    TOPIC_AT,
    U32,
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


def drop(tx: Tx, topic: Topic, chunk: Chunk) -> None:
    """Removes a chunk and all that belongs to it. Groups that have not read it are moved later: floors.drop."""
    if any(held := pins(tx, chunk.position)):
        broken("dropped_chunk_is_free", topic=topic.topic_id, chunk=chunk.position, leases=held[0], entries=held[1])
    chunk_store.drop(tx, topic, chunk.position, chunk.bytes, chunk.ranges)
    index.forget(tx, topic.topic_id)
    for queue, first, count in chunk.ranges:
        first_key, stop = _span(tx, topic.topic_id, queue, first, first + count)
        quarantine.forget(tx, first_key, stop, HISTORY_MAX)
        history_rows.forget(tx.kv, first_key, stop, HISTORY_MAX, _least(tx, topic.topic_id, queue, first + count))
        _raise_min(tx, topic, queue)


def _span(tx: Tx, topic_id: int, queue: int, first: int, end: int) -> tuple[bytes, bytes]:
    """The keys between which rows of a queue have no message any more, up to `end`.

    Starts after the last remaining block before `first`, so that it finds history of leases that ended after their
    chunk was dropped.
    """
    before = tx.kv.floor("cq", CQ_KEY.pack(topic_id, queue, first), QUEUE_KEY.pack(topic_id, queue))
    begin = CQ_KEY.unpack(before[0])[2] + len(before[1]) // CQ_ENTRY.size if before else 0
    return CQ_KEY.pack(topic_id, queue, begin), CQ_KEY.pack(topic_id, queue, end)


def _least(tx: Tx, topic_id: int, queue: int, end: int) -> int:
    """The first remaining offset at or after `end`: history blocks that also cover it stay until it is dropped."""
    block = next(tx.kv.scan("cq", QUEUE_KEY.pack(topic_id, queue), CQ_KEY.pack(topic_id, queue, end)), None)
    return CQ_KEY.unpack(block[0])[2] if block else NEVER


def _raise_min(tx: Tx, topic: Topic, queue: int) -> None:
    """Moves the first readable offset up to the first remaining block; redriven dead letters no longer count."""
    where = (topic.topic_id, queue)
    first = tx.kv.first("cq", QUEUE_KEY.pack(*where))
    least = CQ_KEY.unpack(first[0])[2] if first else written(tx, *where)
    before = raise_begin(tx, where, least)
    if least <= before:
        return
    topic_counts.add_lites(tx, topic.parent_id, 0, before - least)
    if deadletter.has_gone(tx, topic.topic_id):
        topic_counts.add(tx, topic.topic_id, redriven=-sum(1 for _ in marks.redriven(tx.kv, *where, before, least)))
